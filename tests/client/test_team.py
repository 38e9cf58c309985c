"""Tests of the SDK's functions for objectives, channels, the team and activity, with a real hub."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.hubs import UNIX, WEBSOCKET, HubHarness, running_hub, take
from tieline.client import (
    Admit,
    Archive,
    Block,
    Cancel,
    Client,
    Complete,
    Enter,
    HubRefused,
    Reassign,
    Rename,
    Role,
    Status,
    Unblock,
    Watch,
    connect,
)
from tieline.contract.refusal import Code


@pytest.fixture
async def there(folder: Path) -> AsyncIterator[HubHarness]:
    async with running_hub(folder / "home") as there:
        yield there


async def _join(there: HubHarness, carrier: str, name: str, *permissions: str, receive: bool = False) -> Client:
    await there.add(name, permissions=permissions)
    return await there.join(name, carrier=carrier, receive=receive)


@pytest.mark.parametrize("carrier", [UNIX, WEBSOCKET])
async def test_an_objective_from_its_making_to_its_end(there: HubHarness, carrier: str) -> None:
    ada = await _join(there, carrier, "ada", "objectives.create", "objectives.reassign", receive=True)
    bob, cy = await _join(there, carrier, "bob", receive=True), await _join(there, carrier, "cy")
    async with ada, bob, cy:
        made = await ada.create_objective("ship it", "users have it", "bob", body="all", watchers=("cy",))
        assert (made.status, made.assignee, made.originator, made.watchers) == ("active", "bob", "ada", ("cy",))
        assert (await bob.change_objective(made.id, Block("stuck"))).block_reason == "stuck"
        await bob.change_objective(made.id, Unblock())
        await cy.send(f"obj:{made.id}", "how is it?")
        await ada.change_objective(made.id, Watch(remove=("cy",)))
        await ada.change_objective(made.id, Reassign("cy", "bob is away"))
        done = await cy.change_objective(made.id, Complete("it works"))
        assert (done.status, done.result) == ("done", "it works")
        story = await ada.objective(made.id)
        kinds = ["assigned", "watcher_added", "blocked", "unblocked", "watcher_removed", "reassigned", "completed"]
        assert [event.what.__struct_config__.tag for event in story.events] == kinds
        assert story.complete
        heard = [delivery.message for delivery in await take(ada, 8)]
        assert [message.data["event"]["kind"] for message in heard if message.data] == kinds
        assert [message.body for message in heard if message.data is None] == ["how is it?"]
        assert [found.id for found in (await bob.objectives()).objectives] == []
        assert [found.id for found in (await ada.objectives(statuses=(Status.DONE,))).objectives] == [made.id]
        with pytest.raises(HubRefused) as refused:
            await ada.change_objective(made.id, Cancel())
        assert refused.value.code is Code.OBJECTIVE_ENDED
        with pytest.raises(HubRefused) as refused:
            await bob.objective(made.id)
        assert refused.value.code is Code.UNKNOWN_OBJECTIVE


@pytest.mark.parametrize("carrier", [UNIX, WEBSOCKET])
async def test_a_channel_from_its_making_to_its_end(there: HubHarness, carrier: str) -> None:
    async with await _join(there, carrier, "ada") as ada, await _join(there, carrier, "bob", receive=True) as bob:
        made = await ada.create_channel("#dev")
        assert [(member.name, member.role) for member in made.members] == [("ada", Role.ADMIN)]
        await bob.change_channel("dev", Enter())
        await ada.send("#dev", "hello")
        assert (await take(bob, 1))[0].message.body == "hello"
        await ada.change_channel("dev", Admit("bob", Role.ADMIN))
        await bob.change_channel("dev", Rename("design"))
        assert (await ada.channel(made.id)).name == "design"
        assert [(view.name, view.id) for view in await ada.channels()] == [("design", made.id), ("general", "general")]
        archived = await ada.change_channel("design", Archive())
        assert archived.archived_at_ms is not None
        with pytest.raises(HubRefused) as refused:
            await ada.send("#design", "too late")
        assert refused.value.code is Code.CHANNEL_ARCHIVED
        assert [message.body for message in await bob.history(f"chan:{made.id}")] == ["hello"]


async def test_members_tokens_and_the_team(there: HubHarness) -> None:
    mo = await _join(there, UNIX, "mo", "members.manage", "team.manage")
    bob = await _join(there, UNIX, "bob")
    async with mo, bob:
        changed = await mo.update_member("bob", permissions=("activity.read",), title="reviewer", instructions="review")
        assert (changed.permissions, changed.title, changed.instructions) == (
            ("activity.read",),
            "reviewer",
            "review",
        )
        issued = await bob.issue_token("bob", label="laptop")
        assert [view.label for view in await mo.tokens("bob")] == ["", "laptop"]
        async with await connect(token=issued.token, home=there.home) as laptop:
            await laptop.set_busy()
            (seen,) = [member for member in await mo.members() if member.name == "bob"]
            assert (seen.busy, seen.title, len(seen.sessions)) == (True, "reviewer", 2)
            await mo.revoke_token("bob", issued.view.id)
            with pytest.raises(HubRefused):
                await laptop.members()
        assert len(await bob.members()) == 2
        await mo.update_team(name="us", directive="ship", presets={"lead": ("team.manage",)})
        told = await bob.team()
        assert (told.name, told.directive, told.presets) == ("us", "ship", {"lead": ("team.manage",)})
        with pytest.raises(HubRefused) as refused:
            await bob.update_team(name="mine")
        assert refused.value.code is Code.FORBIDDEN


@pytest.mark.parametrize("carrier", [UNIX, WEBSOCKET])
async def test_activity_is_reported_read_and_followed(there: HubHarness, carrier: str) -> None:
    ada, bob = await _join(there, carrier, "ada"), await _join(there, carrier, "bob", "activity.read")
    async with ada, bob:
        await bob.follow_activity("ada")
        assert await ada.record_activity({"kind": "llm", "ts": 5}, {"kind": "http", "password": "hunter2"}) == 2
        async with asyncio.timeout(10):
            did = await anext(bob.doings())
        assert [(row.member, row.kind, row.event.get("password")) for row in did.rows] == [
            ("ada", "llm", None),
            ("ada", "http", "[redacted]"),
        ]
        assert did.missed == 0
        rows = await bob.activity("ada", kinds=("llm",))
        assert [(row.ts_ms, row.event) for row in rows] == [(5, {"kind": "llm", "ts": 5})]
        with pytest.raises(HubRefused) as refused:
            await ada.activity("bob")
        assert refused.value.code is Code.FORBIDDEN
        with pytest.raises(HubRefused) as refused:
            await ada.record_activity()
        assert refused.value.code is Code.INVALID_REQUEST


async def test_requests_after_an_upload_do_not_wait_for_it_and_all_are_answered(there: HubHarness) -> None:
    async with await _join(there, UNIX, "ada") as ada:
        uploads = [ada.record_activity({"n": number, "text": "x" * 10_000}) for number in range(50)]
        sends = [ada.send("@ada", f"{number}") for number in range(50)]
        answers = await asyncio.gather(*(one for pair in zip(uploads, sends, strict=True) for one in pair))
        assert len(answers) == 100
        assert len(await ada.activity("ada", limit=100)) == 50


async def test_invitations_are_made_listed_and_revoked(there: HubHarness) -> None:
    ada = await _join(there, UNIX, "ada", "members.manage")
    async with ada:
        made = (await ada.invite(uses=2)).view
        assert made in await ada.invitations()
        await ada.revoke_invitation(made.id)
        assert made.id not in [one.id for one in await ada.invitations()]
