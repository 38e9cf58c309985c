"""The Store port, sentence by sentence, over every implementation.

A store joins by one line in `STORES`. The tests know the port alone: each says what a docstring of it says.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.core.doubles import content
from tieline.contract import objective as o
from tieline.contract.channel import ChannelId, Role
from tieline.contract.delivery import Fall, State, Step
from tieline.contract.event import (
    Acknowledged,
    Claimed,
    Delivered,
    Event,
    Expired,
    Fell,
    LogRow,
    Moved,
    ObjectiveChanged,
    Sent,
    Subscribed,
)
from tieline.contract.identifiers import ChannelName, MemberName, MessageId
from tieline.contract.member import Member, MemberKind, Origin
from tieline.contract.message import Attachment, Content, Level, Message, Priority
from tieline.contract.target import EVERYBODY
from tieline.core.inbox import Image
from tieline.core.ladder import STATES
from tieline.core.ledger import GENESIS, Ledger, digest, encode_content
from tieline.core.store import (
    ChannelRow,
    Chronicle,
    Foundation,
    MemberImage,
    MemberRow,
    MovedReplay,
    ObjectiveQuery,
    ObjectiveRow,
    Route,
    SentReplay,
    Span,
    Store,
    StoreError,
    Subscription,
    TokenRow,
)
from tieline.stores.memory import MemoryStore
from tieline.stores.sqlite import SqliteStore

PAGE_BYTES = 1 << 30
"""More than any test stores."""

Opener = Callable[[], Store]


def memory(_folder: Path) -> Opener:
    store = MemoryStore()
    return lambda: store


def sqlite(folder: Path) -> Opener:
    return lambda: SqliteStore(folder, synchronous="OFF")


STORES: dict[str, Callable[[Path], Opener]] = {"memory": memory, "sqlite": sqlite}


_UNBLOCKED = o.Unblocked()


class Writer:
    """Writes as the broker does: with a ledger, and with messages made of little."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self.reopen()

    def reopen(self) -> Foundation:
        """Open the store, and take up the log where it was committed."""
        self.store = self._opener()
        return self.restore()

    def restore(self) -> Foundation:
        foundation = self.store.restore()
        self.ledger = Ledger(foundation.log_end, foundation.log_head)
        return foundation

    def crash(self) -> Foundation:
        """Close without a commit, and open again."""
        self.store.close()
        return self.reopen()

    def accept(
        self,
        said: Content | str = "@bob",
        route: Route | None = None,
        *,
        sender: str = "ada",
        protocol: str = "hub",
        wire_id: str | None = None,
        at_ms: int = 1000,
        message_id: str | None = None,
    ) -> Message:
        what = content(said) if isinstance(said, str) else said
        route = route or Route([2], [1], [1])
        message = Message(
            id=MessageId(message_id or f"m-{self.ledger.end}"),
            offset=self.ledger.end,
            sender=sender,
            protocol=protocol,
            sent_at_ms=at_ms,
            content=what,
            wire_id=wire_id,
        )
        encoded = encode_content(what)
        event = Sent(message.id, sender, str(what.target), len(route.keys), digest(encoded))
        self.store.accept(self.ledger.append(event, at_ms), message, encoded, route.pack())
        return message

    def advance(
        self, kind: type[Moved], *ranges: tuple[int, int], number: int = 2, at_ms: int = 2000, **fields: Any
    ) -> None:
        row = self.ledger.append(kind("bob", number, ranges, **fields), at_ms)
        self.store.advance(row, number, STATES[kind], ranges)

    def fall(self, *ranges: tuple[int, int], way: str, after: str, at_ms: int = 2000, number: int = 2) -> None:
        row = self.ledger.append(Fell("bob", number, ranges, way, after), at_ms)
        self.store.fall(row, number, ranges)

    def change(self, row: ObjectiveRow, what: o.AnyHappening = _UNBLOCKED) -> o.ObjectiveEvent:
        event = o.ObjectiveEvent(self.ledger.end, 600, MemberName("ada"), what)
        said = ObjectiveChanged(row.objective.id, "unblocked", "ada", row.objective.status, "bob", "", "")
        self.store.objectives.change(self.ledger.append(said, 600), row, event)
        return event

    def record(self, event: Event | None = None) -> LogRow:
        row = self.ledger.append(event or Subscribed("ada", "dev"), 500)
        self.store.record(row)
        return row


@pytest.fixture(params=sorted(STORES))
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Open the same store each time."""
    return STORES[request.param](tmp_path / "home")


@pytest.fixture
def writer(opener: Opener) -> Iterator[Writer]:
    """Give a writer on an empty store."""
    writer = Writer(opener)
    yield writer
    writer.store.close()


def member(number: int, name: str, **fields: Any) -> MemberRow:
    return MemberRow(number, Member(MemberName(name), **fields))


def token(mark: int, number: int) -> TokenRow:
    return TokenRow(bytes([mark]) * 32, number, 5, id=f"token-{mark}")


def channel(channel_id: str, name: str, archived_at_ms: int | None = None) -> ChannelRow:
    return ChannelRow(ChannelId(channel_id), ChannelName(name), "ada", 5, archived_at_ms, (Span(f"#{name}", 3),))


def subscription(channel_id: str, number: int, role: Role = Role.MEMBER) -> Subscription:
    return Subscription(ChannelId(channel_id), number, role, 8)


def objective(serial: int, *parties: int, status: o.Status = o.Status.ACTIVE, **fields: Any) -> ObjectiveRow:
    made = o.Objective(
        id=o.ObjectiveId(f"obj-{serial}"),
        title="title",
        outcome="outcome",
        assignee=MemberName("bob"),
        originator=MemberName("ada"),
        created_at_ms=1,
        updated_at_ms=2,
        status=status,
        **fields,
    )
    return ObjectiveRow(serial, made, parties or (2, 1))


def image(number: int, base: int = 1, streams: dict[str, int] | None = None) -> MemberImage:
    inbox = Image(base, b"\x01" * 16, b"\x02" * 16, b"\x00\x02")
    return MemberImage(number, inbox, streams or {"ada\x1f": 2}, last_seen_ms=77)


def same(foundation: Foundation) -> dict[str, Any]:
    """A foundation without the order of its rows."""
    return {
        "members": sorted(foundation.members, key=lambda row: row.number),
        "tokens": sorted(foundation.tokens, key=lambda row: row.digest),
        "settings": foundation.settings,
        "channels": sorted(foundation.channels, key=lambda row: row.id),
        "subscriptions": sorted(foundation.subscriptions, key=lambda one: (one.channel, one.number)),
        "objectives": sorted(foundation.objectives, key=lambda row: row.serial),
        "images": sorted(foundation.images, key=lambda row: row.number),
        "rest": (
            foundation.snapshot_end,
            foundation.log_end,
            foundation.log_head,
            foundation.next_number,
            foundation.next_serial,
        ),
    }


def route_of(route: Route) -> tuple[list[int], list[int], list[int]]:
    return list(route.numbers), list(route.keys), list(route.stream_seqs)


# Writes are buffered and become durable together, all or none


def write_everything(writer: Writer) -> None:
    """One of each write."""
    store = writer.store
    store.save_member(member(1, "ada"))
    store.save_member(member(2, "bob"))
    store.save_token(TokenRow(b"d" * 32, 1, 5))
    store.save_setting("team", b"one")
    store.channels.save(channel("c", "dev"))
    store.channels.join(subscription("c", 1))
    writer.accept(wire_id="w")
    writer.advance(Acknowledged, (1, 1))
    writer.change(objective(1))
    store.save_snapshot([image(1)], writer.ledger.end)


def test_an_empty_store_gives_an_empty_foundation(writer: Writer) -> None:
    assert same(writer.restore()) == same(Foundation())
    assert list(writer.store.replay(0)) == []
    assert list(writer.store.expiring()) == []
    assert list(writer.store.read_log(0, 10)[0]) == []


@pytest.mark.parametrize("how", ["restore", "crash"])
def test_what_was_not_committed_is_gone_as_a_whole(writer: Writer, how: str) -> None:
    write_everything(writer)
    foundation = getattr(writer, how)()
    assert same(foundation) == same(Foundation())
    store = writer.store
    assert store.find_wire_id("ada", "hub", "w") is None
    assert store.find_message(MessageId("m-0")) is None
    assert store.messages([0], PAGE_BYTES)[0] == {}
    assert list(store.steps(2, 1)) == []
    assert list(store.read_log(0, 10)[0]) == []


@pytest.mark.parametrize("how", ["restore", "crash"])
def test_what_was_committed_is_there_as_a_whole(writer: Writer, how: str) -> None:
    write_everything(writer)
    writer.store.commit()
    head = writer.ledger.head
    foundation = getattr(writer, how)()
    assert same(foundation) == same(
        Foundation(
            members=[member(1, "ada"), member(2, "bob")],
            tokens=[TokenRow(b"d" * 32, 1, 5)],
            settings={"team": b"one"},
            channels=[channel("c", "dev")],
            subscriptions=[subscription("c", 1)],
            objectives=[objective(1)],
            next_serial=2,
            images=[image(1)],
            snapshot_end=3,
            log_end=3,
            log_head=head,
            next_number=3,
        )
    )
    store = writer.store
    assert store.find_wire_id("ada", "hub", "w") is not None
    assert [step.state for step in store.steps(2, 1)] == [State.ACKED]
    assert len(store.read_log(0, 10)[0]) == 3


def test_dropping_what_is_buffered_leaves_what_was_committed_before_untouched(writer: Writer) -> None:
    write_everything(writer)
    writer.store.commit()
    before = same(writer.restore())
    store = writer.store
    store.drop_member(2, 9)
    store.save_token(token(7, 1))
    store.save_setting("team", b"two")
    store.drop_token(b"d" * 32)
    store.channels.leave(ChannelId("c"), 1)
    store.channels.drop(ChannelId("c"))
    store.channels.save(channel("d", "ops"))
    writer.change(objective(1, status=o.Status.DONE))
    writer.change(objective(2))
    store.save_member(member(3, "cy"))
    writer.accept(wire_id="w2")
    writer.advance(Delivered, (2, 2))
    store.save_snapshot([image(1, base=9)], writer.ledger.end)
    store.prune(10**9, frozenset(), 10)
    for _ in range(2):
        assert same(writer.restore()) == before
        assert store.find_message(MessageId("m-0")) is not None
        assert store.find_wire_id("ada", "hub", "w") is not None


def test_committing_nothing_is_no_error(writer: Writer) -> None:
    writer.store.commit()
    writer.store.commit()
    assert same(writer.restore()) == same(Foundation())


def test_closing_loses_what_was_not_committed_and_nothing_else(writer: Writer) -> None:
    writer.record()
    writer.store.commit()
    writer.record()
    assert writer.crash().log_end == 1


# Reads see buffered writes


def test_reads_see_what_is_buffered(writer: Writer) -> None:
    store = writer.store
    store.save_member(member(1, "ada"))
    store.save_member(member(2, "bob"))
    message = writer.accept(wire_id="w")
    writer.advance(Delivered, (1, 1), session="s", protocol="hub")
    assert store.messages([message.offset], PAGE_BYTES)[0] == {message.offset: message}
    found = store.find_message(message.id)
    assert found is not None
    assert found[0] == message
    known = store.find_wire_id("ada", "hub", "w")
    assert known is not None
    assert (known.message_id, known.offset, known.recipients) == (message.id, message.offset, 1)
    assert known.digest == digest(encode_content(message.content))
    assert list(store.steps(2, 1)) == [Step(State.OFFERED, 2000, "s", "hub")]
    assert store.names([1, 2]) == {1: "ada", 2: "bob"}
    chronicle = Chronicle(reader="ada", since=0, before=None, limit=10, bytes_max=PAGE_BYTES)
    assert list(store.history(chronicle)) == [message]


def test_reads_see_what_is_buffered_between_other_writes_and_after_the_commit(writer: Writer) -> None:
    for turn in range(3):
        message = writer.accept(wire_id=f"w{turn}")
        assert set(writer.store.messages(range(turn + 1), PAGE_BYTES)[0]) == set(range(turn + 1))
        assert writer.store.find_wire_id("ada", "hub", f"w{turn}") is not None
        if turn == 1:
            writer.store.commit()
        assert writer.store.find_message(message.id) is not None


# The main log


def test_a_gap_in_the_log_is_refused(writer: Writer) -> None:
    writer.record()
    with pytest.raises(StoreError):
        writer.store.record(LogRow(2, 0, b"{}", GENESIS))


def test_a_row_that_is_there_already_is_refused(writer: Writer) -> None:
    row = writer.record()
    with pytest.raises(StoreError):
        writer.store.record(row)


def test_the_log_goes_on_where_it_was_committed(writer: Writer) -> None:
    writer.record()
    writer.store.commit()
    writer.record()
    writer.restore()
    with pytest.raises(StoreError):
        writer.store.record(LogRow(2, 0, b"{}", GENESIS))
    writer.restore()
    writer.record()
    writer.store.commit()
    assert writer.restore().log_end == 2


def test_after_an_exception_what_was_buffered_is_gone_even_if_somebody_commits(writer: Writer) -> None:
    writer.record()
    writer.store.commit()
    writer.store.save_member(member(1, "ada"))
    writer.record()
    with pytest.raises(StoreError):
        writer.store.record(LogRow(99, 0, b"{}", GENESIS))
    with suppress(StoreError):
        writer.store.commit()
    foundation = writer.restore()
    assert foundation.log_end == 1
    assert list(foundation.members) == []


def test_a_reader_of_the_log_gets_committed_rows_only(writer: Writer) -> None:
    first = writer.record()
    writer.store.commit()
    writer.accept()
    writer.store.messages([1], PAGE_BYTES)[0]  # makes a store with a buffer show it to its own reads
    assert list(writer.store.read_log(0, 10)[0]) == [first]
    writer.store.commit()
    assert len(writer.store.read_log(0, 10)[0]) == 2


def test_a_log_is_read_from_any_offset_on_up_to_a_limit(writer: Writer) -> None:
    rows = [writer.record() for _ in range(5)]
    writer.store.commit()
    for start, limit in ((0, 10), (0, 2), (3, 10), (4, 1), (5, 10), (9, 10)):
        read, end = writer.store.read_log(start, limit)
        assert list(read) == rows[start : start + limit]
        assert end == 5


def test_the_replay_tells_messages_and_moves_in_order_and_nothing_else(writer: Writer) -> None:
    writer.record()
    writer.accept(content("@bob", topic="build"), Route([2, 3], [1, 4], [1, 9]))
    writer.advance(Delivered, (1, 3), (5, 5), mute=True)
    writer.advance(Claimed, (1, 1))
    writer.record()
    writer.advance(Expired, (2, 2), number=3)
    writer.store.commit()
    replay = list(writer.store.replay(0))
    sent = replay.pop(0)
    assert isinstance(sent, SentReplay)
    assert (sent.offset, sent.sender, sent.topic) == (1, "ada", "build")
    assert route_of(sent.route) == ([2, 3], [1, 4], [1, 9])
    moved = [(m.number, tuple(map(tuple, m.ranges)), m.state, m.mute) for m in replay if isinstance(m, MovedReplay)]
    assert moved == [
        (2, ((1, 3), (5, 5)), State.OFFERED, True),
        (2, ((1, 1),), State.ACKED, False),
        (3, ((2, 2),), State.EXPIRED, False),
    ]
    assert len(replay) == 3


@pytest.mark.parametrize(("start", "count"), [(0, 3), (1, 2), (2, 1), (3, 0)])
def test_the_replay_begins_where_it_is_told_to(writer: Writer, start: int, count: int) -> None:
    writer.accept()
    writer.advance(Delivered, (1, 1))
    writer.advance(Acknowledged, (1, 1))
    writer.store.commit()
    assert len(list(writer.store.replay(start))) == count


# Messages


def test_a_message_is_kept_with_all_its_fields(writer: Writer) -> None:
    said = Content(
        target=EVERYBODY,
        body="body\x00 with ünïcode 🙂",
        data={"nested": [1, 2.5, None, True, {"k": "v"}], "big": 2**60, "": {}},
        title="t",
        level=Level.ERROR,
        priority=Priority.URGENT,
        topic="top\x1fic",
        scope="s",
        thread="th",
        reply_to=MessageId("r"),
        refs=("a", "b"),
        attachments=(Attachment("p", "n", 3, "text/plain"),),
        ttl_ms=5,
        original=b"\x00\xff raw",
        notes=("lost its colour",),
    )
    message = Message(
        id=MessageId("m-0"),
        offset=0,
        sender="client-1@dev",
        protocol="agent-channels",
        sent_at_ms=123,
        content=said,
        wire_id="w",
        verified=False,
        hops=3,
        cause=MessageId("c"),
    )
    encoded = encode_content(said)
    row = writer.ledger.append(Sent("m-0", "client-1@dev", "*", 2, digest(encoded)), 123)
    writer.store.accept(row, message, encoded, Route([1, 2], [7, 8], [3, 4]).pack())
    for _ in range(2):
        found = writer.store.find_message(MessageId("m-0"))
        assert found is not None
        assert found[0] == message
        assert route_of(found[1]) == ([1, 2], [7, 8], [3, 4])
        assert writer.store.messages([0], PAGE_BYTES)[0] == {0: message}
        writer.store.commit()
        writer.crash()


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.text(min_size=1), data=st.none() | st.dictionaries(st.text(max_size=3), json_values, max_size=3))
def test_whatever_json_can_say_comes_back_as_it_was(writer: Writer, body: str, data: dict[str, Any] | None) -> None:
    message = writer.accept(Content(target=EVERYBODY, body=body, data=data))
    found = writer.store.messages([message.offset], PAGE_BYTES)[0][message.offset]
    assert (found.content.body, found.content.data) == (body, data)


def test_messages_are_found_by_offset_and_the_missing_are_missing(writer: Writer) -> None:
    first, _, second = writer.accept(), writer.record(), writer.accept()
    assert writer.store.messages([0, 1, 2, 3], PAGE_BYTES)[0] == {0: first, 2: second}
    assert writer.store.messages([], PAGE_BYTES)[0] == {}


def test_a_message_without_recipients_is_kept(writer: Writer) -> None:
    message = writer.accept(route=Route([], [], []))
    writer.store.commit()
    writer.crash()
    found = writer.store.find_message(message.id)
    assert found is not None
    assert route_of(found[1]) == ([], [], [])


def test_a_message_that_never_was_is_not_found(writer: Writer) -> None:
    assert writer.store.find_message(MessageId("nothing")) is None
    assert writer.store.find_wire_id("ada", "hub", "nothing") is None


def test_deadlines_of_messages_with_a_time_to_live_are_told(writer: Writer) -> None:
    writer.accept(content("@bob"))
    writer.accept(content("@bob", ttl_ms=50), Route([2, 3], [2, 1], [1, 1]), at_ms=1000)
    writer.store.commit()
    writer.crash()
    assert [(deadline, route_of(route)) for deadline, route in writer.store.expiring()] == [
        (1050, ([2, 3], [2, 1], [1, 1]))
    ]


# Wire ids


def test_a_wire_id_belongs_to_a_sender_and_a_protocol(writer: Writer) -> None:
    ids = {
        writer.accept(wire_id="1", sender="ada", protocol="hub").id,
        writer.accept(wire_id="1", sender="bob", protocol="hub").id,
        writer.accept(wire_id="1", sender="ada", protocol="peerbus").id,
    }
    writer.store.commit()
    found = [
        writer.store.find_wire_id(*key) for key in (("ada", "hub", "1"), ("bob", "hub", "1"), ("ada", "peerbus", "1"))
    ]
    assert {known.message_id for known in found if known} == ids
    assert writer.store.find_wire_id("bob", "peerbus", "1") is None


@pytest.mark.parametrize("read_before_the_commit", [False, True])
@pytest.mark.parametrize("committed_between", [False, True])
def test_a_wire_id_that_is_not_new_is_refused_by_the_commit_at_the_latest(
    writer: Writer, committed_between: bool, read_before_the_commit: bool
) -> None:
    first = writer.accept(wire_id="1")
    if committed_between:
        writer.store.commit()

    def again() -> None:
        writer.accept(wire_id="1")
        if read_before_the_commit:
            writer.store.messages([0, 1], PAGE_BYTES)[0]
        writer.store.commit()

    with pytest.raises(StoreError):
        again()
    writer.restore()
    known = writer.store.find_wire_id("ada", "hub", "1")
    assert (known.message_id if known else None) == (first.id if committed_between else None)


def test_a_wire_id_whose_message_was_abandoned_is_new_again(writer: Writer) -> None:
    writer.accept(wire_id="1")
    writer.restore()
    assert writer.store.find_wire_id("ada", "hub", "1") is None
    kept = writer.accept(content("@bob", "kept"), wire_id="1", message_id="kept")
    writer.store.commit()
    known = writer.store.find_wire_id("ada", "hub", "1")
    assert known is not None
    assert known.message_id == kept.id


# Steps


def test_steps_are_told_in_order_with_their_evidence(writer: Writer) -> None:
    writer.accept()
    writer.advance(Delivered, (1, 3), at_ms=1, session="s1", protocol="hub", evidence="written")
    writer.advance(Acknowledged, (2, 2), at_ms=2, session="s2", protocol="ac7", evidence="ack")
    writer.advance(Acknowledged, (1, 1), (3, 3), at_ms=3)
    for _ in range(2):
        assert list(writer.store.steps(2, 2)) == [
            Step(State.OFFERED, 1, "s1", "hub", "written"),
            Step(State.ACKED, 2, "s2", "ac7", "ack"),
        ]
        assert [step.at_ms for step in writer.store.steps(2, 1)] == [1, 3]
        assert [step.at_ms for step in writer.store.steps(2, 3)] == [1, 3]
        assert list(writer.store.steps(2, 4)) == []
        assert list(writer.store.steps(3, 2)) == []
        writer.store.commit()
        writer.crash()


def test_falls_are_told_in_order(writer: Writer) -> None:
    writer.accept()
    writer.fall((1, 3), (7, 7), way="hook", after="push", at_ms=1)
    writer.fall((2, 2), way="notify", after="hook", at_ms=2)
    for _ in range(2):
        assert list(writer.store.falls(2, 2, 2)) == [Fall(1, 3, 1, "hook", "push"), Fall(2, 2, 2, "notify", "hook")]
        assert [fall.way for fall in writer.store.falls(2, 3, 9)] == ["hook", "hook"]
        assert list(writer.store.falls(2, 4, 6)) == []
        assert list(writer.store.falls(3, 1, 9)) == []
        writer.store.commit()
        writer.crash()


def test_a_fall_that_was_not_committed_never_was(writer: Writer) -> None:
    writer.accept()
    writer.store.commit()
    writer.fall((1, 1), way="hook", after="push")
    assert writer.crash().log_end == 1
    assert list(writer.store.falls(2, 1, 1)) == []


# Members, tokens, subscriptions


def test_a_member_is_kept_with_all_its_fields(writer: Writer) -> None:
    row = member(4, "ada", kind=MemberKind.HUMAN, permissions=("log.read", "x"), origin=Origin.LOCAL, created_at_ms=99)
    writer.store.save_member(row)
    writer.store.commit()
    foundation = writer.crash()
    assert list(foundation.members) == [row]
    assert foundation.next_number == 5


def test_a_member_saved_again_belongs_to_the_credential_that_it_then_has(writer: Writer) -> None:
    local = member(4, "ada", kind=MemberKind.HUMAN, origin=Origin.LOCAL, created_at_ms=99)
    writer.store.save_member(local)
    writer.store.commit()
    owned = member(4, "ada", kind=MemberKind.HUMAN, origin=Origin.TOKEN, created_at_ms=99)
    writer.store.save_member(owned)
    assert list(writer.crash().members) == [local]
    writer.store.save_member(owned)
    writer.store.commit()
    assert list(writer.crash().members) == [owned]


def test_a_dropped_member_loses_its_name_tokens_and_subscriptions_but_not_its_number(writer: Writer) -> None:
    store = writer.store
    store.channels.save(channel("c", "dev"))
    for number, name in ((1, "ada"), (2, "bob")):
        store.save_member(member(number, name))
        store.save_token(token(number, number))
        store.channels.join(subscription("c", number))
    store.save_snapshot([image(1), image(2)], 0)
    store.commit()
    store.drop_member(2, 9)
    store.commit()
    foundation = writer.crash()
    assert [row.number for row in foundation.members] == [1]
    assert [row.number for row in foundation.tokens] == [1]
    assert list(foundation.subscriptions) == [subscription("c", 1)]
    assert [row.number for row in foundation.images] == [1]
    assert foundation.next_number == 3
    assert writer.store.names([1, 2]) == {1: "ada", 2: "bob"}
    writer.store.save_member(member(3, "BOB"))
    writer.store.commit()
    assert [row.member.name for row in writer.crash().members] == ["ada", "BOB"]


def test_a_member_may_have_several_tokens_and_each_is_dropped_alone(writer: Writer) -> None:
    store = writer.store
    for number, name in ((1, "ada"), (2, "bob")):
        store.save_member(member(number, name))
        store.save_token(token(number, number))
    more = TokenRow(b"n" * 32, 1, 6, 70, "token-3", "laptop", "bob")
    store.save_token(more)
    store.commit()
    kept = sorted(writer.crash().tokens, key=lambda row: row.id)
    assert kept == [token(1, 1), token(2, 2), more]
    writer.store.drop_token(token(1, 1).digest)
    writer.store.commit()
    assert sorted(writer.crash().tokens, key=lambda row: row.id) == [token(2, 2), more]


def test_a_setting_is_what_was_kept_last_under_its_key(writer: Writer) -> None:
    writer.store.save_setting("team", b"one")
    writer.store.save_setting("team", b"two")
    writer.store.save_setting("other", b"three")
    writer.store.commit()
    assert writer.crash().settings == {"team": b"two", "other": b"three"}


def test_a_member_is_kept_as_it_was_saved_last(writer: Writer) -> None:
    writer.store.save_member(member(1, "ada"))
    about = {"title": "lead", "description": "leads", "instructions": "lead!"}
    changed = member(1, "ada", permissions=("members.manage",), **about)
    writer.store.save_member(changed)
    writer.store.commit()
    assert list(writer.crash().members) == [changed]


def test_a_channel_is_kept_as_it_was_saved_last_and_dropped_with_its_members(writer: Writer) -> None:
    store = writer.store
    store.save_member(member(1, "ada"))
    store.channels.save(channel("c", "dev"))
    store.channels.save(channel("d", "ops"))
    for one in ("c", "d"):
        store.channels.join(subscription(one, 1))
    store.commit()
    spans = (Span("#dev", 0, 5), Span("#design", 5))
    renamed = ChannelRow(ChannelId("c"), ChannelName("design"), "ada", 5, 7, spans)
    writer.crash()
    writer.store.channels.save(renamed)
    writer.store.channels.drop(ChannelId("d"))
    writer.store.commit()
    foundation = writer.crash()
    assert list(foundation.channels) == [renamed]
    assert list(foundation.subscriptions) == [subscription("c", 1)]


def test_an_archived_channel_leaves_its_name_to_another(writer: Writer) -> None:
    store = writer.store
    store.channels.save(channel("c", "dev", archived_at_ms=9))
    store.channels.save(channel("d", "dev"))
    store.commit()
    assert {row.id for row in writer.crash().channels} == {"c", "d"}


def test_a_subscription_is_one_for_each_channel_and_member(writer: Writer) -> None:
    store = writer.store
    store.save_member(member(1, "ada"))
    store.channels.save(channel("c", "dev"))
    store.channels.save(channel("d", "ops"))
    for role in (Role.MEMBER, Role.ADMIN, Role.MEMBER):
        store.channels.join(subscription("c", 1, role))
    store.channels.join(subscription("d", 1, Role.ADMIN))
    store.commit()
    kept = sorted(writer.crash().subscriptions, key=lambda one: one.channel)
    assert kept == [subscription("c", 1), subscription("d", 1, Role.ADMIN)]
    for _ in range(2):
        writer.store.channels.leave(ChannelId("c"), 1)
    writer.store.commit()
    assert list(writer.crash().subscriptions) == [subscription("d", 1, Role.ADMIN)]


# Snapshots


def test_a_snapshot_replaces_the_images_of_the_members_it_names_and_of_no_others(writer: Writer) -> None:
    store = writer.store
    for number, name in ((1, "ada"), (2, "bob")):
        store.save_member(member(number, name))
    writer.record()
    store.save_snapshot([image(1), image(2)], 1)
    store.commit()
    writer.record()
    store.save_snapshot([image(2, base=40, streams={"ada\x1fbuild": 9, "\x1f": 1})], 2)
    store.commit()
    foundation = writer.crash()
    assert foundation.snapshot_end == 2
    assert sorted(foundation.images, key=lambda row: row.number) == [
        image(1),
        image(2, base=40, streams={"ada\x1fbuild": 9, "\x1f": 1}),
    ]


# Retention


def test_pruning_forgets_the_oldest_first_up_to_a_limit_except_what_is_kept(writer: Writer) -> None:
    for at_ms in (10, 20, 30, 40, 50):
        writer.accept(at_ms=at_ms, wire_id=f"w{at_ms}")
    writer.store.commit()
    assert list(writer.store.prune(50, frozenset({1}), 2)) == [0, 2]
    assert set(writer.store.messages(range(5), PAGE_BYTES)[0]) == {1, 3, 4}
    assert list(writer.store.prune(50, frozenset({1}), 10)) == [3]
    assert list(writer.store.prune(50, frozenset({1}), 10)) == []
    writer.store.commit()
    writer.crash()
    assert set(writer.store.messages(range(5), PAGE_BYTES)[0]) == {1, 4}
    assert writer.store.find_message(MessageId("m-0")) is None
    assert writer.store.find_wire_id("ada", "hub", "w10") is None
    assert writer.store.find_wire_id("ada", "hub", "w20") is not None


def test_pruning_looks_past_any_number_of_messages_that_are_kept(writer: Writer) -> None:
    for _ in range(30):
        writer.accept(at_ms=10)
    writer.store.commit()
    assert list(writer.store.prune(50, frozenset(range(29)), 2)) == [29]


def test_pruning_leaves_the_rows_of_the_log(writer: Writer) -> None:
    writer.accept(at_ms=10)
    writer.advance(Acknowledged, (1, 1))
    writer.store.commit()
    rows = list(writer.store.read_log(0, 10)[0])
    assert list(writer.store.prune(50, frozenset(), 10)) == [0]
    writer.store.commit()
    writer.crash()
    assert list(writer.store.read_log(0, 10)[0]) == rows
    assert len(rows) == 2


def test_pruning_sees_what_is_buffered(writer: Writer) -> None:
    writer.accept(at_ms=10)
    assert list(writer.store.prune(50, frozenset(), 10)) == [0]
    writer.store.commit()
    assert writer.crash().log_end == 1
    assert writer.store.messages([0], PAGE_BYTES)[0] == {}


def test_pruning_one_delivery_leaves_the_steps_of_the_others(writer: Writer) -> None:
    writer.accept(route=Route([2], [1], [1]), at_ms=10)
    writer.accept(route=Route([2], [2], [2]), at_ms=90)
    writer.advance(Delivered, (1, 2))
    writer.advance(Acknowledged, (2, 2))
    writer.store.prune(50, frozenset(), 10)
    writer.store.commit()
    assert [step.state for step in writer.store.steps(2, 2)] == [State.OFFERED, State.ACKED]


# History


@pytest.fixture
def told(writer: Writer) -> Writer:
    """A store with a little of everything in it."""
    for sender, target in (
        ("ada", "@bob"),
        ("bob", "@ada"),
        ("cy", "@bob"),
        ("ada", "#dev"),
        ("cy", "*"),
        ("bob", "#general"),
        ("ada", "@ada"),
    ):
        writer.accept(content(target), sender=sender, route=Route([], [], []))
    return writer


def read(writer: Writer, expected: list[int], **query: Any) -> None:
    """Page by page and from any offset on, a query gives these messages."""
    for before, limit in ((None, 10), (None, 2), (5, 10), (3, 1), (0, 10)):
        chronicle = Chronicle(since=0, before=before, limit=limit, bytes_max=PAGE_BYTES, **query)
        wanted = [offset for offset in expected if before is None or offset < before][:limit]
        assert [message.offset for message in writer.store.history(chronicle)] == wanted


@pytest.mark.parametrize(
    ("reader", "spans", "expected"),
    [
        (None, (), [6, 5, 4, 3, 2, 1, 0]),
        ("ada", ("*", "@ada", "#general"), [6, 5, 4, 3, 1, 0]),
        ("cy", ("*", "@cy"), [4, 2]),
        ("cy", ("*", "@cy", "#dev", "#general"), [5, 4, 3, 2]),
    ],
)
def test_history_is_what_the_reader_said_and_what_it_may_see_newest_first(
    told: Writer, reader: str | None, spans: tuple[str, ...], expected: list[int]
) -> None:
    read(told, expected, reader=reader, spans=[Span(target) for target in spans])


@pytest.mark.parametrize(
    ("reader", "peer", "expected"),
    [
        (None, "bob", [2, 0]),
        ("ada", "bob", [1, 0]),
        ("bob", "ada", [1, 0]),
        ("bob", "cy", [2]),
        ("ada", "ada", [6]),
        ("ada", "nobody", []),
    ],
)
def test_history_with_a_peer_is_what_the_two_said_to_each_other(
    told: Writer, reader: str | None, peer: str, expected: list[int]
) -> None:
    read(told, expected, reader=reader, peer=peer)


def test_history_of_places_is_what_was_said_there_in_their_spans(writer: Writer) -> None:
    for target in ("#dev", "#dev", "#ops", "#dev", "#ops", "#dev", "@bob"):
        writer.accept(content(target), sender="cy", route=Route([], [], []))
    for reader in (None, "ada"):
        read(writer, [5, 3, 1, 0], reader=reader, places=[Span("#dev")])
        read(writer, [], reader=reader, places=[])
        read(writer, [4, 3, 1], reader=reader, places=[Span("#dev", 1, 4), Span("#ops", 4)])


def test_what_was_said_under_a_name_while_it_was_anothers_is_not_seen(writer: Writer) -> None:
    for sender in ("cy", "cy", "ada", "cy", "cy"):
        writer.accept(content("#dev"), sender=sender, route=Route([], [], []))
    read(writer, [3, 2], reader="ada", spans=[Span("#dev", 3, 4)])
    read(writer, [4, 2, 0], reader="ada", spans=[Span("#dev", 0, 1), Span("#dev", 4)])


def test_threads_are_seen_by_those_who_have_a_part_in_the_objective(writer: Writer) -> None:
    for number, name in enumerate(("ada", "bob", "cy"), start=1):
        writer.store.save_member(member(number, name))
    writer.change(objective(1, 2, 1))
    writer.change(objective(2, 2, 1, 3))
    for serial in (1, 2):
        writer.accept(content(f"obj:obj-{serial}"), sender="bob", route=Route([], [], []))
    assert writer.ledger.end == 4
    read(writer, [3, 2], reader="ada", threads=1)
    read(writer, [3], reader="cy", threads=3)
    read(writer, [3, 2], reader="cy", threads=3, all_threads=True)
    writer.change(objective(2, 2, 1))
    read(writer, [], reader="cy", threads=3)


# Objectives


@pytest.fixture
def shop(writer: Writer) -> Writer:
    """A store with four objectives of three members, one for each status."""
    for number, name in enumerate(("ada", "bob", "cy"), start=1):
        writer.store.save_member(member(number, name))
    parties = ((2, 1), (2, 1, 3), (3, 1), (1, 1))
    for serial, (status, numbers) in enumerate(zip(o.Status, parties, strict=True), start=1):
        writer.change(objective(serial, *numbers))
        writer.change(objective(serial, *numbers, status=status))
    writer.store.commit()
    return writer


def serials(writer: Writer, **query: Any) -> list[int]:
    given = {"party": None, "assignee": None, "statuses": (), "before": None, "limit": 10, **query}
    return [row.serial for row in writer.store.objectives.select(ObjectiveQuery(**given))]


def test_an_objective_is_kept_as_it_stood_last(shop: Writer) -> None:
    shop.crash()
    found = shop.store.objectives.find(o.ObjectiveId("obj-2"))
    assert found == objective(2, 2, 1, 3, status=o.Status.BLOCKED)
    assert shop.store.objectives.find(o.ObjectiveId("obj-9")) is None


def test_a_foundation_has_the_objectives_that_can_still_change(shop: Writer) -> None:
    foundation = shop.crash()
    assert [row.serial for row in foundation.objectives] == [1, 2]
    assert foundation.next_serial == 5


def test_objectives_are_selected_by_party_assignee_and_status_newest_first(shop: Writer) -> None:
    assert serials(shop) == [4, 3, 2, 1]
    assert serials(shop, party=3) == [3, 2]
    assert serials(shop, party=1, assignee=2) == [2, 1]
    assert serials(shop, assignee=3) == [3]
    assert serials(shop, statuses=(o.Status.ACTIVE, o.Status.CANCELLED)) == [4, 1]
    assert serials(shop, before=3, limit=1) == [2]
    assert serials(shop, party=9) == []


def test_a_party_that_is_none_any_more_is_not_found_by_it(shop: Writer) -> None:
    shop.change(objective(2, 1, 1))
    assert serials(shop, party=3) == [3]
    assert serials(shop, party=2) == [1]
    shop.restore()
    assert serials(shop, party=3) == [3, 2]


def test_an_event_log_keeps_every_happening_in_order(writer: Writer) -> None:
    for number, name in enumerate(("ada", "bob"), start=1):
        writer.store.save_member(member(number, name))
    happenings: list[o.AnyHappening] = [
        o.Assigned("t", "o", "bob", ("cy",)),
        o.Blocked("r"),
        o.Unblocked(),
        o.Reassigned("a", "b", "n"),
        o.WatcherAdded("w"),
        o.WatcherRemoved("w"),
        o.Completed("r"),
        o.Cancelled(),
    ]
    kept = [writer.change(objective(1), what) for what in happenings]
    writer.change(objective(2))
    assert list(writer.store.objectives.events(1, -1, 100)) == kept
    writer.store.commit()
    writer.crash()
    assert list(writer.store.objectives.events(1, -1, 100)) == kept
    assert list(writer.store.objectives.events(1, kept[2].offset, 2)) == kept[3:5]
    assert list(writer.store.objectives.events(9, -1, 100)) == []


def test_messages_are_read_up_to_an_amount_of_content_but_at_least_one(writer: Writer) -> None:
    for _ in range(4):
        writer.accept(content("@bob", "x" * 1000))
    for bytes_max, count in ((0, 1), (2500, 2), (PAGE_BYTES, 4)):
        found, considered = writer.store.messages([0, 1, 2, 3], bytes_max)
        assert (list(found), considered) == ([0, 1, 2, 3][:count], count)


def test_history_is_read_up_to_an_amount_of_content_but_at_least_one(writer: Writer) -> None:
    for _ in range(4):
        writer.accept(content("@bob", "x" * 1000))
    for bytes_max, offsets in ((0, [3]), (2500, [3, 2]), (PAGE_BYTES, [3, 2, 1, 0])):
        chronicle = Chronicle(reader="ada", since=0, before=None, limit=10, bytes_max=bytes_max)
        assert [message.offset for message in writer.store.history(chronicle)] == offsets
