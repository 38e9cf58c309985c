"""The command line without a hub: on a Maildir spool, which `bch` shares with us."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.hub_process import DEADLINE_SECONDS, TIELINE, HubProcess, environment, wait_until
from tieline.cli.failure import Exit, Failure
from tieline.cli.reaction import script_of, variables
from tieline.client import Message as Shown
from tieline.protocols.backchannel import Letter, Spool
from tieline.protocols.backchannel.invite import decode_invite


class Place:
    """A home where no hub ever was, and its spool."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / "spool-home"
        self.spool = Spool(self.root)

    def cli(self, *args: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
        """Run `tieline`, which must succeed; returns what it printed."""
        done = self.run(*args, cwd=cwd, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(
        self, *args: str, cwd: Path | None = None, env: dict[str, str] | None = None, stdin: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        """Run `tieline` to its end."""
        return subprocess.run(
            [str(TIELINE), *args],
            check=False,
            input=stdin,
            capture_output=True,
            text=True,
            cwd=cwd or self.home.parent,
            env=environment(self.home, env),
            timeout=DEADLINE_SECONDS,
        )

    @contextlib.contextmanager
    def running(self, *args: str) -> "Iterator[subprocess.Popen[str]]":
        """A `tieline` that goes on meanwhile."""
        with subprocess.Popen(
            [str(TIELINE), *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.home.parent,
            env=environment(self.home),
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def send(self, *bodies: str, to: str = "@bob", scope: str | None = None, priority: str = "normal") -> list[str]:
        """Send as alice, quicker than by a command each."""
        letters = [Letter(sender="alice", to=to, body=body, scope=scope, priority=priority) for body in bodies]
        return [sent.message.id for sent in self.spool.send_many(letters)]

    def waiting(self, name: str = "bob") -> list[str]:
        """The bodies of what is unread."""
        return [message.body for message in self.spool.inbox(name)]

    def is_left(self, *bodies: str) -> bool:
        """Whether just these are unread, and nothing is being handled."""
        handled = list((self.root / "spool" / "bob" / "cur").glob("*.claim"))
        return not handled and self.waiting() == list(bodies)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Give a place where bob is registered."""
    made = Place(tmp_path / "home")
    made.spool.register("bob")
    return made


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def bodies(output: str) -> list[str]:
    return [item["message"]["body"] for item in json.loads(output)]


# Commands that a message is handed to; no process is needed to see what the shell gets.


HOSTILE = "$(touch owned) `touch owned` ; touch owned # \" ' \\ \n touch owned"


def a_message(body: str) -> Shown:
    return Shown("id", 0, "eve", "@bob", body, 0, "backchannel")


@pytest.mark.parametrize(
    "command",
    [
        "printf %s {{body}}",
        'printf %s "{{body}}"',
        "printf %s '{{body}}'",
        'x=$(printf %s {{body}}); printf %s "$x"',
        "if true; then printf %s {{body}}; fi # {{body}}",
        "printf %s \\{\\{ >/dev/null; printf %s {{body}}",
    ],
)
def test_a_template_is_quoted_so_that_no_body_becomes_a_command(command: str, tmp_path: Path) -> None:
    done = subprocess.run(
        script_of(command),
        shell=True,
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **variables(a_message(HOSTILE))},
        timeout=20,
    )
    assert done.stdout == HOSTILE
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command", ['sh -c "echo {{body}}"', "sh -c 'echo {{body}}'", '"a {{body}}"', '" {{from}} {{body}}"']
)
def test_a_template_among_other_text_in_quotes_is_refused(command: str) -> None:
    with pytest.raises(Failure) as error:
        script_of(command)
    assert error.value.code is Exit.USAGE


def test_a_command_has_each_part_of_a_message_under_both_names() -> None:
    message = Shown("id", 0, "eve", "@bob", "x\0y", 0, "backchannel", scope="s", thread="t")
    for prefix in ("TIELINE_", "BCH_"):
        found = {name.removeprefix(prefix): value for name, value in variables(message).items() if prefix in name}
        assert found == {
            "ID": "id",
            "FROM": "eve",
            "TO": "@bob",
            "BODY": "xy",
            "PRIORITY": "normal",
            "SCOPE": "s",
            "THREAD": "t",
        }


# The rest runs the command.

slow = pytest.mark.slow


@slow
def test_two_commands_to_a_first_message_with_no_daemon(tmp_path: Path) -> None:
    place = Place(tmp_path / "home")
    with place.running("watch", "--as", "bob") as watcher:
        wait_until(lambda: place.spool.names() == ["bob"], "the watch to have started")
        sent = place.cli("send", "@bob", "hello", "--as", "alice")
        message_id, rest = sent.split("  ")
        assert rest == "accepted for 1 recipient\n"
        assert line_of(watcher).startswith(f"{message_id}  alice → @bob  ")
        assert line_of(watcher) == "  hello\n"


@slow
def test_the_speaking_agent_is_registered_by_its_first_command(tmp_path: Path) -> None:
    place = Place(tmp_path / "home")
    for name, args in {
        "a": ("inbox",),
        "b": ("drain",),
        "c": ("sub", "#dev"),
        "d": ("send", "@a", "hi"),
    }.items():
        place.cli(*args, "--as", name)
        assert name in place.spool.names()
    assert place.spool.register("a").subscriptions == ()
    assert place.run("take", "0", "--as", "e").returncode == 3
    assert place.spool.names() == ["a", "b", "c", "d", "e"]


@slow
def test_a_send_to_a_name_nobody_registered_is_refused_with_the_nearest_names(place: Place) -> None:
    done = place.run("send", "@bbo", "hello", "--as", "alice")
    assert (done.returncode, done.stdout) == (3, "")
    assert 'unknown agent "bbo"; did you mean bob?' in done.stderr
    done = place.run("send", "../etc", "hello", "--as", "alice")
    assert done.returncode == 3
    assert "invalid agent name" in done.stderr


@slow
def test_a_home_with_a_hubs_database_and_no_running_hub_is_not_bypassed(tmp_path: Path) -> None:
    with HubProcess() as hub:
        hub.add_members("alice", "bob")
        assert hub.stop() == 0
        for args in (
            ("send", "@bob", "hello", "--as", "alice"),
            ("inbox", "--as", "bob"),
            ("take", "0", "--as", "bob"),
            ("drain", "--as", "bob"),
            ("watch", "--as", "bob"),
            ("sub", "dev", "--as", "bob"),
            ("members",),
            ("channels",),
            ("whoami",),
            ("init", "carol"),
        ):
            done = hub.cli(*args)
            assert (done.returncode, done.stdout) == (4, ""), args
            assert "tieline serve --home" in done.stderr
        spool = hub.home / "spool-home"
        assert not [*spool.glob("spool/*/new/*"), *spool.glob("agents/carol.json")]
        # Unless the spool is named: then nothing is silent about it.
        assert hub.cli("members", "--spool", str(tmp_path / "spool")).returncode == 0


@slow
def test_the_spool_is_named_or_the_environments_or_the_homes_or_the_users(tmp_path: Path) -> None:
    named, ours, home, user = (tmp_path / name for name in ("named", "ours", "home", "user"))

    def where(*args: str, env: dict[str, str]) -> str:
        bare = {name: value for name, value in environment(home, env).items() if value}
        command = [str(TIELINE), "whoami", "--as", "bob", *args]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=bare, timeout=20)
        return done.stdout.removeprefix("bob, through the spool in ").strip()

    everything = {"BACKCHANNEL_HOME": str(ours), "HOME": str(user), "XDG_STATE_HOME": str(user / "state")}
    assert where("--spool", str(named), env=everything) == str(named)
    assert where(env=everything) == str(ours)
    without = {**everything, "BACKCHANNEL_HOME": ""}
    assert where(env=without) == str(home / "spool-home")
    assert where("--home", str(home), env={**without, "TIELINE_HOME": ""}) == str(home / "spool-home")
    assert where(env={**without, "TIELINE_HOME": ""}) == str(user / ".backchannel")
    assert not any(path.exists() for path in (named, ours, home)), "asking who I am makes nothing"


@slow
def test_a_folder_and_a_hub_cannot_both_be_meant(place: Place) -> None:
    done = place.run("inbox", "--spool", str(place.root), "--url", "http://127.0.0.1:1", "--as", "bob")
    assert done.returncode == 2


@slow
@pytest.mark.parametrize(
    "option",
    [
        ("--wait-for", "acked"),
        ("--title", "t"),
        ("--data", "{}"),
        ("--level", "error"),
        ("--ttl", "5"),
        ("--reply-to", "x"),
    ],
)
def test_what_only_a_hub_can_do_is_refused_with_a_sentence(place: Place, option: tuple[str, str]) -> None:
    done = place.run("send", "@bob", "hello", "--as", "alice", *option)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"{option[0]} needs a hub" in done.stderr
    assert place.waiting() == []


@slow
def test_everybody_is_nobody_without_a_hub(place: Place) -> None:
    assert place.run("send", "*", "hello", "--as", "alice").returncode == 3


@slow
def test_a_message_is_written_exactly_as_bch_writes_it(place: Place) -> None:
    args = ["--urgent", "--scope", "acme/api", "--thread", "t", "--ref", "a", "--ref", "b", "--as", "alice", "--json"]
    sent = json.loads(place.cli("send", "bob", "several", "words", *args))
    path = place.root / "spool" / "bob" / "new" / f"{sent['id']}.json"
    assert sent == {"id": sent["id"], "recipients": 1}
    stored = json.loads(path.read_text())
    ts = stored.pop("ts")
    assert list(stored.items()) == [
        ("id", sent["id"]),
        ("from", "alice"),
        ("to", "bob"),
        ("body", "several words"),
        ("priority", "urgent"),
        ("scope", "acme/api"),
        ("thread", "t"),
        ("refs", ["a", "b"]),
    ]
    assert ts.endswith("Z")
    assert str(uuid.UUID(sent["id"])) == sent["id"]


@slow
def test_what_bch_wrote_is_drained(tmp_path: Path) -> None:
    place = Place(tmp_path / "home")
    (place.root / "agents").mkdir(parents=True)
    (place.root / "spool" / "bob" / "new").mkdir(parents=True)
    ts = "2026-06-12T12:00:00.000Z"
    record = {"name": "bob", "subscriptions": [], "createdAt": ts, "lastSeen": ts, "tokenHash": "secret"}
    (place.root / "agents" / "bob.json").write_text(json.dumps(record, indent=2))
    (place.root / "config.json").write_text(json.dumps({"agent": "bob"}, indent=2))
    message_id = str(uuid.uuid4())
    document = {"id": message_id, "from": "a", "to": "@bob", "body": "hi", "priority": "normal", "ts": ts}
    (place.root / "spool" / "bob" / "new" / f"{message_id}.json").write_text(json.dumps(document))
    (place.root / "spool" / "bob" / "new" / "junk.json").write_text("junk")
    listed = place.cli("members", "--json")
    assert "secret" not in listed
    assert [(each["name"], each["backlog"]) for each in json.loads(listed)] == [("bob", 1)]
    (item,) = json.loads(place.cli("drain", "--json"))
    assert item["state"] == "acked"
    assert item["message"] == {
        "id": message_id,
        "from": "a",
        "target": "@bob",
        "body": "hi",
        "sent_at_ms": 1_781_265_600_000,
        "protocol": "backchannel",
        "verified": False,
    }
    assert json.loads((place.root / "agents" / "bob.json").read_text())["tokenHash"] == "secret"


@slow
def test_inbox_peeks_and_take_claims_by_the_beginning_of_an_id(place: Place) -> None:
    one, two, three = place.send("one", "two", "three")
    assert bodies(place.cli("inbox", "--as", "bob", "--json")) == ["one", "two", "three"]
    assert [line.split(": ")[1] for line in place.cli("inbox", "--as", "bob", "--brief").splitlines()] == [
        "one",
        "two",
        "three",
    ]
    assert "  one\n" in place.cli("take", one, "--as", "bob")
    again = place.run("take", one, "--as", "bob")
    assert (again.returncode, again.stdout) == (3, "")
    assert "  two\n" in place.cli("read", two[:13].upper(), "--as", "bob", "--keep")
    taken = json.loads(place.cli("take", three, "--as", "bob", "--json"))
    assert (taken["state"], taken["message"]["body"]) == ("acked", "three")
    assert [path.name for path in (place.root / "spool" / "bob" / "cur").iterdir()] == [f"{two}.json"]
    assert place.cli("inbox", "--as", "bob") == "Nothing waits.\n"


@slow
def test_a_hook_prints_the_header_of_backchannel_or_nothing_at_all(place: Place) -> None:
    assert place.cli("drain", "--hook", "--as", "bob") == ""
    assert place.cli("drain", "--json", "--as", "bob") == "[]\n"
    place.send("one", "[backchannel] 9 message(s) for bob:\n\x1b[2J")
    header, *lines = place.cli("drain", "--hook", "--as", "bob").splitlines()
    assert header == "[backchannel] 2 message(s) for bob:"
    assert "  one" in lines
    assert "  \\x1b[2J" in lines
    assert not any(line.startswith("[backchannel]") for line in lines)


@slow
def test_readers_only_claim_messages_whose_scope_is_in_their_match_plus_unscoped_ones(
    place: Place, tmp_path: Path
) -> None:
    place.send("unscoped")
    place.send("api", scope="https://github.com/Acme/Api.git")
    place.send("web", scope="acme/web")
    place.send("ops", scope="acme/ops")
    # In any order: what was sent within one millisecond has none.
    assert set(bodies(place.cli("inbox", "--as", "bob", "--json"))) == {"unscoped", "api", "web", "ops"}
    matching = place.cli("inbox", "--as", "bob", "--json", "--match", "github.com/acme/web")
    assert set(bodies(matching)) == {"unscoped", "web"}
    # Where there is no repository and no --match, only unscoped ones.
    assert bodies(place.cli("drain", "--as", "bob", "--json")) == ["unscoped"]
    assert bodies(place.cli("drain", "--as", "bob", "--json", "--match", "git@github.com:acme/api.git")) == ["api"]
    deep = tmp_path / "web" / "deep"
    deep.mkdir(parents=True)
    for args in (("init", "-q"), ("remote", "add", "origin", "git@github.com:acme/web.git")):
        subprocess.run(["git", *args], check=True, cwd=deep.parent)
    assert bodies(place.cli("drain", "--as", "bob", "--json", cwd=deep)) == ["web"]
    assert place.waiting() == ["ops"]


@slow
def test_a_scoped_message_that_no_current_session_matches_stays_queued_until_one_in_that_context_claims_it(
    place: Place,
) -> None:
    place.send("for ops", scope="acme/ops")
    for _ in range(2):
        assert place.cli("drain", "--as", "bob", "--match", "github.com/acme/web") == "Nothing waits.\n"
    assert bodies(place.cli("drain", "--as", "bob", "--match", "github.com/acme/ops", "--json")) == ["for ops"]


@slow
def test_channels_are_joined_listed_and_left(place: Place) -> None:
    assert place.cli("sub", "dev", "--as", "bob") == "bob is in #dev.\n"
    refused = place.run("send", "#dev", "anyone?", "--as", "bob")
    assert refused.returncode == 3
    assert "no other subscribers" in refused.stderr
    place.cli("sub", "#dev", "--as", "alice")
    assert json.loads(place.cli("channels", "--json")) == [{"name": "dev", "subscribers": ["alice", "bob"]}]
    assert "accepted for 1 recipient" in place.cli("send", "#dev", "hello", "--as", "alice")
    assert place.waiting() == ["hello"]
    place.cli("unsub", "dev", "--as", "alice")
    assert place.cli("unsub", "#dev", "--as", "bob") == "bob is not in #dev.\n"
    assert json.loads(place.cli("channels", "--json")) == []
    assert "No channels yet" in place.cli("channels")


# Who speaks.


@slow
def test_init_stores_who_speaks_and_flags_and_variables_are_stronger(tmp_path: Path) -> None:
    place = Place(tmp_path / "home")
    nobody = place.run("inbox")
    assert nobody.returncode == 2
    assert "tieline init" in nobody.stderr
    assert "bob speaks from here now" in place.cli("init", "bob")
    assert (place.root / "config.json").read_text() == '{\n  "agent": "bob"\n}'
    assert place.spool.names() == ["bob"]

    def who(*args: str, env: dict[str, str] | None = None) -> str:
        return str(json.loads(place.cli("whoami", "--json", *args, env=env))["speaker"])

    both = {"TIELINE_AGENT": "tie", "BACKCHANNEL_AGENT": "back"}
    assert who() == "bob"
    assert who(env={"BACKCHANNEL_AGENT": "back"}) == "back"
    assert who(env=both) == "tie"
    assert who("--as", "flag", env=both) == "flag"
    place.cli("send", "@bob", "to myself")
    assert place.waiting() == ["to myself"]


@slow
def test_a_malformed_configuration_is_said_and_not_passed_over(place: Place) -> None:
    (place.root / "config.json").write_text("{")
    for args in (("inbox",), ("inbox", "--as", "bob")):
        done = place.run(*args)
        assert done.returncode == 1
        assert "config.json" in done.stderr


@slow
def test_a_token_without_a_hub_is_not_passed_over(place: Place) -> None:
    for args, env in ((("--token", "t"), {}), ((), {"TIELINE_TOKEN": "t"})):
        done = place.run("inbox", "--as", "bob", *args, env=env)
        assert (done.returncode, done.stdout) == (4, "")
    assert place.run("inbox", "--as", "bob", "--spool", str(place.root), env={"TIELINE_TOKEN": "t"}).returncode == 0


@slow
def test_a_folder_that_is_not_ours_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    done = Place(tmp_path / "home").run("inbox", "--as", "bob", "--spool", str(tmp_path / "file"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr


@slow
def test_a_malformed_record_is_said_by_its_file(place: Place) -> None:
    (place.root / "agents" / "bob.json").write_text("{")
    done = place.run("send", "@bob", "hello", "--as", "alice")
    assert (done.returncode, done.stdout) == (1, "")
    assert "bob.json" in done.stderr


# Watching.


@slow
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


@slow
def test_a_command_gets_the_message_on_stdin_in_its_environment_and_by_template(place: Place) -> None:
    seen = place.home.parent / "seen"
    script = f'cat > {shlex.quote(str(seen))}; printf "%s|%s|%s\\n" "$TIELINE_FROM" "$BCH_TO" {{{{body}}}}'
    (message_id,) = place.send("$(touch owned)")
    with place.running("watch", "--as", "bob", "--exec", script) as watcher:
        assert line_of(watcher) == "alice|@bob|$(touch owned)\n"
        wait_until(place.is_left, "the message to be finished")
    stdin = json.loads(seen.read_text())
    assert (stdin["id"], stdin["from"], stdin["body"]) == (message_id, "alice", "$(touch owned)")
    assert not (place.home.parent / "owned").exists()


@slow
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


@slow
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


@slow
def test_a_command_of_a_watch_answers_as_the_watching_agent(place: Place) -> None:
    place.spool.register("alice")
    with place.running("watch", "--as", "bob", "--exec", f"{TIELINE} send @{{{{from}}}} got {{{{body}}}}"):
        place.send("it")
        wait_until(lambda: place.waiting("alice") == ["got it"], "the answer")
    assert [message.sender for message in place.spool.inbox("alice")] == ["bob"]


@slow
def test_of_two_watchers_one_gets_each_message(place: Place) -> None:
    with (
        place.running("watch", "--as", "bob", "--json") as first,
        place.running("watch", "--as", "bob", "--json") as second,
    ):
        ids = place.send(*(str(number) for number in range(40)))
        # What was claimed is printed before the claim's file goes.
        wait_until(place.is_left, "all to be taken and finished")
        for watcher in (first, second):
            watcher.send_signal(signal.SIGINT)
        outputs = [watcher.communicate(timeout=20)[0] for watcher in (first, second)]
    seen = [json.loads(line)["message"]["id"] for output in outputs for line in output.splitlines()]
    assert sorted(seen) == sorted(ids)


@slow
def test_what_cannot_be_printed_is_not_taken(place: Place) -> None:
    place.send("x" * 1000)
    command = f"{TIELINE} drain --as bob >&-"
    done = subprocess.run(
        command, shell=True, check=False, stderr=subprocess.PIPE, env=environment(place.home), timeout=20
    )
    assert done.returncode != 0
    assert place.waiting() == ["x" * 1000]


# Left-overs.


@slow
def test_doctor_reports_left_overs_and_repairs_them(place: Place) -> None:
    (claimed,) = place.send("claimed")
    claims = place.spool.claims("bob")
    assert claims.claim(claimed) is not None
    assert claims._lock is not None
    os.close(claims._lock)
    half = place.root / "spool" / "bob" / "tmp" / f"{uuid.uuid4()}.json"
    half.write_text('{"id": ')
    os.utime(half, (time.time() - 3600,) * 2)
    junk = place.root / "spool" / "bob" / "new" / "junk.txt"
    junk.write_text("junk")
    looked = place.run("doctor")
    assert looked.returncode == 1
    assert str(half) in looked.stdout
    assert half.exists(), "looking changes nothing"
    assert place.run("doctor", "--repair").returncode == 1, "the junk is its owner's to remove"
    assert not half.exists()
    assert place.waiting() == ["claimed"]
    junk.unlink()
    report = json.loads(place.cli("doctor", "--json"))
    expected = {"spool": str(place.root), "agents": 1, "unread": 1, "kept": 0, "findings": []}
    assert {name: report[name] for name in expected} == expected
    assert "Nothing is wrong." in place.cli("doctor")


# Hubs, relays, and joining them.


@slow
def test_with_a_hub_the_stored_name_speaks_and_init_makes_it_a_member(hub: HubProcess, bob: str) -> None:
    name = f"{bob}-here"
    assert f"{name} speaks from here now, through the hub" in hub.cli("init", name).stdout
    try:
        assert json.loads(hub.cli("whoami", "--json").stdout)["member"] == name
        assert hub.cli("send", f"@{bob}", "hello").returncode == 0
        assert json.loads(hub.cli("inbox", "--as", bob, "--json").stdout)[0]["message"]["from"] == name
    finally:
        (hub.home / "spool-home" / "config.json").unlink()


@slow
def test_an_invite_is_accepted_and_the_newcomer_speaks_through_the_hub(
    hub: HubProcess, bob: str, tmp_path: Path
) -> None:
    text = hub.cli("invite", "--channel", f"c-{bob}").stdout.strip()
    invited = decode_invite(text)
    assert (invited.url, invited.channels) == (hub.running.http, (f"#c-{bob}",))
    place = Place(tmp_path / "elsewhere")
    name = f"{bob}-joined"
    joined = place.run("join", text, "--as", name)
    assert joined.returncode == 0, joined.stderr
    assert f"{name} is in #c-{bob}." in joined.stdout
    stored = json.loads((place.root / "config.json").read_text())
    assert (stored["agent"], stored["url"], stored["hub"]) == (name, hub.running.http, hub.running.http)
    assert stored["token"] not in joined.stdout + joined.stderr
    assert invited.token not in (None, stored["token"])
    assert place.cli("send", f"@{bob}", "hello").endswith("accepted for 1 recipient\n")
    assert f"through the hub at {hub.running.http}" in place.cli("whoami")
    hub.send(bob, f"@{name}", "welcome")
    assert bodies(place.cli("drain", "--json")) == ["welcome"]
    assert hub.cli("members").returncode == 0
    # Again under the same name: by its own token.
    assert place.run("join", text, "--as", name).returncode == 0
    other = Place(tmp_path / "other")
    taken = other.run("join", text, "--as", name)
    assert taken.returncode == 3
    assert not (other.root / "config.json").exists()


@slow
def test_through_a_relay_the_same_commands_work(hub: HubProcess, bob: str, alice: str, tmp_path: Path) -> None:
    text = hub.cli("invite").stdout.strip()
    place = Place(tmp_path / "elsewhere")
    name = f"{bob}-relayed"
    place.cli("join", text, "--as", name)
    stored = json.loads((place.root / "config.json").read_text())
    # As another program of backchannel stores it: then nothing but the relay's API is asked.
    del stored["hub"]
    (place.root / "config.json").write_text(json.dumps(stored))
    assert place.cli("whoami") == f"{name}, through the relay at {hub.running.http}\n"
    assert place.cli("send", f"@{bob}", "hello", "--urgent").endswith("  accepted\n")
    (item,) = json.loads(hub.cli("inbox", "--as", bob, "--json").stdout)
    assert (item["message"]["from"], item["message"]["priority"]) == (name, "urgent")
    unknown = place.run("send", "@nobody-at-all", "hello")
    assert unknown.returncode == 3
    assert "unknown agent" in unknown.stderr
    place.cli("sub", f"r-{bob}")
    assert f"#r-{bob}" in place.cli("channels")
    assert name in place.cli("members")
    one, two, three = hub.send(alice, f"@{name}", "one", "two", "three")
    assert bodies(place.cli("inbox", "--json")) == ["one", "two", "three"]
    assert "  one\n" in place.cli("take", one)
    assert place.run("take", one).returncode == 3
    with place.running("watch", "--exec", "cat > /dev/null; echo {{body}}; test {{body}} != two") as watcher:
        assert [line_of(watcher), line_of(watcher)] == ["two\n", "three\n"]
        wait_until(lambda: hub.states(alice, three)[name] == "acked", "the claim after the command")
    assert hub.states(alice, two)[name] != "acked", "what failed is not taken"
    assert bodies(place.cli("drain", "--json")) == ["two"]


@slow
def test_an_address_where_no_relay_is_is_exit_code_4(place: Place) -> None:
    (place.root / "config.json").write_text('{"agent": "bob", "url": "http://127.0.0.1:1", "token": "t"}')
    done = place.run("inbox")
    assert (done.returncode, done.stdout) == (4, "")
    assert "no relay answers at http://127.0.0.1:1" in done.stderr


@slow
def test_what_is_no_invite_is_wrong_usage(place: Place) -> None:
    assert place.run("join", "hello", "--as", "bob").returncode == 2
    assert place.run("invite").returncode == 4
