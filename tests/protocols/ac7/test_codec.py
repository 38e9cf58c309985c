"""Tests of the JSON shapes of ac7: fields that ac7 does not have, and the slugs (short names) of channels."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.contract.identifiers import MemberName, MessageId, parse_channel_name
from tieline.contract.message import Content, Message
from tieline.contract.objective import Blocked, ObjectiveEvent
from tieline.contract.refusal import Refusal
from tieline.contract.target import Target, parse_target
from tieline.protocols.ac7 import codec

SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
CHANNEL_ID = "0000018f-000012ab34cd"


def said(target: str, **fields: str) -> Message:
    parsed = parse_target(target)
    assert isinstance(parsed, Target)
    content = Content(target=parsed, body="x", **fields)  # type: ignore[arg-type]
    return Message(
        id=MessageId("m1"), offset=1, sender="ann", protocol="agent-relay", sent_at_ms=1, content=content, wire_id="w1"
    )


@pytest.mark.parametrize(("target", "thread"), [("@bob", None), ("#dev", "chan:c1"), ("obj:o-1", "obj:o-1")])
def test_the_thread_of_another_protocol_is_called_conversation_because_thread_is_where_a_message_goes(
    target: str, thread: str | None
) -> None:
    data = codec.message(said(target, thread="release"), {"dev": "c1"}).data
    assert data.get("thread") == thread
    assert data["tieline"]["conversation"] == "release"
    assert "thread" not in data["tieline"]


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("dev", "dev"),
        ("a" * 32, "a" * 32),
        ("Dev.Ops_2", "dev-ops-2-12ab34cd"),
        ("a" * 33, "a" * 23 + "-12ab34cd"),
        ("---", "channel-12ab34cd"),
    ],
)
def test_a_channel_whose_name_is_no_slug_has_one_with_the_end_of_its_id(name: str, slug: str) -> None:
    assert codec.slug(name, CHANNEL_ID) == slug


@given(st.text(st.characters(codec="ascii", categories=["L", "N", "Pd", "Po", "Pc"]), min_size=1, max_size=128))
def test_every_channel_has_a_slug_that_the_protocol_accepts(name: str) -> None:
    if isinstance(parse_channel_name(name), Refusal):
        return
    slug = codec.slug(name, CHANNEL_ID)
    assert SLUG.fullmatch(slug)
    assert len(slug) <= 32


def test_an_event_of_an_objective_has_its_kind_beside_its_payload() -> None:
    event = ObjectiveEvent(7, 1000, MemberName("ann"), Blocked("waits"))
    shown = codec.happening("o-1", event)
    assert (shown.objective_id, shown.ts, shown.actor, shown.kind) == ("o-1", 1000, "ann", "blocked")
    assert shown.payload == {"reason": "waits"}
