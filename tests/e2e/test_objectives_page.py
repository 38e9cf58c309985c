"""Tests of the console's page of objectives, in a real browser."""

import asyncio
import re

import pytest
from playwright.async_api import FilePayload, Page, expect

from tests.e2e.browsers import Office, faults
from tieline.contract.objective import Block, Cancel, Complete, Reassign, Unblock

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def act(page: Page, button: str, *, submit: str | None = None, **fields: str) -> None:
    """Click a button, fill in the dialog that it opens, and submit the dialog.

    `submit` is the name of the dialog's button, if it differs from `button`.
    """
    await page.get_by_role("main").get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_role("dialog")
    for name, text in fields.items():
        field = dialog.locator(f"[name={name}]")
        if await field.evaluate("field => field.tagName") == "SELECT":
            await field.select_option(text)
        else:
            await field.fill(text)
    await dialog.get_by_role("button", name=submit or button, exact=True).click()
    await expect(dialog).to_have_count(0)


async def test_an_objective_goes_over_the_board(there: Office) -> None:
    page = await there.enter(path="#/objectives")
    await act(page, "New objective", submit="Create", title="Ship it", outcome="it is shipped", assignee="alice")
    await expect(page.get_by_role("heading", name="Ship it").first).to_be_visible()
    await act(page, "Block", reason="waiting for review")
    await expect(page.locator(".status.blocked")).to_be_visible()
    await expect(page.locator(".turn.event").last).to_contain_text("objective blocked: waiting for review")
    await page.get_by_label("Say something to Ship it").fill("who reviews?")
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(page.locator(".turn", has_text="who reviews?")).to_be_visible()
    alice = await there.there.join("alice")
    (objective,) = (await alice.objectives()).objectives
    event = {"kind": "llm_exchange", "entry": {"request": {"model": "m-1"}, "response": {"usage": {"inputTokens": 7}}}}
    await alice.record_activity(event)
    await alice.change_objective(objective.id, Unblock())
    await expect(page.locator(".status.active")).to_be_visible()
    await expect(page.locator(".exchange")).to_contain_text("m-1")
    await page.get_by_role("link", name="All objectives").click()
    await expect(page.get_by_label("active", exact=True)).to_contain_text("Ship it")


async def test_work_is_given_on_watched_completed_and_cancelled(there: Office) -> None:
    page = await there.enter(path="#/objectives")
    await page.get_by_role("button", name="New objective").click()
    dialog = page.get_by_role("dialog")
    for label, words in (("Title", "Tidy up"), ("Outcome", "all is tidy"), ("Details", "**soon**, please")):
        await dialog.get_by_label(label).fill(words)
    await dialog.get_by_label("Assignee").select_option("root")
    await dialog.get_by_role("checkbox", name="bob").check()
    await dialog.get_by_label("Files").set_input_files(
        [FilePayload(name="list.txt", mimeType="text/plain", buffer=b"dust")]
    )
    assert await faults(page) == []
    await dialog.get_by_role("button", name="Create").click()
    facts = page.locator(".sheet .facts")
    await expect(facts).to_contain_text("bob")
    await expect(page.locator(".sheet strong")).to_have_text("soon")
    async with page.expect_download() as waiting:
        await page.get_by_label("Files").get_by_role("link", name="list.txt").click()
    assert (await (await waiting.value).path()).read_bytes() == b"dust"
    await page.get_by_role("button", name="Watchers").click()
    await dialog.get_by_role("group", name="Remove").get_by_label("bob").check()
    await dialog.get_by_role("group", name="Add").get_by_label("alice").check()
    await dialog.get_by_role("button", name="Change").click()
    await expect(facts).to_contain_text(re.compile("Watchers.*alice"))
    await act(page, "Complete", result="no dust left")
    await expect(page.locator(".status.done")).to_be_visible()
    changes = page.locator(".turn.event")
    for words in ("assigned", "watcher added: alice", "watcher removed: bob", "completed: no dust left"):
        await expect(changes.filter(has_text=f"objective {words}")).to_have_count(1)
    await expect(page.get_by_role("main").get_by_role("button", name="Cancel objective")).to_have_count(0)
    await page.get_by_role("link", name="All objectives").click()
    await act(page, "New objective", submit="Create", title="Another", outcome="done", assignee="alice")
    await act(page, "Reassign", to="bob", note="alice is busy")
    await expect(changes.last).to_contain_text("objective reassigned: bob, alice is busy")
    await act(page, "Cancel objective")
    await expect(page.locator(".status.cancelled")).to_be_visible()


async def offered(page: Page, *names: str) -> None:
    """Check that the page has buttons for exactly these changes of an objective."""
    await expect(page.locator(".turn.event").first).to_contain_text("objective assigned")
    for name in ("Unblock", "Complete", "Block", "Change reason", "Reassign", "Watchers", "Cancel objective"):
        button = page.get_by_role("main").get_by_role("button", name=name, exact=True)
        await expect(button).to_have_count(int(name in names))


async def test_a_viewer_is_offered_what_the_hub_lets_it_do_and_no_more(there: Office) -> None:
    await there.there.add("chief", permissions=("objectives.create",))
    chief, root = await there.there.join("chief"), await there.there.join("root")
    made = await chief.create_objective("Ship it", "it is shipped", "alice", watchers=("bob",))
    path = f"#/objectives/{made.id}"
    pages = {name: await there.enter(name, path=path) for name in ("chief", "alice", "bob", "root")}
    await offered(pages["chief"], "Watchers", "Cancel objective")
    await offered(pages["alice"], "Complete", "Block")
    await offered(pages["bob"])
    await offered(pages["root"], "Block", "Reassign", "Watchers", "Cancel objective")
    await act(pages["alice"], "Block", reason="no keys")
    await offered(pages["alice"], "Unblock", "Complete", "Change reason")
    await act(pages["alice"], "Change reason", reason="no key for the door")
    await expect(pages["alice"].locator(".turn.event").last).to_contain_text("objective blocked: no key for the door")
    await root.change_objective(made.id, Reassign("bob"))
    await offered(pages["bob"], "Unblock", "Complete", "Change reason")
    await root.change_objective(made.id, Cancel())
    await expect(pages["bob"].locator(".status.cancelled")).to_be_visible()
    await offered(pages["bob"])


async def test_a_dialog_says_what_the_hub_refuses_and_gives_the_focus_back(there: Office) -> None:
    root = await there.there.join("root")
    made = await root.create_objective("Ship it", "it is shipped", "alice")
    page = await there.enter(path=f"#/objectives/{made.id}")
    button = page.get_by_role("button", name="Block")
    await button.focus()
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Block this objective")
    await expect(dialog.get_by_label("What blocks it?")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await expect(button).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(dialog.get_by_label("What blocks it?")).to_be_focused()
    await page.keyboard.insert_text("x" * 9000)
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(dialog.get_by_role("alert")).to_be_visible()


async def test_a_dialog_opens_again_right_after_it_was_closed(there: Office) -> None:
    root = await there.there.join("root")
    made = await root.create_objective("Ship it", "it is shipped", "alice")
    page = await there.enter(path=f"#/objectives/{made.id}")
    await page.get_by_role("button", name="Block").wait_for()
    # The dialog is hidden at once, and its close event comes in a later task. `requestClose` is what Escape does.
    opened = await page.evaluate(
        """async () => {
            const button = (within, text) =>
                [...document.querySelectorAll(`${within} button`)].find((one) => one.textContent === text);
            const settle = async () => { for (let step = 0; step < 10; step++) await Promise.resolve(); };
            const ways = [
                () => document.querySelector("dialog[open]").requestClose(),
                () => button("dialog", "Cancel").click(),
            ];
            const seen = [];
            for (const close of [...ways, ...ways]) {
                button("main", "Block").click();
                await settle();
                close();
                await settle();
                button("main", "Block").click();
                await settle();
                await new Promise((resolve) => setTimeout(resolve, 50));
                seen.push(document.querySelectorAll("dialog[open]").length);
                if (!seen.at(-1)) break;
                button("dialog", "Cancel").click();
                await settle();
            }
            return seen;
        }"""
    )
    assert opened == [1, 1, 1, 1]


async def test_what_is_blocked_on_the_viewer_comes_first(there: Office) -> None:
    root = await there.there.join("root")
    await there.there.add("chief", permissions=("objectives.create",))
    chief, alice, bob = [await there.there.join(name) for name in ("chief", "alice", "bob")]
    named = await chief.create_objective("Ask root", "asked", "alice")
    other = await chief.create_objective("Wait for rain", "wet", "bob")
    await alice.change_objective(named.id, Block("@root must say yes"))
    await bob.change_objective(other.id, Block("no clouds"))
    assert (await root.objectives()).objectives
    page = await there.enter(path="#/objectives")
    blocked = page.get_by_label("blocked", exact=True).locator(".card")
    await expect(blocked).to_have_count(2)
    await expect(blocked.first).to_contain_text("waiting for your answer")
    await expect(blocked.last).not_to_contain_text("waiting for your answer")
    await page.goto(f"{there.url}/#/members")
    first = page.locator("tbody tr").first
    await expect(first).to_contain_text("alice")
    await expect(first.get_by_role("link", name="Ask root").first).to_be_visible()


async def test_the_board_has_an_open_objective_however_many_came_after_it(there: Office) -> None:
    root = await there.there.join("root")
    first = await root.create_objective("The oldest", "it is done", "alice")
    await root.change_objective(first.id, Block("root must look at it"))
    await there.there.add("chief", permissions=("objectives.create",))
    # More than the hub tells at once, and more than one member may have open.
    makers = [root, await there.there.join("chief")]
    await asyncio.gather(
        *(makers[one % 2].create_objective(f"Another {one}", "it is done", "bob") for one in range(1001))
    )
    page = await there.enter(path="#/objectives")
    await expect(page.get_by_label("blocked", exact=True)).to_contain_text("The oldest")
    await expect(page.get_by_label("active", exact=True)).to_contain_text("and 501 older ones")
    await expect(page.get_by_text("1,002 that you may see")).to_be_visible()


async def test_a_card_says_where_its_objective_stands(there: Office) -> None:
    root, alice = await there.there.join("root"), await there.there.join("alice")
    first = await root.create_objective("Ship it", "**all** tests pass", "alice")
    second = await root.create_objective("Plan it", "a plan is there", "bob")
    bob = await there.there.join("bob")
    await bob.change_objective(second.id, Complete("see `plan.md`"))
    await alice.send(f"obj:{first.id}", "3 of 5 files are **done**")
    page = await there.enter(path="#/objectives")
    active = page.get_by_label("active", exact=True).locator(".card")
    await expect(active).to_contain_text("all tests pass")
    await expect(active).to_contain_text("alice: 3 of 5 files are done · just now")
    await expect(active).to_contain_text(re.compile(r"alice · open for \d+ s"))
    done = page.get_by_label("done", exact=True).locator(".card")
    await expect(done).to_contain_text("see plan.md")
    await page.get_by_label("Assignee").select_option("bob")
    await expect(active).to_have_count(0)
    await expect(done).to_have_count(1)
    await done.click()
    await page.get_by_role("link", name="All objectives").click()
    await expect(page.get_by_label("Assignee")).to_have_value("bob")
    assert await faults(page) == []


async def test_only_the_newest_ended_objectives_are_drawn_until_one_asks(there: Office) -> None:
    root = await there.there.join("root")
    for number in range(23):
        made = await root.create_objective(f"Work {number}", "it is done", "root")
        await root.change_objective(made.id, Complete("yes"))
    page = await there.enter(path="#/objectives")
    done = page.get_by_label("done", exact=True)
    await expect(done.locator(".card")).to_have_count(20)
    await expect(done.locator(".card").first).to_contain_text("Work 22")
    await expect(done).to_contain_text("and 3 older ones")
    await done.get_by_role("button", name="Show").click()
    await expect(done.locator(".card")).to_have_count(23)


async def test_an_objective_that_is_not_there_is_told(there: Office) -> None:
    page = await there.enter(path="#/objectives/nothing")
    await expect(page.get_by_text("There is no objective “nothing” that you may see.")).to_be_visible()
    await expect(page.get_by_role("heading", name="Objectives")).to_be_visible()


@pytest.mark.parametrize("width", [1280, 390])
async def test_a_long_name_breaks_no_dialog(there: Office, width: int) -> None:
    await there.there.add("a" * 60)
    page = await there.enter(path="#/objectives", viewport={"width": width, "height": 800})
    await page.get_by_role("button", name="New objective").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("checkbox", name="a" * 60)).to_be_visible()
    assert await dialog.evaluate("one => one.scrollWidth - one.clientWidth") <= 0
    beyond = await dialog.evaluate(
        """one => [...one.querySelectorAll("*")].filter((part) => part.checkVisibility()
            && part.getBoundingClientRect().right > one.getBoundingClientRect().right).map((part) => part.tagName)"""
    )
    assert beyond == []
