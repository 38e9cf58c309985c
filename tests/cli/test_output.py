"""Tests that texts of other members are harmless on a terminal, and complete in JSON."""

import json
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tieline.cli.output import (
    local_time,
    neutral_line,
    own_name,
    print_items,
    print_json,
    print_message,
    print_messages,
    print_table,
)
from tieline.cli.short_ids import short_id
from tieline.client import Item, Message

UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")


def message(body: str, **parts: str) -> Message:
    return Message(
        id="01890a5d-ac96-774b-bcce-b302099a8057",
        offset=1,
        sender=parts.pop("sender", "alice"),
        target="@bob",
        body=body,
        sent_at_ms=0,
        protocol="tieline",
        **parts,  # type: ignore[arg-type]
    )


@given(st.text())
def test_no_text_makes_a_terminal_do_anything(text: str) -> None:
    assert not UNSAFE.search(neutral_line(text))
    assert len(neutral_line(text).splitlines()) <= 1


@given(body=st.text(min_size=1), sender=st.text(), title=st.text())
def test_a_message_cannot_forge_another(body: str, sender: str, title: str) -> None:
    from contextlib import redirect_stdout
    from io import StringIO

    with redirect_stdout(StringIO()) as out:
        print_message(message(body, sender=sender, title=title))
    head, *rest = out.getvalue().rstrip("\n").split("\n")
    assert head.startswith("1  ")
    assert all(line.startswith("  ") for line in rest)


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_json_carries_any_text_unharmed_and_harmless(text: str) -> None:
    from contextlib import redirect_stdout
    from io import StringIO

    with redirect_stdout(StringIO()) as out:
        print_json({"body": text})
    assert json.loads(out.getvalue()) == {"body": text}
    assert not UNSAFE.search(out.getvalue())


def test_a_reply_names_the_number_of_a_message_in_the_same_list(capsys: pytest.CaptureFixture[str]) -> None:
    question = message("a question")
    answer = structs.replace(question, id="01890a5d-ac97-774b-bcce-b302099a8057", offset=2, reply_to=question.id)
    print_messages([answer, question], json=False, none="")
    assert "[reply to 1]" in capsys.readouterr().out
    print_items([Item(2, 2, "pending", answer)], {question.id: question})
    assert "[reply to 1]" in capsys.readouterr().out
    print_messages([answer], json=False, none="")
    assert f"[reply to {short_id(question.id)}]" in capsys.readouterr().out


def test_a_table_in_a_pipe_is_aligned_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "kind"), [("alice", "agent"), ("bo\nb", "[red]x[/red]")], empty="none")
    assert capsys.readouterr().out == "NAME   KIND\nalice  agent\nbo\\nb  [red]x[/red]\n"
    print_table(("name",), [], empty="none")
    assert capsys.readouterr().out == "none\n"


def test_a_printed_command_works_from_any_folder_of_another_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "my clone" / "tieline"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["my clone/tieline"])
    monkeypatch.setenv("PATH", "/nowhere")
    assert own_name() == f"'{program}'"
    monkeypatch.setenv("PATH", str(program.parent))
    assert own_name() == "tieline"


def test_a_time_has_its_day_if_it_is_another_day_for_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime(2026, 11, 18, 23, 30, tzinfo=UTC)
    at_ms = int(now.timestamp() * 1000) + 7
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        assert local_time(at_ms, now=now) == "23:30:00"
        assert local_time(at_ms, exact=True, now=now) == "23:30:00.007"
        assert local_time(at_ms - 86_400_000, now=now) == "2026-11-17 23:30:00"
        assert local_time(at_ms + 3_600_000, now=now) == "2026-11-19 00:30:00"
        monkeypatch.setenv("TZ", "Etc/GMT-2")  # two hours east of Greenwich, where both are on the nineteenth
        time.tzset()
        assert local_time(at_ms + 3_600_000, now=now) == "02:30:00"
    finally:
        monkeypatch.undo()
        time.tzset()
    assert local_time(0)[:5] in ("1969-", "1970-"), "without `now`, today is today"
