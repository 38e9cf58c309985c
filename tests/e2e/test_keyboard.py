"""Tests that a person can do everything frequent in the console without a mouse."""

import pytest
from playwright.async_api import Locator, Page, expect

from tests.e2e.browsers import Office
from tieline.client import Client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

STOPS_MAX = 60
LONG = "a-member-with-a-name-as-long-as-names-of-members-get-in-hubs"
"""A member's name of 60 characters."""


async def come_in(there: Office) -> Page:
    """Log in as root with the keyboard alone. Return the page."""
    page = await there.page()
    await page.goto(f"{there.url}/")
    await walk(page, page.get_by_role("textbox", name="Token"))
    await page.keyboard.type(there.there.tokens["root"])
    await page.keyboard.press("Enter")
    await page.get_by_text("Connected", exact=True).wait_for()
    return page


async def walk(page: Page, to: Locator, key: str = "Tab") -> None:
    """Press `key` until the element `to` has the focus. The element must then be visible."""
    await to.wait_for(state="attached")
    for _ in range(STOPS_MAX):
        if await to.evaluate("one => one === document.activeElement"):
            assert await to.evaluate("one => one.checkVisibility({opacityProperty: true, visibilityProperty: true})")
            return
        await page.keyboard.press(key)
    raise AssertionError(f"{to} is not among the next {STOPS_MAX} stops")


async def go_to(page: Page, name: str) -> None:
    """Open a part of the console with the command palette (Ctrl+K)."""
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("combobox", name="Go to")).to_be_focused()
    await page.keyboard.type(name)
    await page.keyboard.press("Enter")


async def heard(by: Client) -> tuple[str, str | None]:
    """Wait for the next message of a member. Return its body, and the id of the message to which it replies."""
    message = (await anext(aiter(by))).message
    return message.body, message.reply_to


async def test_a_person_writes_replies_and_looks_at_receipts(there: Office) -> None:
    alice = await there.there.join("alice", receive=True)
    asked = await alice.send("@root", "may I?")
    page = await come_in(there)
    await go_to(page, "@alice")
    await expect(page.get_by_role("heading", name="@alice")).to_be_visible()
    box = page.get_by_label("Say something to @alice")
    await walk(page, box)
    await page.keyboard.type("hello @al")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    assert await heard(alice) == ("hello @alice", None)
    turns = page.locator(".turn")
    await expect(turns).to_have_count(2)
    await walk(page, turns.first.get_by_role("button", name="Reply"), "Shift+Tab")
    await page.keyboard.press("Enter")
    await expect(box).to_be_focused()
    await page.keyboard.type("you may")
    await page.keyboard.press("Enter")
    assert await heard(alice) == ("you may", asked.id)
    await expect(turns).to_have_count(3)
    await walk(page, turns.last.get_by_role("link", name="Receipts"), "Shift+Tab")
    await page.keyboard.press("Enter")
    aside = page.get_by_label("Message", exact=True)
    await expect(aside).to_contain_text("Not seen by 1 of 1")
    await walk(page, aside.get_by_role("button", name="Close"))
    await page.keyboard.press("Enter")
    await expect(aside).to_have_count(0)


async def test_a_person_goes_from_page_to_page_and_blocks_an_objective(there: Office) -> None:
    root = await there.there.join("root")
    await root.create_objective("Ship it", "it is shipped", "alice")
    page = await come_in(there)
    pages = page.get_by_role("navigation", name="Pages")
    for name in ("Members", "Objectives", "Search"):
        await walk(page, pages.get_by_role("link", name=name, exact=True))
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    palette = page.get_by_role("combobox", name="Go to")
    await page.keyboard.press("Control+k")
    await expect(palette).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(palette).to_have_count(0)
    await go_to(page, "ship objective")
    await expect(page.get_by_role("heading", name="Ship it", level=1)).to_be_visible()
    await walk(page, page.get_by_role("button", name="Block", exact=True))
    await page.keyboard.press("Enter")
    await expect(page.get_by_label("What blocks it?")).to_be_focused()
    await page.keyboard.type("no wind")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.locator(".status.blocked")).to_be_visible()
    await expect(page.locator(".turn.event").last).to_contain_text("objective blocked: no wind")
    # The pressed button is gone, and the focus does not jump to the top of the page.
    await expect(page.locator("#main")).to_be_focused()


async def fill(page: Page, submit: str) -> None:
    """Fill every field of the open dialog from the keyboard, then press its button `submit`."""
    for _ in range(STOPS_MAX):
        here = page.locator("dialog :focus")
        tag, kind, text = await here.evaluate("one => [one.tagName, one.type, one.textContent.trim()]")
        if tag == "BUTTON" and text == submit:
            await page.keyboard.press("Enter")
            return
        if tag == "SELECT":
            await page.keyboard.press("ArrowDown")
        elif kind == "checkbox":
            await page.keyboard.press("Space")
        elif kind != "file":
            await page.keyboard.type("from the keyboard")
        await page.keyboard.press("Tab")
    raise AssertionError(f"the button {submit} of the dialog was not reached")


async def open_dialog(page: Page, name: str) -> Locator:
    """Open a dialog with its button. It has the focus, and fits on a screen and on a phone."""
    button = page.get_by_role("button", name=name, exact=True)
    await walk(page, button)
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    await expect(dialog.locator(":focus")).to_have_count(1)
    for width in (390, 1280):
        await page.set_viewport_size({"width": width, "height": 800})
        beyond = await dialog.evaluate(
            """dialog => {
                const { left, right } = dialog.getBoundingClientRect();
                const all = [...dialog.querySelectorAll("*")].map((one) => one.getBoundingClientRect());
                const within = all.every((box) => !box.width || (box.left >= left && box.right <= right));
                return [within, left >= 0 && right <= innerWidth, dialog.scrollWidth - dialog.clientWidth];
            }"""
        )
        assert beyond == [True, True, 0], (name, width)
    return dialog


async def use_dialog(page: Page, name: str, submit: str | None = None) -> None:
    """Close a dialog with Escape, which returns to its button. Then open it again, fill it and submit it."""
    button = page.get_by_role("button", name=name, exact=True)
    dialog = await open_dialog(page, name)
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await expect(button).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(dialog.locator(":focus")).to_have_count(1)
    await fill(page, submit or name)
    await expect(dialog).to_have_count(0)


async def test_every_dialog_is_used_from_the_keyboard_and_long_names_fit(there: Office) -> None:
    for name in (LONG, "n" * 60):
        await there.there.add(name)
    page = await come_in(there)
    status = page.locator("h1 + .status")
    await page.goto(f"{there.url}/#/objectives")
    await use_dialog(page, "New objective", "Create")
    await expect(page.get_by_role("heading", name="from the keyboard", level=1)).to_be_visible()
    await expect(status).to_have_text("active")
    await use_dialog(page, "Block")
    await expect(status).to_have_text("blocked")
    await use_dialog(page, "Change reason")
    await use_dialog(page, "Reassign")
    await use_dialog(page, "Watchers", "Change")
    await expect(page.locator("dt:text-is('Watchers') + dd")).to_have_text(LONG)
    await use_dialog(page, "Cancel objective")
    await expect(status).to_have_text("cancelled")
    root = await there.there.join("root")
    made = await root.create_objective("w" * 60, "it is done", "root")
    await page.goto(f"{there.url}/#/objectives/{made.id}")
    await use_dialog(page, "Complete")
    await expect(status).to_have_text("done")
    await page.goto(f"{there.url}/#/talk/%40{LONG}")
    await use_dialog(page, "Pause")
    await expect(page.get_by_role("alert")).to_contain_text("is paused")
    await page.goto(f"{there.url}/#/members/{LONG}")
    await use_dialog(page, "Rotate")
    await expect(page.get_by_text("There is one token now.")).to_be_visible()
    await use_dialog(page, "Remove member")
    await expect(page.get_by_role("heading", name="Members", level=1)).to_be_visible()
    await expect(page.get_by_role("link", name=LONG)).to_have_count(0)


async def test_letters_open_pages_and_a_question_mark_shows_the_keys(there: Office) -> None:
    page = await come_in(there)
    for letter, name in (("l", "Live"), ("m", "Members"), ("o", "Objectives"), ("s", "Search"), ("h", "Home")):
        await page.locator("#main").focus()
        await page.keyboard.press("g")
        await page.keyboard.press(letter)
        await expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    await page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    await expect(keys).to_contain_text("g l")
    # A letter in the dialog is no command.
    await page.keyboard.press("g")
    await page.keyboard.press("m")
    await expect(page.get_by_role("heading", name="Home", level=1)).to_have_count(1)
    await page.keyboard.press("Escape")
    await expect(keys).to_have_count(0)
    # It does not stay over another page, to which the browser goes back.
    await page.keyboard.press("?")
    await expect(keys).to_be_visible()
    await page.go_back()
    await expect(keys).to_have_count(0)
    await page.goto(f"{there.url}/#/talk/%40alice")
    box = page.get_by_label("Say something to @alice")
    await box.press_sequentially("go? g m /")
    await expect(box).to_have_value("go? g m /")
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_what_is_typed_right_after_the_palette_was_asked_for_is_typed_into_it(there: Office) -> None:
    page = await come_in(there)
    # No painting and no other task comes between the key and the look: a fast typist is not waited for either.
    focused = await page.evaluate(
        """async () => {
            const seen = [];
            for (let time = 0; time < 5; time++) {
                dispatchEvent(new KeyboardEvent("keydown", { key: "k", ctrlKey: true }));
                for (let step = 0; step < 10; step++) await Promise.resolve();
                seen.push(document.activeElement.getAttribute("role"));
                const dialog = document.querySelector("dialog");
                const closed = new Promise((resolve) => dialog.addEventListener("close", resolve));
                dialog.close();
                await closed;
            }
            return seen;
        }"""
    )
    assert focused == ["combobox"] * 5


async def test_a_dialog_that_a_key_opens_opens_again_right_after_escape(there: Office) -> None:
    page = await come_in(there)
    # `requestClose` is what Escape does: the dialog is hidden now, and its close event comes in a later task.
    for name, key in (("Go to", {"key": "k", "ctrlKey": True}), ("Keys", {"key": "?"})):
        opened = await page.evaluate(
            """async ([name, key]) => {
                const seen = [];
                const dialog = document.querySelector(`dialog[aria-label="${name}"]`);
                const press = () => dispatchEvent(new KeyboardEvent("keydown", key));
                const settle = async () => { for (let step = 0; step < 10; step++) await Promise.resolve(); };
                for (let time = 0; time < 5; time++) {
                    press();
                    await settle();
                    const closed = new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
                    dialog.requestClose();
                    await settle();
                    press();
                    await closed;
                    await settle();
                    seen.push(dialog.open && dialog.contains(document.activeElement));
                    const again = new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
                    if (!dialog.open) break;
                    dialog.close();
                    await again;
                }
                return seen;
            }""",
            [name, key],
        )
        assert opened == [True] * 5, name


async def test_menus_and_what_they_open_give_the_focus_back(there: Office) -> None:
    page = await come_in(there)
    # A window that is enlarged to 200 % has the tabs and the menu of a phone.
    await page.set_viewport_size({"width": 640, "height": 400})
    more = page.get_by_role("button", name="More")
    for name, dialog in (("Go to…", "Go to"), ("Keys", "Keys")):
        await walk(page, more)
        await page.keyboard.press("Enter")
        await walk(page, page.get_by_role("button", name=name))
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("dialog", name=dialog).locator(":focus")).to_have_count(1)
        await expect(more).to_have_attribute("aria-expanded", "false")
        await page.keyboard.press("Escape")
        await expect(more).to_be_focused()
    share = page.get_by_role("main").locator("summary", has_text="Share")
    await walk(page, share)
    await page.keyboard.press("Enter")
    await walk(page, page.get_by_role("button", name="Copy as curl"))
    await page.keyboard.press("Escape")
    await expect(share).to_be_focused()
    copies = page.get_by_role("button", name="Copy as curl")
    await expect(copies).to_be_hidden()
    # Also when the focus goes on, and when something else is pressed.
    await page.keyboard.press("Enter")
    await expect(copies).to_be_visible()
    await page.keyboard.press("Shift+Tab")
    await expect(copies).to_be_hidden()
    await share.click()
    await expect(copies).to_be_visible()
    await page.get_by_role("heading", level=1).click()
    await expect(copies).to_be_hidden()


async def test_who_comes_with_tab_skips_to_the_page(there: Office) -> None:
    page = await come_in(there)
    await page.reload()
    await page.get_by_text("Connected", exact=True).wait_for()
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("button", name="Skip to the page")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#main")).to_be_focused()
