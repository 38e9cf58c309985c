"""Tests of prefix ids, whose first eight characters differ between messages.

Each id has two forms, and each form can be made from the other.
"""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from tieline.server.clock_and_ids import SystemClockAndIds
from tieline.wire.prefix_ids import from_prefix_id, is_hub_id, to_prefix_id

hub_ids = st.builds(
    lambda value: str(uuid.UUID(int=value & ~(0xF << 76) & ~(3 << 62) | (7 << 76) | (2 << 62))),
    st.integers(0, 2**128 - 1),
)


@given(hub_ids)
def test_each_spelling_can_be_made_from_the_other(message_id: str) -> None:
    prefix_id = to_prefix_id(message_id)
    assert is_hub_id(message_id)
    assert not is_hub_id(prefix_id)
    assert uuid.UUID(prefix_id).version == 8
    assert from_prefix_id(prefix_id) == from_prefix_id(prefix_id.upper()) == message_id
    assert to_prefix_id(prefix_id) == prefix_id
    assert from_prefix_id(message_id) == message_id


@given(st.text() | st.uuids(version=4).map(str))
def test_any_other_text_stays(text: str) -> None:
    if not is_hub_id(text):
        assert to_prefix_id(text) == text
        assert to_prefix_id(from_prefix_id(text)) in (text, text.lower())


def test_ids_of_one_millisecond_and_of_one_minute_differ_in_their_first_eight_characters() -> None:
    made = SystemClockAndIds()
    ids = [made.message_id(now_ms) for now_ms in (1_800_000_000_000, 1_800_000_030_000) for _ in range(1000)]
    assert len({message_id[:8] for message_id in ids}) == 1
    assert len({to_prefix_id(message_id)[:8] for message_id in ids}) == len(ids)
