"""Tests of the hub's refusals, and of the errors that the SDK raises for them."""

import asyncio

import pytest

from tests.server.hubs import HubHarness, bodies, take
from tieline.client import HubRefused
from tieline.contract.member import MemberKind
from tieline.contract.refusal import Code


async def test_a_name_that_nobody_has_is_refused_with_the_nearest(there: HubHarness) -> None:
    alice = await there.join("alice")
    with pytest.raises(HubRefused) as caught:
        await alice.send("@bop", "hello")
    assert caught.value.code is Code.UNKNOWN_MEMBER
    assert caught.value.near == ("bob",)
    assert "bob" in str(caught.value)
    assert (await alice.send("@bob", "hello")).recipients == 1, "the session goes on"


@pytest.mark.parametrize(
    ("target", "body", "code"),
    [
        ("bob", "hello", Code.INVALID_TARGET),
        ("", "hello", Code.INVALID_TARGET),
        ("@", "hello", Code.INVALID_NAME),
        ("@all", "hello", Code.RESERVED_NAME),
        ("#nowhere", "hello", Code.UNKNOWN_CHANNEL),
        ("obj:1", "hello", Code.UNKNOWN_OBJECTIVE),
        ("@bob", "", Code.INVALID_MESSAGE),
    ],
)
async def test_a_bad_send_is_refused_with_its_code(there: HubHarness, target: str, body: str, code: Code) -> None:
    alice = await there.join("alice")
    with pytest.raises(HubRefused) as caught:
        await alice.send(target, body)
    assert caught.value.code is code


async def test_refusals_and_answers_find_their_requests(there: HubHarness) -> None:
    alice = await there.join("alice")
    outcomes = await asyncio.gather(
        *(alice.send("@bob" if number % 2 else "bob", str(number)) for number in range(20)), return_exceptions=True
    )
    assert [isinstance(outcome, HubRefused) for outcome in outcomes] == [number % 2 == 0 for number in range(20)]


async def test_what_only_operators_may_do_is_forbidden_to_members(there: HubHarness) -> None:
    alice = await there.join("alice")
    for asking in (alice.add_member("mallory"), alice.remove_member("bob"), alice.rotate_token("bob")):
        with pytest.raises(HubRefused) as caught:
            await asking
        assert caught.value.code is Code.FORBIDDEN
    with pytest.raises(HubRefused) as caught:
        await alice.read_log()
    assert caught.value.code is Code.FORBIDDEN


async def test_a_token_that_is_wrong_opens_nothing(there: HubHarness) -> None:
    there.tokens["mallory"] = "tie_guessed"
    with pytest.raises(HubRefused) as caught:
        await there.join("mallory")
    assert caught.value.code is Code.UNAUTHORIZED


async def test_a_rotated_token_opens_and_the_old_one_does_not(there: HubHarness) -> None:
    alice = await there.join("alice")
    old = there.tokens["alice"]
    issued = await alice.rotate_token("alice")
    there.tokens["alice"] = issued.token
    assert len(await (await there.join("alice")).members()) == 3
    there.tokens["alice"] = old
    with pytest.raises(HubRefused):
        await there.join("alice")


async def test_the_operator_manages_members_and_cannot_send(there: HubHarness) -> None:
    operator = await there.operator()
    issued = await operator.add_member("dora", kind=MemberKind.HUMAN, permissions=("log.read",), token="d" * 20)
    assert (issued.member, issued.token) == ("dora", "d" * 20)
    members = {member.name: member for member in await operator.members()}
    assert (members["dora"].kind, members["dora"].permissions) == ("human", ("log.read",))
    with pytest.raises(HubRefused) as caught:
        await operator.send("@bob", "hello")
    assert caught.value.code is Code.FORBIDDEN
    with pytest.raises(HubRefused) as caught:
        await operator.add_member("Dora")
    assert caught.value.code is Code.NAME_TAKEN


async def test_a_removed_member_is_told_why_its_session_ends(there: HubHarness) -> None:
    bob = await there.join("bob", receive=True)
    operator = await there.operator()
    await operator.remove_member("bob")
    with pytest.raises(HubRefused, match="removed") as caught:
        await take(bob, 1)
    assert caught.value.code is Code.UNAUTHORIZED


async def test_pauses_are_for_people_and_what_is_held_meanwhile_comes_after_them(there: HubHarness) -> None:
    await there.add("hugo", kind=MemberKind.HUMAN)
    alice, hugo = await there.join("alice"), await there.join("hugo")
    bob = await there.join("bob", receive=True)
    await hugo.pause_thread("@alice+@bob")
    sent = await alice.send("@bob", "ping")
    assert sent.held.startswith("held: hugo paused @alice+@bob")
    (receipt,) = await alice.receipts(sent.id)
    assert (receipt.state, receipt.held) == ("pending", sent.held)
    await hugo.send("@bob", "from a person")
    assert bodies(await take(bob, 1)) == ["from a person"]
    assert (await bob.inbox()).held == 1
    (pause,) = await hugo.pauses()
    assert (pause.thread, pause.by, pause.held) == ("@alice+@bob", "hugo", 1)
    for asking in (alice.pauses(), alice.resume_thread("@alice+@bob"), alice.allow_thread("@alice+@bob")):
        with pytest.raises(HubRefused) as caught:
            await asking
        assert caught.value.code is Code.FORBIDDEN
    await hugo.allow_thread("@bob+@alice", 60_000)
    assert bodies(await take(bob, 1)) == ["ping"]
    (allowed,) = await hugo.pauses()
    assert allowed.allowed
    await hugo.resume_thread("@alice+@bob")
    assert await hugo.pauses() == ()
    await alice.send("@bob", "ping")
