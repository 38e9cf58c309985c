"""Tests of the cost of reads: it depends on the number of returned rows, not on the number of stored messages.

The cost is counted in steps of SQLite's virtual machine. In the store, the requested rows lie behind all others.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from tests.core.doubles import content
from tests.faults.processes import SOAK
from tieline.contract import objective as o
from tieline.contract.delivery import State
from tieline.contract.event import Acknowledged, Fell
from tieline.contract.identifiers import MemberName, MessageId
from tieline.core.ledger import Ledger, encode_content, encode_struct
from tieline.core.readers import Cutoff
from tieline.core.store import ActivityEntry, ActivityQuery, HistoryQuery, ObjectiveQuery, Span
from tieline.stores.sqlite import SqliteStore
from tieline.stores.sqlite.activity import SqliteActivity
from tieline.stores.sqlite.statements import QUERIES

MESSAGES = 1_000_000 if SOAK else 60_000
FEW = 3000
PAGE = 20
STEPS_PER_ROW = 60
"""Generous limit of the virtual machine's steps for each visited row, with a join of its row in the log."""

ME, PEER, NOISE, CROWD = 1, 2, 3, 4


def fill(folder: Path, count: int) -> SqliteStore:
    """Make a store with `count` messages: old ones between "me" and "peer", and many newer ones of others."""
    store = SqliteStore(folder, synchronous="OFF")
    moved = Ledger().append(Acknowledged(member="noise", number=NOISE, keys=((1, 1),)), 0).event
    fell = Ledger().append(Fell(member="noise", number=NOISE, keys=((1, 1),), way="hook", after="push"), 0).event
    said = {target: encode_content(content(target)) for target in ("@peer", "@me", "#dev", "@noise", "#noise", "obj:a")}
    with store._main as main:
        for number, name in ((ME, "me"), (PEER, "peer"), (NOISE, "noise"), (CROWD, "crowd")):
            values = (number, name, "agent", b"[]", "token", 0, 0, "", "", "")
            main.execute(QUERIES["insert_member"], values)
        main.executemany(
            QUERIES["append_log"], ((offset, 0, fell if offset % 2 else moved, bytes(32)) for offset in range(count))
        )
        main.executemany(QUERIES["insert_message"], (message(offset, said) for offset in range(count)))
        # Every delivery of "noise" but its first was seen, acknowledged and fell, one by one.
        steps = ((NOISE, int(state), key, key, 0) for key in range(2, count) for state in (State.SEEN, State.ACKED))
        main.executemany(QUERIES["insert_step"], steps)
        main.executemany(QUERIES["insert_fall"], ((NOISE, key, key, 1) for key in range(2, count)))
        for serial in range(1, count // 10):
            status = "active" if serial <= PAGE else "done"
            assignee = ME if serial <= PAGE else CROWD
            made = objective(serial, status)
            parties = f"[{assignee},{PEER}]"
            kept = (serial, made.id, serial, status, assignee, parties, encode_struct(made))
            main.execute(QUERIES["replace_objective"], kept)
            for party in (assignee, PEER):
                main.execute(QUERIES["insert_party"], (party, serial, status, assignee))
    store.restore()
    return store


def message(offset: int, said: dict[str, bytes]) -> tuple[Any, ...]:
    """Return the row of the message at an offset of the log. `said` has the encoded content by target."""
    if offset < 4 * PAGE:
        sender, target, number = (
            ("me", "@peer", PEER),
            ("peer", "@me", ME),
            ("peer", "#dev", ME),
            ("me", "obj:a", PEER),
        )[offset % 4]
    else:
        sender, target, number = (("crowd", "@noise", NOISE), ("peer", "@noise", NOISE), ("crowd", "@me-not", CROWD))[
            offset % 3
        ]
    stored = said.get(target, said["@noise"])
    route = pack("=qqq", number, offset + 1, offset + 1)
    wire_id = f"w{offset}"
    return (offset, f"m{offset}", sender, "hub", wire_id, target, offset, None, 1, 0, None, stored, route, "", 0)


def objective(serial: int, status: str) -> o.Objective:
    return o.Objective(
        id=o.ObjectiveId(f"o{serial}"),
        title="t",
        outcome="o",
        body="",
        status=o.Status(status),
        assignee=MemberName("me"),
        originator=MemberName("me"),
        watchers=(),
        created_at_ms=0,
        updated_at_ms=0,
        completed_at_ms=None,
        result=None,
        block_reason=None,
        attachments=(),
    )


def history_query(**values: Any) -> HistoryQuery:
    return HistoryQuery(**{"reader": "me", "since": 0, "before": None, "limit": PAGE, "bytes_max": 1 << 20, **values})


SPANS = (Span("*"), Span("@me"), Span("#general"), Span("#dev"))

READS: dict[str, Callable[[SqliteStore], Any]] = {
    "history with a peer": lambda store: store.history(history_query(peer="peer")),
    "history of a channel": lambda store: store.history(history_query(places=(Span("#dev"),))),
    "history of all that one may see": lambda store: store.history(history_query(spans=SPANS, threads=ME)),
    "all that one may see, from the oldest on": lambda store: store.history(
        history_query(spans=SPANS, threads=ME, since=PAGE, forward=True)
    ),
    "history of everything": lambda store: store.history(history_query(reader=None)),
    "what a member was sent by a peer": lambda store: store.received(ME, "me", "peer", None, PAGE).received,
    "a message": lambda store: store.find_message(MessageId("m7")),
    "messages": lambda store: store.messages(range(PAGE), 1 << 20)[0],
    "a wire id": lambda store: store.find_wire_id("me", "hub", "w0"),
    "steps of a delivery that took none": lambda store: [store.steps(NOISE, 1)],
    "falls of a delivery that never fell": lambda store: [store.falls(NOISE, 1, 1)],
    "rows of the log": lambda store: store.read_log(0, PAGE)[0],
    "names": lambda store: store.names([ME, PEER]),
    "objectives by status": lambda store: store.objectives.select(query(statuses=(o.Status.ACTIVE,))),
    "objectives of an assignee": lambda store: store.objectives.select(query(assignee=ME)),
    "objectives of a party": lambda store: store.objectives.select(query(party=PEER, statuses=(o.Status.ACTIVE,))),
    "objectives of both": lambda store: store.objectives.select(query(party=PEER, assignee=ME)),
    "what retention looks at": lambda store: [store.prune(0, Cutoff(10**9), frozenset(range(10**7)), PAGE)],
}


def query(**values: Any) -> ObjectiveQuery:
    return ObjectiveQuery(**{"party": None, "assignee": None, "statuses": (), "before": None, "limit": PAGE, **values})


@contextmanager
def counting(connection: Any) -> Iterator[list[int]]:
    """Count the steps of SQLite's virtual machine for a connection. Yield a list with the count."""
    steps = [0]

    def step() -> bool:
        steps[0] += 1
        return False

    connection.set_progress_handler(step, 1)
    try:
        yield steps
    finally:
        connection.set_progress_handler(None)


@pytest.mark.slow
@pytest.mark.timeout(900 if SOAK else 60)
def test_a_read_costs_what_it_shows_however_many_messages_there_are(tmp_path: Path) -> None:
    few, many = fill(tmp_path / "few", FEW), fill(tmp_path / "many", MESSAGES)
    costs: dict[str, tuple[int, ...]] = {}
    for name, read in READS.items():
        for store in (few, many):
            with counting(store._main) as steps:
                found = read(store)
            assert found, name
            costs[name] = (*costs.get(name, ()), steps[0])
    few.close()
    many.close()
    most = 4 * PAGE * STEPS_PER_ROW
    assert {name: cost for name, cost in costs.items() if cost[1] > most or cost[1] > 2 * cost[0] + 100} == {}, costs


def test_the_trail_follows_the_messages_through_a_crash_and_retention(tmp_path: Path) -> None:
    store = fill(tmp_path / "home", FEW)
    known = [message.offset for message in store.history(history_query(peer="peer"))]
    assert len(known) == PAGE
    store.close()
    store = SqliteStore(tmp_path / "home", synchronous="OFF")
    store.restore()
    assert [message.offset for message in store.history(history_query(peer="peer"))] == known
    removed = [offset for offset in known if offset % 8]
    keep = frozenset(offset for offset in range(FEW) if offset not in removed)
    assert store.prune(0, Cutoff(10**9), keep, FEW)[0] == sorted(removed)
    left = [message.offset for message in store.history(history_query(peer="peer", before=known[0] + 1))]
    assert set(left).isdisjoint(removed)
    assert left[: len(known) - len(removed)] == [offset for offset in known if offset not in removed]
    store.close()


def test_activity_of_one_kind_costs_what_it_shows(tmp_path: Path) -> None:
    costs = []
    for name, count in (("few", FEW), ("many", MESSAGES // 4)):
        store = SqliteActivity(tmp_path / name, synchronous="OFF")
        store.restore()
        store.append([ActivityEntry(n, 0, ME, "rare" if n < PAGE else "common", n, b"{}") for n in range(count)])
        store.commit()
        with counting(store._connection) as steps:
            assert len(store.select(ActivityQuery(ME, None, None, ("rare", "never"), PAGE, 1 << 20))) == PAGE
            assert len(store.select(ActivityQuery(ME, None, None, (), PAGE, 1 << 20))) == PAGE
            assert len(store.read_log(0, PAGE, 1 << 20)[0]) == PAGE
        costs.append(steps[0])
        store.close()
    assert costs[1] <= 2 * costs[0] + 100, costs


def test_a_home_that_has_no_trail_yet_is_given_one_at_its_start(tmp_path: Path) -> None:
    store = fill(tmp_path / "home", 5000)
    with store._main as main:
        main.execute("DELETE FROM trail; UPDATE trail_end SET log_end = 0")
    store.restore()
    assert len(store.history(history_query(peer="peer"))) == PAGE
    assert store._main.execute("SELECT log_end FROM trail_end").get == 5000
    assert store._main.execute("SELECT sum(length(offsets) / 8) FROM trail").get == 5000
    store.close()
