"""Tests of the broker: each command has one rule, and commands of an ended session or with a fault are refused."""

from itertools import count
from typing import Any

import msgspec
import pytest

from tests.core.doubles import BrokerHarness, content
from tieline.contract import command as c
from tieline.contract.identifiers import MessageId, SessionId
from tieline.contract.objective import Unblock
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Done
from tieline.core.broker import SESSIONLESS
from tieline.core.rules import Rules

GONE = SessionId("a session that has ended")
COMMANDS: set[type[Any]] = set(c.COMMANDS)
VALUES: dict[str, Any] = {
    "session": GONE,
    "change": Unblock(),
    "content": content("@alice"),
    "message_id": MessageId("0"),
    "ranges": (),
    "events": (),
    "first": 1,
    "last": 1,
    "start": 0,
    "busy": True,
}
"""Values for required fields of commands, by name of the field. Fields that are not here get a text."""


def of_a_session_that_has_ended(kind: type[Any]) -> c.Command:
    needed = [field.name for field in msgspec.structs.fields(kind) if field.required]
    made: c.Command = kind(**{name: VALUES.get(name, "text") for name in needed})
    return made


def test_every_command_has_one_rule(harness: BrokerHarness) -> None:
    assert set(harness.broker._rules) == COMMANDS
    decided = [kind for owner in Rules.__subclasses__() for kind in owner._names]
    assert len(decided) == len(set(decided)), "no command has two rules"
    assert not SESSIONLESS & set(decided)


@pytest.mark.parametrize("kind", sorted(COMMANDS - SESSIONLESS, key=str))
def test_a_session_that_has_ended_is_refused_whatever_it_asks(harness: BrokerHarness, kind: type[Any]) -> None:
    reply = harness.ask(of_a_session_that_has_ended(kind))
    if kind in (c.Offered, c.Detach):
        assert isinstance(reply, Done)
    else:
        assert isinstance(reply, Refusal)
        assert reply.code is Code.UNKNOWN_SESSION
    assert not harness.outcome.urgent


def test_a_command_that_fails_only_when_it_is_handled_again_is_refused_like_the_one_that_failed_before_it(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.add("alice")
    harness.add("bob")
    alice, accept, calls = harness.attach("alice"), harness.store.accept, count(1)

    def accept_or_raise(*values: Any) -> None:
        # The third message first. Then the broker rolls back and handles the first two again, and the second fails.
        if next(calls) in (3, 5):
            raise RuntimeError("a bug")
        accept(*values)

    monkeypatch.setattr(harness.store, "accept", accept_or_raise)
    outcome = harness.handle([c.Send(alice, content=content("@bob", body)) for body in ("one", "two", "three", "four")])
    assert [type(reply) for reply in outcome.replies] == [Accepted, Refusal, Refusal]
    assert [fault.index for fault in outcome.faults] == [1, 2]
    assert [post.message.content.body for post in outcome.posts] == ["one"]
