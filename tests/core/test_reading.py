"""Tests of commands that read stored data: history, the logs, activity."""

from typing import Any

import pytest

from tests.core.conftest import MakeHarness
from tests.core.doubles import BrokerHarness, content
from tieline.contract import command as c
from tieline.contract.limits import Limits
from tieline.contract.member import Unnamed
from tieline.contract.refusal import Code
from tieline.contract.reply import Attached, History, LogRows


def history(harness: BrokerHarness, name: str | None, **arguments: Any) -> list[str]:
    session = harness.attach(name)
    messages = harness.expect(History, c.ReadHistory(session, **arguments)).messages
    return [message.content.body for message in messages]


@pytest.fixture
def told(harness: BrokerHarness) -> BrokerHarness:
    """Fixture: a harness in which ada, bob and cy have sent messages to each other, to channels and to everybody."""
    ada, bob, cy = harness.join("ada"), harness.join("bob"), harness.join("cy")
    harness.subscribe(bob, "dev")
    harness.subscribe(cy, "dev")
    harness.send(ada, "@bob", "ada to bob")
    harness.send(bob, "@ada", "bob to ada")
    harness.send(cy, "@bob", "cy to bob")
    harness.send(ada, "#dev", "ada in dev")
    harness.send(ada, "*", "ada to all")
    harness.send(cy, "#general", "cy in general")
    harness.send(ada, "@ada", "ada to herself")
    return harness


def test_history_is_what_a_member_sent_or_was_sent_newest_first(told: BrokerHarness) -> None:
    assert history(told, "ada") == [
        "ada to herself",
        "cy in general",
        "ada to all",
        "ada in dev",
        "bob to ada",
        "ada to bob",
    ]
    assert history(told, "cy") == ["cy in general", "ada to all", "ada in dev", "cy to bob"]


def test_history_with_a_peer_is_what_the_two_said_to_each_other(told: BrokerHarness) -> None:
    assert history(told, "ada", peer="bob") == ["bob to ada", "ada to bob"]
    assert history(told, "ada", peer="@bob") == ["bob to ada", "ada to bob"]
    assert history(told, "bob", peer="cy") == ["cy to bob"]
    assert history(told, "ada", peer="cy") == []
    assert history(told, "ada", peer="ada") == ["ada to herself"]


def test_history_of_a_channel_is_for_its_subscribers(told: BrokerHarness) -> None:
    assert history(told, "bob", peer="#dev") == ["ada in dev"]
    assert history(told, "ada", peer="#dev") == []
    # Everybody is in it, so what was said to everybody was said there.
    assert history(told, "ada", peer="#general") == ["cy in general", "ada to all"]


def test_the_operator_sees_the_history_of_all(told: BrokerHarness) -> None:
    assert len(history(told, None)) == 7
    assert history(told, None, peer="#dev") == ["ada in dev"]


def test_the_history_of_the_general_channel_is_the_same_for_who_may_read_everything(told: BrokerHarness) -> None:
    told.add("rita", "log.read")
    told.send(told.attach("ada"), "*", "ada to all again")
    everything = ["ada to all again", "cy in general", "ada to all"]
    assert history(told, "rita", peer="#general", everything=True) == everything
    assert history(told, None, peer="#general") == everything


def test_history_of_one_member_is_for_who_may_read_everything(told: BrokerHarness) -> None:
    told.add("rita", "log.read")
    of_bob = ["cy to bob", "bob to ada", "ada to bob"]
    assert history(told, "rita", member="bob", everything=True) == of_bob
    assert history(told, "rita", member="bob", everything=True, limit=2) == of_bob[:2]
    of_ada = ["ada to herself", "ada to all", "ada in dev", "bob to ada", "ada to bob"]
    assert history(told, "rita", member="ada", everything=True) == of_ada
    rita, cy = told.attach("rita"), told.attach("cy")
    assert told.refused(c.ReadHistory(cy, member="bob", everything=True)).code is Code.FORBIDDEN
    assert told.refused(c.ReadHistory(cy, member="bob")).code is Code.INVALID_REQUEST
    assert told.refused(c.ReadHistory(rita, member="bo", everything=True)).code is Code.UNKNOWN_MEMBER


def test_history_goes_page_by_page(told: BrokerHarness) -> None:
    session = told.attach("ada")
    seen: list[str] = []
    before = None
    while True:
        page = told.expect(History, c.ReadHistory(session, before=before, limit=4)).messages
        if not page:
            break
        seen += [message.content.body for message in page]
        before = page[-1].offset
    assert seen == history(told, "ada")


def test_history_includes_what_is_not_committed_yet(told: BrokerHarness) -> None:
    ada = told.attach("ada")
    replies = told.decide(c.Send(ada, content=content("@bob", "just now")), c.ReadHistory(ada, limit=1))
    assert isinstance(replies[1], History)
    assert [message.content.body for message in replies[1].messages] == ["just now"]


def test_history_is_not_for_those_without_an_identity(harness: BrokerHarness) -> None:
    client = harness.expect(Attached, c.Attach(protocol="agent-channels", credential=Unnamed("client-1", "dev")))
    assert harness.refused(c.ReadHistory(client.session)).code is Code.FORBIDDEN


# The main log


def test_the_log_is_dense_and_read_in_pages(told: BrokerHarness) -> None:
    whole = told.log()
    assert [row.offset for row in whole] == list(range(len(whole)))
    paged: list[int] = []
    while True:
        rows = told.expect(LogRows, c.ReadLog(told.operator, log="main", start=len(paged), limit=4)).rows
        paged += [row.offset for row in rows]
        if len(rows) < 4:
            break
    assert paged == [row.offset for row in whole]


def test_a_reader_of_the_log_never_sees_what_is_not_committed(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    before = harness.log()
    # The reads in between make the store show its own pending writes to the broker, but to no reader of the log.
    replies = harness.decide(
        c.Send(ada, content=content("@bob")),
        c.Fetch(bob),
        c.ReadHistory(ada),
        c.ReadLog(harness.operator, log="main", start=0),
    )
    rows = replies[-1]
    assert isinstance(rows, LogRows)
    assert list(rows.rows) == list(before)
    harness.broker.commit()
    assert len(harness.log()) == len(before) + 1


def test_the_end_of_the_log_is_the_offset_of_the_row_to_come(told: BrokerHarness) -> None:
    end = len(told.log())
    for start, limit in ((0, 1000), (0, 1), (end, 10), (end + 100, 10)):
        assert told.expect(LogRows, c.ReadLog(told.operator, log="main", start=start, limit=limit)).end == end, (
            start,
            limit,
        )


def test_reading_from_before_the_beginning_is_reading_from_the_beginning(told: BrokerHarness) -> None:
    rows = told.expect(LogRows, c.ReadLog(told.operator, log="main", start=-3, limit=5)).rows
    assert [row.offset for row in rows] == [0, 1, 2, 3, 4][: len(rows)]
    assert rows


def test_a_page_of_the_log_is_never_larger_than_the_limit(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(read_max=3))
    for name in ("a", "b", "c", "d", "e"):
        harness.add(name)
    assert len(harness.expect(LogRows, c.ReadLog(harness.operator, log="main", start=0, limit=1000)).rows) == 3


def test_an_unknown_log_is_refused(harness: BrokerHarness) -> None:
    assert harness.refused(c.ReadLog(harness.operator, log="audit", start=0)).code is Code.UNKNOWN_LOG
