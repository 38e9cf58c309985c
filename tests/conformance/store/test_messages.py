"""Tests that a store stores messages with all their fields, and finds them by offset."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.store.rows import route_of
from tests.conformance.store.writer import PAGE_BYTES, Writer
from tests.core.doubles import content
from tieline.contract.chain import digest
from tieline.contract.event import (
    Sent,
)
from tieline.contract.identifiers import MessageId
from tieline.contract.message import Attachment, Content, Level, Message, Priority
from tieline.contract.target import EVERYBODY
from tieline.core.ledger import encode_content
from tieline.core.store import (
    DeliveryRoute,
)


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
    row = writer.ledger.append(
        Sent(id="m-0", sender="client-1@dev", target="*", recipients=2, digest=digest(encoded)), 123
    )
    writer.store.accept(row, message, encoded, DeliveryRoute([1, 2], [7, 8], [3, 4]).pack())
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
    message = writer.accept(route=DeliveryRoute([], [], []))
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
    writer.accept(content("@bob", ttl_ms=50), DeliveryRoute([2, 3], [2, 1], [1, 1]), at_ms=1000)
    writer.store.commit()
    writer.crash()
    assert [(deadline, route_of(route)) for deadline, route in writer.store.expiring()] == [
        (1050, ([2, 3], [2, 1], [1, 1]))
    ]


def test_messages_are_read_up_to_an_amount_of_content_but_at_least_one(writer: Writer) -> None:
    for _ in range(4):
        writer.accept(content("@bob", "x" * 1000))
    for bytes_max, count in ((0, 1), (2500, 2), (PAGE_BYTES, 4)):
        found, considered = writer.store.messages([0, 1, 2, 3], bytes_max)
        assert (list(found), considered) == ([0, 1, 2, 3][:count], count)


def test_a_page_of_messages_with_many_values_is_shorter(writer: Writer) -> None:
    for _ in range(4):
        writer.accept(content("@bob", data={"a": [[]] * 1000}))
    found, considered = writer.store.messages([0, 1, 2, 3], 100_000)
    assert (len(found), considered) == (1, 1)
