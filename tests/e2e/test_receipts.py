"""Tests of the receipts in the console: a person sees the state of a message for each of its recipients."""

import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.e2e.browsers import ALL, Office
from tests.protocols.peerbus.peers import CONFIG, TOKEN, Bus, bus, envelope
from tests.server.hubs import take
from tieline.contract.member import MemberKind
from tieline.contract.message import Priority
from tieline.protocols.agent_channels import ChannelClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

UNSIGNED = f'[peerbus]\ntokens = ["{TOKEN}"]\n'
TIME = re.compile(r"^\d{1,2}:\d\d:\d\d(\s[AP]M)?$")


async def look_at(page: Page, words: str) -> Locator:
    """Click the message with these words in the live tail. Return the panel that shows its details."""
    await page.locator(".row", has_text=words).click()
    aside = page.get_by_label("Message", exact=True)
    await expect(aside).to_contain_text(words)
    return aside


def ladder(aside: Locator, member: str) -> Locator:
    """Return the part of a message's details with the receipt of one recipient."""
    return aside.locator(".receipt", has=aside.page.locator("h3", has_text=member))


async def test_each_recipient_has_a_ladder_of_times_protocols_and_evidence(there: Office) -> None:
    await there.there.add("carol")
    bob = await there.there.join("bob", receive=True)
    await there.over_ac7("alice", None, "the build is broken")
    await take(bob, 1, ack=True)
    await (await there.there.operator()).remove_member("carol")
    page = await there.enter()
    aside = await look_at(page, "the build is broken")
    await expect(aside.locator(".receipt h3")).to_have_text(
        [re.compile("bob *acked"), re.compile("carol *dead"), re.compile("root *pending")]
    )
    seen = ladder(aside, "bob").locator("li")
    await expect(seen.locator(".state")).to_have_text(["pending", "offered", "acked"])
    await expect(seen.locator("time")).to_have_text([TIME] * 3)
    await expect(seen.locator(".wire")).to_have_text(["ac7", "tieline", "tieline"])
    await expect(ladder(aside, "carol").locator("li").last).to_contain_text("member removed")
    await expect(ladder(aside, "root").locator(".state.pending").first).to_be_visible()
    # The members that have not seen the message are named in words that stand out.
    unseen = aside.get_by_text("Not seen by 2 of 3")
    usual = aside.locator("time").first
    looks = "one => { const {color, fontWeight} = getComputedStyle(one); return [color, Number(fontWeight)]; }"
    (colour, weight), (plain, light) = await unseen.evaluate(looks), await usual.evaluate(looks)
    assert colour != plain
    assert weight > light


async def test_what_came_too_late_is_shown_as_expired(there: Office) -> None:
    alice = await there.there.join("alice")
    sent = await alice.send("@bob", "only now", ttl_ms=100)
    page = await there.enter()
    while (await alice.receipts(sent.id))[0].state != "expired":
        await page.wait_for_timeout(50)
    aside = await look_at(page, "only now")
    await expect(aside.get_by_text("Not seen by 1 of 1")).to_be_visible()
    last = ladder(aside, "bob").locator("li").last
    await expect(last.locator(".state.expired")).to_be_visible()
    await expect(last.locator("time")).to_have_text(TIME)


async def test_what_a_translation_could_not_carry_is_noted(there: Office) -> None:
    folder = there.there.running.places["channels_dir"]
    assert folder is not None
    async with ChannelClient(Path(folder) / "inbox-root.sock") as client:
        client.send({"msg": "with more", "mood": "good"})
        await client.drain()
    page = await there.enter()
    await expect(page.locator(".row .mark")).to_have_text("not all carried")
    aside = await look_at(page, "with more")
    await expect(aside.locator(".note")).to_have_text("for agent-channels alone: mood")
    await expect(ladder(aside, "root").locator("li").first).to_contain_text("for agent-channels alone: mood")


async def test_one_click_nudges_resends_and_discards_beside_the_life_of_a_message_wherever_it_is(there: Office) -> None:
    root, alice, bob = [await there.there.join(name) for name in ("root", "alice", "bob")]
    page = await there.enter()
    # Nobody looks, so that no message is read meanwhile.
    await page.evaluate("Object.defineProperty(document, 'hidden', {get: () => true})")
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    for number, (path, kind) in enumerate(
        (("#/live", ".row"), ("#/talk/%40bob", ".turn"), ("#/search/keys", ".found"))
    ):
        sent = await root.send("@bob", f"where are the keys of door {number}")
        await page.goto(f"{there.url}/{path}")
        shown = page.locator(kind, has_text=f"door {number}").last
        await expect(shown.locator(".life .word")).to_have_text("sent")
        await shown.hover()
        await shown.get_by_role("button", name="Nudge").click()
        await expect(page.get_by_text("bob was nudged.")).to_be_visible()
        nudge = (await bob.history())[0]
        assert (nudge.sender, nudge.priority, nudge.reply_to) == ("root", Priority.URGENT, sent.id)
        assert nudge.body == f"Please look at message {sent.offset}: “where are the keys of door {number}”"
        shown = page.locator(kind, has_text=f"door {number}").filter(has_not_text="Please look").last
        await shown.hover()
        await shown.get_by_role("button", name="Resend").click()
        await expect(page.get_by_text("bob gets it again.")).to_be_visible()
        again = (await bob.history())[0]
        assert (again.body, again.supersedes) == (f"where are the keys of door {number}", sent.id)
        assert (await root.receipts(sent.id))[0].state == "expired"
        asked = await alice.send("@root", f"may I have the keys of gate {number}")
        await page.goto(f"{there.url}/{path.replace('bob', 'alice')}")
        if kind == ".found":
            await page.reload()
        shown = page.locator(kind, has_text=f"gate {number}")
        await shown.hover()
        await shown.get_by_role("button", name="Discard").click()
        await expect(page.get_by_text("You discarded it.")).to_be_visible()
        assert (await alice.receipts(asked.id))[0].state == "expired"
        await expect(shown.locator(".life.bad .word")).to_have_text("expired")
        await expect(shown.get_by_role("button", name="Discard")).to_have_count(0)


@contextlib.asynccontextmanager
async def visited(hub: Bus, browser: Browser) -> AsyncIterator[Office]:
    """Add the person root to a hub with peers (members on peerbus), and open an `Office` on it."""
    await hub.add("root", permissions=ALL, kind=MemberKind.HUMAN)
    built = Office(hub, browser)
    yield built
    await built.close()
    assert built.complaints == []


async def test_a_signature_is_shown_as_verified_failed_or_not_to_be_checked(folder: Path, browser: Browser) -> None:
    async with bus(folder / "signed", config=CONFIG) as hub, visited(hub, browser) as there:
        alice = await hub.peer("alice")
        await alice.say("root", "signed well")
        await alice.raw(envelope("alice", "root", "signed badly", secret="another secret of more than 32 bytes"))
        page = await there.enter()
        await signature(page, "signed well", "verified", marked=False)
        await signature(page, "signed badly", "failed", marked=True)
    async with bus(folder / "unsigned", config=UNSIGNED) as hub, visited(hub, browser) as there:
        alice = await hub.peer("alice")
        await alice.say("root", "signed somehow")
        await signature(await there.enter(), "signed somehow", "unverified", marked=False)


async def signature(page: Page, words: str, state: str, *, marked: bool) -> None:
    """Check the state of a message's signature in the console. `marked`: the live tail warns of the signature."""
    aside = await look_at(page, words)
    await expect(aside.locator("dt:text-is('Signature') + dd")).to_have_text(state)
    await expect(ladder(aside, "root").locator("li").first).to_contain_text(f"signature {state}")
    bad = page.locator(".row", has_text=words).locator(".mark.bad")
    await expect(bad).to_have_text([f"signature {state}"] if marked else [])
