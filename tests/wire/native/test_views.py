"""Tests of the conversion between the hub's values and the form that clients send and get."""

from tieline.contract.identifiers import MessageId
from tieline.contract.message import Attachment, Content, Kind, Level, Message, Priority
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import EVERYBODY
from tieline.wire.native.content import content_of
from tieline.wire.native.derived import view_message
from tieline.wire.native.frames import Send


def test_what_happened_to_an_objective_cannot_be_told_by_a_member() -> None:
    refusal = content_of(Send(1, "obj:x-1", "[objective completed]", data={"kind": "objective"}, kind=Kind.EVENT))
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.INVALID_MESSAGE
    assert isinstance(content_of(Send(1, "obj:x-1", "done?", data={"kind": "objective"})), Content)
    assert isinstance(content_of(Send(1, "obj:x-1", "built", data={"kind": "build"}, kind=Kind.EVENT)), Content)


def test_every_field_that_a_client_sends_is_said_under_its_own_name() -> None:
    frame = Send(
        1,
        "*",
        "a body",
        data={"k": 1},
        title="a title",
        level=Level.ERROR,
        priority=Priority.URGENT,
        kind=Kind.STATUS,
        topic="a topic",
        scope="a scope",
        thread="a thread",
        reply_to="another",
        refs=("a ref",),
        attachments=(Attachment("a path"),),
        ttl_ms=5,
        supersedes="an older one",
    )
    content = content_of(frame)
    assert isinstance(content, Content)
    assert content.target == EVERYBODY
    for name in set(frame.__struct_fields__) & set(content.__struct_fields__) - {"target"}:
        assert getattr(content, name) == getattr(frame, name), name


def test_every_field_of_a_message_is_shown_under_its_own_name() -> None:
    said = Content(
        target=EVERYBODY,
        body="a body",
        data={"k": 1},
        title="a title",
        level=Level.ERROR,
        priority=Priority.URGENT,
        kind=Kind.STATUS,
        topic="a topic",
        scope="a scope",
        thread="a thread",
        reply_to=MessageId("another"),
        refs=("a ref",),
        attachments=(Attachment("a path"),),
        ttl_ms=5,
        notes=("a note",),
        supersedes=MessageId("an older one"),
    )
    message = Message(
        id=MessageId("an id"),
        offset=7,
        sender="ada",
        protocol="a protocol",
        sent_at_ms=9,
        content=said,
        wire_id="a wire id",
        verified=False,
        hops=3,
        cause=MessageId("a cause"),
    )
    view = view_message(message)
    for name in view.__struct_fields__:
        source = said if hasattr(said, name) and name not in message.__struct_fields__ else message
        expected = "*" if name == "target" else getattr(source, name)
        assert getattr(view, name) == expected, name
