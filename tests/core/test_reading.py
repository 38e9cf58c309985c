"""Reading what was kept: history, the logs, activity."""

from typing import Any

import pytest

from tests.core.conftest import MakeDesk
from tests.core.doubles import Desk, content
from tieline.contract import command as c
from tieline.contract.limits import Limits
from tieline.contract.member import Unnamed
from tieline.contract.refusal import Code
from tieline.contract.reply import Attached, History, LogRows


def history(desk: Desk, name: str | None, **arguments: Any) -> list[str]:
    session = desk.attach(name)
    messages = desk.expect(History, c.ReadHistory(session, **arguments)).messages
    return [message.content.body for message in messages]


@pytest.fixture
def told(desk: Desk) -> Desk:
    """A desk where ada, bob and cy have talked."""
    ada, bob, cy = desk.join("ada"), desk.join("bob"), desk.join("cy")
    desk.subscribe(bob, "dev")
    desk.subscribe(cy, "dev")
    desk.send(ada, "@bob", "ada to bob")
    desk.send(bob, "@ada", "bob to ada")
    desk.send(cy, "@bob", "cy to bob")
    desk.send(ada, "#dev", "ada in dev")
    desk.send(ada, "*", "ada to all")
    desk.send(cy, "#general", "cy in general")
    desk.send(ada, "@ada", "ada to herself")
    return desk


def test_history_is_what_a_member_sent_or_was_sent_newest_first(told: Desk) -> None:
    assert history(told, "ada") == [
        "ada to herself",
        "cy in general",
        "ada to all",
        "ada in dev",
        "bob to ada",
        "ada to bob",
    ]
    assert history(told, "cy") == ["cy in general", "ada to all", "ada in dev", "cy to bob"]


def test_history_with_a_peer_is_what_the_two_said_to_each_other(told: Desk) -> None:
    assert history(told, "ada", peer="bob") == ["bob to ada", "ada to bob"]
    assert history(told, "ada", peer="@bob") == ["bob to ada", "ada to bob"]
    assert history(told, "bob", peer="cy") == ["cy to bob"]
    assert history(told, "ada", peer="cy") == []
    assert history(told, "ada", peer="ada") == ["ada to herself"]


def test_history_of_a_channel_is_for_its_subscribers(told: Desk) -> None:
    assert history(told, "bob", peer="#dev") == ["ada in dev"]
    assert history(told, "ada", peer="#dev") == []
    # Everybody is in it, so what was said to everybody was said there.
    assert history(told, "ada", peer="#general") == ["cy in general", "ada to all"]


def test_the_operator_sees_the_history_of_all(told: Desk) -> None:
    assert len(history(told, None)) == 7
    assert history(told, None, peer="#dev") == ["ada in dev"]


def test_the_history_of_the_general_channel_is_the_same_for_who_may_read_everything(told: Desk) -> None:
    told.add("rita", "log.read")
    told.send(told.attach("ada"), "*", "ada to all again")
    everything = ["ada to all again", "cy in general", "ada to all"]
    assert history(told, "rita", peer="#general", everything=True) == everything
    assert history(told, None, peer="#general") == everything


def test_history_goes_page_by_page(told: Desk) -> None:
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


def test_history_includes_what_is_not_committed_yet(told: Desk) -> None:
    ada = told.attach("ada")
    replies = told.decide(c.Send(ada, content=content("@bob", "just now")), c.ReadHistory(ada, limit=1))
    assert isinstance(replies[1], History)
    assert [message.content.body for message in replies[1].messages] == ["just now"]


def test_history_is_not_for_those_without_an_identity(desk: Desk) -> None:
    client = desk.expect(Attached, c.Attach(protocol="agent-channels", credential=Unnamed("client-1", "dev")))
    assert desk.refused(c.ReadHistory(client.session)).code is Code.FORBIDDEN


# The main log


def test_the_log_is_dense_and_read_in_pages(told: Desk) -> None:
    whole = told.log()
    assert [row.offset for row in whole] == list(range(len(whole)))
    paged: list[int] = []
    while True:
        rows = told.expect(LogRows, c.ReadLog(told.operator, log="main", start=len(paged), limit=4)).rows
        paged += [row.offset for row in rows]
        if len(rows) < 4:
            break
    assert paged == [row.offset for row in whole]


def test_a_reader_of_the_log_never_sees_what_is_not_committed(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    before = desk.log()
    # The reads in between make the store show its own pending writes to the broker, but to no reader of the log.
    replies = desk.decide(
        c.Send(ada, content=content("@bob")),
        c.Fetch(bob),
        c.ReadHistory(ada),
        c.ReadLog(desk.operator, log="main", start=0),
    )
    rows = replies[-1]
    assert isinstance(rows, LogRows)
    assert list(rows.rows) == list(before)
    desk.broker.commit()
    assert len(desk.log()) == len(before) + 1


def test_the_end_of_the_log_is_the_offset_of_the_row_to_come(told: Desk) -> None:
    end = len(told.log())
    for start, limit in ((0, 1000), (0, 1), (end, 10), (end + 100, 10)):
        assert told.expect(LogRows, c.ReadLog(told.operator, log="main", start=start, limit=limit)).end == end, (
            start,
            limit,
        )


def test_reading_from_before_the_beginning_is_reading_from_the_beginning(told: Desk) -> None:
    rows = told.expect(LogRows, c.ReadLog(told.operator, log="main", start=-3, limit=5)).rows
    assert [row.offset for row in rows] == [0, 1, 2, 3, 4][: len(rows)]
    assert rows


def test_a_page_of_the_log_is_never_larger_than_the_limit(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(read_max=3))
    for name in ("a", "b", "c", "d", "e"):
        desk.add(name)
    assert len(desk.expect(LogRows, c.ReadLog(desk.operator, log="main", start=0, limit=1000)).rows) == 3


def test_an_unknown_log_is_refused(desk: Desk) -> None:
    assert desk.refused(c.ReadLog(desk.operator, log="audit", start=0)).code is Code.UNKNOWN_LOG
