"""Tests of the recorder: it replaces random values and keeps others, and it folds long lines without loss."""

import json

import pytest

from tests.golden.recorder import WIDTH, Clock, Recorder, fold
from tieline.wire.prefix_ids import to_prefix_id

FIRST = "0190a1b2-0000-7000-8000-000000000001"
SECOND = "0190a1b2-0000-7000-8000-000000000002"


@pytest.fixture
def recorder() -> Recorder:
    """Fixture: a recorder with an empty transcript."""
    return Recorder(Clock())


def test_a_value_has_one_placeholder_wherever_it_stands(recorder: Recorder) -> None:
    recorder.said("ada", f'{{"id":"{FIRST}"}}')
    recorder.heard("ada", f'{{"id":"{SECOND}","cause":"{FIRST}"}}')
    assert recorder.text == '> ada {"id":"<uuid-1>"}\n< ada {"id":"<uuid-2>","cause":"<uuid-1>"}\n'


def test_both_spellings_of_a_messages_id_have_one_number(recorder: Recorder) -> None:
    assert recorder.settle(f"{SECOND} {to_prefix_id(FIRST)} {FIRST}") == "<uuid-1> <prefix-2> <uuid-2>"


def test_a_moment_is_the_same_in_every_form(recorder: Recorder) -> None:
    recorder.clock.step()
    now_ms = recorder.clock.now_ms
    text = f"{now_ms} 2027-01-01T00:00:01.000Z 2027-01-01T00:00:01+00:00 01/01/27 00:00:01 UTC {now_ms}000000"
    assert recorder.settle(text) == "<ms-1> <time-1 .000Z> <time-1 +00:00> <date-1> <ns-1>"


def test_a_moment_to_come_says_how_far_away_it_is(recorder: Recorder) -> None:
    assert recorder.settle(str(recorder.clock.now_ms + 900_005)) == "<ms-900.005>"


def test_a_moment_of_another_clock_stays(recorder: Recorder) -> None:
    assert recorder.settle("1734440000000 2026-05-18T12:00:00Z") == "1734440000000 2026-05-18T12:00:00Z"


@pytest.mark.parametrize(
    "text",
    [
        '"key":12,"offset":179876160',
        '"size":1798761600000.5',
        '"id":"ada-1"',
        '"seq":17987616000001',
        "00000000deadbeef",
    ],
)
def test_numbers_and_names_of_its_own_stay(recorder: Recorder, text: str) -> None:
    assert recorder.settle(text) == text


def test_what_is_known_before_has_the_name_it_was_given(recorder: Recorder) -> None:
    recorder.know("/tmp/x", "folder")
    recorder.know("/tmp/x/home", "home")
    assert recorder.settle("/tmp/x/home/hub.sock /tmp/x/else") == "<home>/hub.sock <folder>/else"


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_folding_loses_nothing_and_keeps_the_order(separators: tuple[str, str]) -> None:
    value = {
        "text": 'a "quoted" [bracket]',
        "rows": [{"n": n, "of": ["x" * 30, {}, []]} for n in range(9)],
        "end": None,
    }
    text = json.dumps(value, separators=separators)
    pieces = list(fold(f"data: {text},"))
    assert all(len(piece) <= WIDTH for piece in pieces)
    assert len(pieces) > 9
    # A space after a separator begins the next piece, behind an indentation of whole steps.
    joined = "".join(piece[(len(piece) - len(piece.lstrip())) // 2 * 2 :] for piece in pieces)
    assert joined == f"data: {text},"


def test_what_is_no_json_is_one_piece() -> None:
    text = "no brackets, or one that has no partner {" + "x" * WIDTH
    assert list(fold(text)) == [text]
