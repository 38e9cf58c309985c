"""Tests of the digest: it lists current messages apart from outdated ones."""

from tieline.agents.digest import ending, excerpt, rest_line, sort_out, suspects
from tieline.client import Item, Message, ReceiptView, StepView
from tieline.contract.message import Priority

HOUR_MS = 3_600_000
NOW_MS = 100 * HOUR_MS


def message(offset: int, age_ms: int = 0, **fields: object) -> Message:
    said = {"sender": "alice", "target": "@bob", "body": "hello", "protocol": "tieline", **fields}
    return Message(id=f"m{offset}", offset=offset, sent_at_ms=NOW_MS - age_ms, **said)  # type: ignore[arg-type]  # given by name


def item(offset: int, age_ms: int = 0, **fields: object) -> Item:
    return Item(offset, offset, "pending", message(offset, age_ms, **fields))


def test_what_is_old_is_obsolete_once_its_thread_went_on() -> None:
    items = [
        item(1, 7 * HOUR_MS, thread="t"),
        item(2, 7 * HOUR_MS),
        item(3, 7 * HOUR_MS, thread="alone"),
        item(4, HOUR_MS, thread="young"),
        item(5, thread="t"),
        item(6, thread="young"),
    ]
    current, obsolete = sort_out(items, now_ms=NOW_MS)
    assert [each.key for each in current] == [2, 3, 4, 5, 6]
    assert [(each.item.key, each.why) for each in obsolete] == [(1, "7h 0m old, and its thread went on with m5")]


def test_a_thread_went_on_also_by_what_does_not_wait() -> None:
    _, obsolete = sort_out([item(1, 7 * HOUR_MS, thread="t")], [message(9, thread="t", sender="bob")], now_ms=NOW_MS)
    assert [each.item.key for each in obsolete] == [1]


def test_how_old_is_too_old_can_be_said() -> None:
    items = [item(1, 2 * HOUR_MS, thread="t"), item(2, thread="t")]
    assert sort_out(items, now_ms=NOW_MS)[1] == []
    assert [each.item.key for each in sort_out(items, now_ms=NOW_MS, older_ms=HOUR_MS)[1]] == [1]


def test_what_may_be_over_is_suspected() -> None:
    past = [
        message(1, HOUR_MS, ttl_ms=1000),
        message(2, ttl_ms=HOUR_MS),
        message(3),
        message(4, supersedes="m3"),
        message(5, HOUR_MS, ttl_ms=1, sender="bob"),
        message(6, HOUR_MS, ttl_ms=1),
    ]
    found = suspects(past, [item(6, HOUR_MS, ttl_ms=1)], member="bob", now_ms=NOW_MS)
    assert [each.id for each in found] == ["m1", "m3"]


def test_receipts_tell_how_it_ended() -> None:
    steps = (StepView("pending", 1), StepView("expired", 2, evidence="superseded by m4"))
    receipts = [ReceiptView("cy", "acked", steps[:1]), ReceiptView("bob", "expired", steps)]
    assert ending(receipts, "bob") == "superseded by m4"
    assert ending(receipts, "cy") is None
    assert ending([], "bob") is None


def test_one_line_for_the_rest() -> None:
    assert rest_line([], member="bob", now_ms=NOW_MS, how="") == ""
    line = rest_line([item(1, HOUR_MS, priority=Priority.URGENT), item(2)], member="bob", now_ms=NOW_MS, how="drain.")
    assert line == "2 more unread message(s) for bob (1 urgent, oldest 1h 0m ago; m1, m2): drain."


def test_an_excerpt_is_one_line() -> None:
    assert excerpt(message(1, body="a\n b\t c")) == "a b c"
    assert len(excerpt(message(1, body="x" * 500))) == 81
