"""Tests of trust: use of another's name is refused with a code, is in the audit log, and harms nobody."""

from tests.protocols.agent_relay.relays import Relay
from tests.protocols.agent_relay.wire import frame, greeting, resumption, said
from tieline.contract.refusal import Code


async def test_a_spoofed_from_is_stamped_over_and_audited(relay: Relay) -> None:
    alice, bob, mallory = await relay.agents("alice", "bob", "mallory")
    await mallory.send(said("trust me", "bob", sender="alice"))
    heard = await bob.expect("DELIVER")
    assert (heard["from"], heard["payload"]["body"]) == ("mallory", "trust me")
    await mallory.send(frame("CHANNEL_MESSAGE", {"channel": "#general", "body": "me too"}, sender="alice"))
    assert (await bob.expect("CHANNEL_MESSAGE"))["from"] == "mallory"
    (row,) = await relay.refusals(Code.FORBIDDEN)
    assert (row.speaker, row.protocol) == ("mallory", "agent-relay")
    assert "from" in row.what
    await alice.expect("CHANNEL_MESSAGE")
    await alice.silent()
    await mallory.silent()


async def test_ones_own_name_in_from_is_no_spoof(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(said("it is me", "bob", sender="alice"), said("x", "nobody"))
    await bob.deliveries(1)
    assert [row.what for row in await relay.refusals(Code.UNKNOWN_MEMBER)] == ["Send"]
    assert not [event for event in await relay.events() if getattr(event, "code", "") == Code.FORBIDDEN]


async def test_a_stolen_resume_token_is_refused_and_audited(relay: Relay) -> None:
    bob = await relay.agent("bob")
    thief = await relay.dial()
    await thief.send(greeting("mallory", resume_token=bob.welcome["resume_token"]))
    assert (await thief.expect("ERROR"))["payload"]["code"] == "RESUME_TOO_OLD"
    assert (await thief.expect("WELCOME"))["payload"]["session_id"] != bob.welcome["session_id"]
    (row,) = await relay.refusals(Code.RESUME_REFUSED)
    assert (row.speaker, row.claimed, row.protocol) == ("", ("mallory",), "agent-relay")
    await bob.silent()
    again = await relay.agent("bob", resume_token=bob.welcome["resume_token"])
    assert again.welcome["session_id"] == bob.welcome["session_id"], "the token is as good as before"


async def test_a_replayed_resume_token_is_refused_and_audited(relay: Relay) -> None:
    await relay.add("carol")
    token = relay.tokens["carol"]
    carol = await relay.agent("carol", token=token)
    again = await relay.agent("carol", token=token, resume_token=carol.welcome["resume_token"])
    await again.silent()
    # Used before, and without the member's own token: it opens nothing.
    thief = await relay.dial()
    await thief.send(greeting("carol", resume_token=carol.welcome["resume_token"]))
    assert (await thief.failed())["code"] == "UNAUTHORIZED"
    # Used before, by one who has the member's token: it resumes nothing.
    other = await relay.dial()
    await other.send(resumption(carol, token=token, resume_token=carol.welcome["resume_token"]))
    assert (await other.expect("NACK"))["payload"]["code"] == "STALE"
    (row,) = await relay.refusals(Code.RESUME_REFUSED)
    assert (row.speaker, row.claimed, row.protocol) == ("", ("carol",), "agent-relay")
    await again.silent()


async def test_a_guessed_session_is_refused_and_audited(relay: Relay) -> None:
    bob = await relay.agent("bob")
    thief = await relay.dial()
    await thief.send(frame("RESUME", {"session_id": bob.welcome["session_id"], "agent": "mallory", "streams": {}}))
    assert (await thief.expect("NACK"))["payload"]["code"] == "STALE"
    (row,) = await relay.refusals(Code.RESUME_REFUSED)
    assert (row.speaker, row.claimed) == ("", ("mallory",))
    await bob.silent()


async def test_a_second_hello_is_refused_and_audited(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(greeting("bob"), resumption(bob))
    for kind in ("HELLO", "RESUME"):
        error = (await alice.expect("ERROR"))["payload"]
        assert (error["code"], error["message"], error["fatal"]) == ("BAD_REQUEST", f"Unexpected {kind}", False)
    await alice.send(said("still me", "bob"))
    assert (await bob.expect("DELIVER"))["from"] == "alice"
    rows = await relay.refusals(Code.INVALID_REQUEST)
    assert [(row.speaker, row.what) for row in rows] == [
        ("alice", "HELLO in an open session"),
        ("alice", "RESUME in an open session"),
    ]


async def test_a_send_before_hello_is_refused_and_audited(relay: Relay) -> None:
    bob, early = await relay.agent("bob"), await relay.dial()
    # Without a name in `from`; with one it is a request of a client that never says HELLO: see test_one_shot.py.
    sent = [said("psst", "bob") for _ in range(100)]
    await early.send(*sent)
    for one in sent:
        refused = await early.expect("ERROR")
        error = refused["payload"]
        assert (error["code"], error["message"], error["fatal"]) == ("BAD_REQUEST", "Not in ACTIVE state", False)
        assert refused["id"] == one["id"]
    (row,) = await relay.refusals(Code.INVALID_REQUEST)
    assert (row.speaker, row.protocol, row.what) == ("", "agent-relay", "SEND before HELLO")
    await bob.silent()
    await early.hello("alice")
    await early.silent()


async def test_a_name_owned_by_a_token_is_refused_and_audited(relay: Relay) -> None:
    await relay.add("carol")
    carol = await relay.agent("carol", token=relay.tokens["carol"])
    for wrong, code in (({}, Code.NAME_TAKEN), ({"token": "x" * 32}, Code.UNAUTHORIZED)):
        thief = await relay.dial()
        await thief.send(greeting("carol", **wrong))
        assert (await thief.failed())["code"] == "UNAUTHORIZED"
        (row,) = await relay.refusals(code)
        assert (row.claimed, row.protocol, row.what) == (("carol",), "agent-relay", "Attach")
    await carol.silent()


async def test_another_agents_inbox_is_refused_and_audited(relay: Relay) -> None:
    alice, _ = await relay.agents("alice", "bob")
    assert (await alice.ask("INBOX", {"agent": "bob"}))["payload"]["code"] == "FORBIDDEN"
    (row,) = await relay.refusals(Code.FORBIDDEN)
    assert (row.speaker, row.what) == ("alice", "INBOX")


async def test_what_is_kept_for_the_relay_or_for_two_is_refused_and_audited(relay: Relay) -> None:
    mallory = await relay.agent("mallory")
    for wrong, code in (
        (said("x", "_router"), Code.RESERVED_NAME),
        (frame("CHANNEL_MESSAGE", {"channel": "dm:alice:bob", "body": "x"}), Code.FORBIDDEN),
    ):
        await mallory.send(wrong)
        assert (await mallory.expect("ERROR"))["payload"]["code"] == "FORBIDDEN"
        (row,) = await relay.refusals(code)
        assert (row.speaker, row.what) == ("mallory", wrong["type"])


async def test_what_is_refused_again_and_again_fills_no_log(relay: Relay) -> None:
    mallory = await relay.agent("mallory")
    await mallory.send(*(frame("NEVER_HEARD_OF", sender=f"victim-{number}") for number in range(500)))
    await mallory.silent()
    assert len(await relay.refusals(Code.FORBIDDEN)) == 1
