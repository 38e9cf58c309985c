"""Tests of the command that watches a Maildir spool without a hub."""

import json
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.hub_process import DEADLINE_SECONDS, TIELINE, environment, wait_until
from tests.cli.place import Place, line_of

pytestmark = pytest.mark.slow


def test_a_watch_takes_what_is_urgent_and_leaves_the_rest(place: Place) -> None:
    place.send("normal")
    place.send("urgent", priority="urgent")
    with place.running("watch", "--as", "bob", "--urgent-only", "--json") as watcher:
        assert json.loads(line_of(watcher))["message"]["body"] == "urgent"
        wait_until(lambda: place.is_left("normal"), "the urgent one to be gone")
    with place.running("watch", "--as", "bob", "--peek", "--json") as watcher:
        assert json.loads(line_of(watcher))["message"]["body"] == "normal"
        place.send("later")
        assert json.loads(line_of(watcher))["message"]["body"] == "later"
    assert place.waiting() == ["normal", "later"]


def test_a_command_gets_the_message_on_stdin_in_its_environment_and_by_template(place: Place) -> None:
    seen = place.home.parent / "seen"
    script = f'cat > {shlex.quote(str(seen))}; printf "%s|%s|%s\\n" "$TIELINE_FROM" "$BCH_TO" "$BCH_BODY"'
    (message_id,) = place.send("$(touch owned)")
    with place.running("watch", "--as", "bob", "--exec", script) as watcher:
        assert line_of(watcher) == "alice|@bob|$(touch owned)\n"
        wait_until(place.is_left, "the message to be finished")
    place.send("$(touch owned)")
    with place.running("watch", "--as", "bob", "--exec", r"printf '%s|%s\n' {{from}} {{body}}") as watcher:
        assert line_of(watcher) == "alice|$(touch owned)\n"
        wait_until(place.is_left, "the message to be finished")
    stdin = json.loads(seen.read_text())
    assert (stdin["id"], stdin["from"], stdin["body"]) == (message_id, "alice", "$(touch owned)")
    assert not (place.home.parent / "owned").exists()


def test_a_failing_command_leaves_the_message_unread_and_is_tried_again(place: Place) -> None:
    tried = place.home.parent / "tried"
    script = f"echo x >> {shlex.quote(str(tried))}; test $(wc -l < {shlex.quote(str(tried))}) -ge 2"
    place.send("try me")
    with place.running("watch", "--as", "bob", "--exec", script) as watcher:
        assert watcher.stderr is not None
        assert "ended with 1" in watcher.stderr.readline()
        assert "again in 1 s" in watcher.stderr.readline()
        assert place.waiting() == ["try me"]
        wait_until(lambda: tried.read_text() == "x\nx\n", "the second try")
        wait_until(place.is_left, "its end")


def test_a_watch_that_is_interrupted_gives_back_what_it_was_handling(place: Place) -> None:
    started = place.home.parent / "started"
    place.send("long work")
    with place.running(
        "watch", "--as", "bob", "--exec", f"sleep 60 & echo $! > {shlex.quote(str(started))}; wait"
    ) as watcher:
        wait_until(lambda: started.exists() and started.read_text(), "the command")
        assert place.waiting() == []
        watcher.send_signal(signal.SIGINT)
        watcher.wait(DEADLINE_SECONDS)
    assert place.waiting() == ["long work"]
    wait_until(lambda: not _lives(int(started.read_text())), "what the command had started to end")


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_a_command_of_a_watch_answers_as_the_watching_agent(place: Place) -> None:
    place.spool.register("alice")
    with place.running("watch", "--as", "bob", "--exec", f"{TIELINE} send @{{{{from}}}} got {{{{body}}}}"):
        place.send("it")
        wait_until(lambda: place.waiting("alice") == ["got it"], "the answer")
    assert [message.sender for message in place.spool.inbox("alice")] == ["bob"]


def test_of_two_watchers_one_gets_each_message(place: Place) -> None:
    with (
        place.running("watch", "--as", "bob", "--json") as first,
        place.running("watch", "--as", "bob", "--json") as second,
    ):
        ids = place.send(*(str(number) for number in range(40)))
        # A claimed message is printed before the file of its claim is removed.
        wait_until(place.is_left, "all to be taken and finished")
        for watcher in (first, second):
            watcher.send_signal(signal.SIGINT)
        outputs = [watcher.communicate(timeout=20)[0] for watcher in (first, second)]
    seen = [json.loads(line)["message"]["id"] for output in outputs for line in output.splitlines()]
    assert sorted(seen) == sorted(ids)


def test_what_cannot_be_printed_is_not_taken(place: Place) -> None:
    place.send("x" * 1000)
    command = f"{TIELINE} drain --as bob >&-"
    done = subprocess.run(
        command, shell=True, check=False, stderr=subprocess.PIPE, env=environment(place.home), timeout=20
    )
    assert done.returncode != 0
    assert place.waiting() == ["x" * 1000]
