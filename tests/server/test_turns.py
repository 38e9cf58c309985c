"""Tests of turns: order within a session, an equal share of time for each session, and small batches."""

from collections.abc import Sequence

from tieline.contract import command as c
from tieline.contract.identifiers import ChannelName, SessionId
from tieline.contract.member import Unnamed
from tieline.server.turns import Item, Turns, pieces

ADA, BOB = SessionId("ada"), SessionId("bob")


def acks(session: SessionId, count: int) -> list[c.Command]:
    return [c.Offered(session, first=key, last=key) for key in range(count)]


def reads(session: SessionId, count: int) -> list[c.Command]:
    return [c.ListMembers(session) for _ in range(count)]


def add(turns: Turns, commands: Sequence[c.Command]) -> None:
    for piece in pieces(commands):
        turns.put((piece, None))


def sessions(items: Sequence[Item]) -> list[str]:
    return [getattr(command, "session", "") for commands, _ in items for command in commands]


def test_what_one_session_asks_keeps_its_order_and_is_decided_whole_when_nobody_else_asks() -> None:
    turns = Turns(lambda _: ())
    add(turns, acks(ADA, 1000))
    items = turns.take(2048)
    assert [command.first for commands, _ in items for command in commands if isinstance(command, c.Offered)] == list(
        range(1000)
    )
    assert not turns


def test_who_asks_little_waits_for_a_share_of_who_asks_much() -> None:
    turns = Turns(lambda _: ())
    add(turns, acks(ADA, 10_000))
    add(turns, acks(BOB, 1))
    taken = sessions(turns.take(2048))
    assert taken.index(BOB) <= 256
    assert len(taken) <= 2048 + 256


def test_what_was_not_decided_goes_on_where_it_was() -> None:
    turns = Turns(lambda _: ())
    add(turns, acks(ADA, 600))
    add(turns, acks(BOB, 600))
    taken: list[str] = []
    rounds = 0
    while turns:
        taken += sessions(turns.take(512))
        rounds += 1
    assert (taken.count(ADA), taken.count(BOB)) == (600, 600)
    assert rounds > 1


def test_costly_commands_are_few_at_once_and_one_at_least() -> None:
    turns = Turns(lambda _: ())
    add(turns, reads(ADA, 10))
    assert len(sessions(turns.take(2048))) == 4
    assert len(sessions(turns.take(1))) == 1
    add(turns, [c.Subscribe(BOB, channel=ChannelName("dev")) for _ in range(1000)])
    assert len(sessions(turns.take(2048))) <= 2 + 2048 // 16 + 16


def test_a_session_that_ends_another_opens_after_all_that_was_asked_there_before_it_and_holds_nobody_else_up() -> None:
    newer = c.Attach(protocol="test", credential=Unnamed("newer", "here"), exclusive=True)
    other = c.Attach(protocol="test", credential=Unnamed("other", "here"), exclusive=True)
    turns = Turns(lambda command: (BOB, ADA) if command is newer else ())
    add(turns, acks(ADA, 1000))
    add(turns, acks(BOB, 600))
    turns.put(((newer,), None))
    turns.put(((other,), None))
    add(turns, acks(ADA, 300))
    order: list[c.Command] = []
    while turns:
        order += [command for commands, _ in turns.take(300) for command in commands]
    before = sessions([(order[: order.index(newer)], None)])
    assert before.count(BOB) == 600
    assert 1000 <= before.count(ADA) < 1300
    assert order.index(other) <= 512, "it ends nobody"
    assert len(order) == 1902


def test_pieces_are_all_of_it_in_order() -> None:
    commands = [*acks(ADA, 300), *reads(ADA, 2), *acks(ADA, 3)]
    assert [command for piece in pieces(commands) for command in piece] == commands
    assert [len(piece) for piece in pieces(commands)] == [256, 44, 1, 1, 3]
    assert [list(piece) for piece in pieces(())] == [[]]


def test_a_drain_takes_all_but_what_stays_which_comes_first_afterwards() -> None:
    turns = Turns(lambda _: ())
    called: list[str] = []
    one, two = SessionId("one"), SessionId("two")
    add(turns, reads(one, 600))
    assert turns.take(1)
    end: c.Command = c.Detach(two)
    turns.put(((end,), None))
    turns.put(lambda: called.append("a function"))
    add(turns, acks(two, 1))
    drained = turns.drain(0, lambda item: item[0] == (end,))
    assert {type(command) for commands, _ in drained for command in commands} == {c.ListMembers, c.Offered}
    assert turns
    assert called == []
    assert turns.drain(0, lambda _: True) == []
    assert turns.take(10) == [((end,), None)]
    assert called == ["a function"]
    assert not turns
