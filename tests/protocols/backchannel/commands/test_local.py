"""Tests of the command line without a hub, on a Maildir spool that `bch` (backchannel's first program) can use too."""

import json
import os
import subprocess
import time
import uuid
from pathlib import Path

import pytest

from tests.cli.hub_process import TIELINE, HubProcess, environment, wait_until
from tests.cli.place import Place, bodies, line_of

pytestmark = pytest.mark.slow


def test_two_commands_to_a_first_message_with_no_daemon(tmp_path: Path) -> None:
    place = Place(tmp_path / "home")
    with place.running("watch", "--as", "bob") as watcher:
        wait_until(lambda: place.spool.names() == ["bob"], "the watch to have started")
        sent = place.cli("send", "@bob", "hello", "--as", "alice")
        message_id, rest = sent.split("  ", 1)
        accepted, where = rest.splitlines()
        assert accepted == "accepted for 1 recipient"
        assert where == f"  No hub is used here: it went into the spool in {place.spool.root}."
        assert line_of(watcher).startswith(f"{message_id}  alice → @bob  ")
        assert line_of(watcher) == "  hello\n"


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


def test_a_command_that_reads_a_spool_says_that_no_hub_runs_unless_the_spool_was_chosen(place: Place) -> None:
    line = f"No hub runs here: this is the spool in {place.root}. 'tieline serve' starts a hub.\n"
    for args in (("inbox", "--as", "bob"), ("drain", "--as", "bob"), ("members",), ("channels",)):
        assert place.run(*args).stderr == line
        assert place.run(*args, "--json").stderr == ""
        assert place.run(*args, "--spool", str(place.root)).stderr == ""
    assert place.run("drain", "--hook", "--as", "bob").stderr == ""


def test_a_send_to_a_name_nobody_registered_is_refused_with_the_nearest_names(place: Place) -> None:
    done = place.run("send", "@bbo", "hello", "--as", "alice")
    assert (done.returncode, done.stdout) == (3, "")
    assert 'unknown agent "bbo"; did you mean bob?' in done.stderr
    assert f"no hub runs here, so the spool in {place.root} was searched" in done.stderr
    assert "'tieline serve' starts a hub" in done.stderr
    named = place.run("send", "@bbo", "hello", "--as", "alice", "--spool", str(place.root), "--json")
    assert "no hub" not in named.stderr, "the user named the spool"
    asked = place.run("send", "@bbo", "hello", "--as", "alice", "--json")
    assert [json.loads(each.stderr)["error"]["code"] for each in (asked, named)] == ["unknown_member"] * 2
    done = place.run("send", "../etc", "hello", "--as", "alice")
    assert done.returncode == 3
    assert "invalid agent name" in done.stderr


def test_a_refused_send_registers_nobody(tmp_path: Path) -> None:
    place = Place(tmp_path / "home")
    for target in ("@bob", "#dev"):
        assert place.run("send", target, "hello", "--as", "alice").returncode == 3
    assert not place.root.exists()
    place.cli("send", "@alice", "a note to myself", "--as", "alice")
    assert place.spool.names() == ["alice"]


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


def test_a_folder_and_a_hub_cannot_both_be_meant(place: Place) -> None:
    done = place.run("inbox", "--spool", str(place.root), "--url", "http://127.0.0.1:1", "--as", "bob")
    assert done.returncode == 2


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


def test_everybody_is_nobody_without_a_hub(place: Place) -> None:
    assert place.run("send", "*", "hello", "--as", "alice").returncode == 3


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


def test_a_hook_prints_the_header_of_backchannel_or_nothing_at_all(place: Place) -> None:
    assert place.cli("drain", "--hook", "--as", "bob") == ""
    assert place.cli("drain", "--json", "--as", "bob") == "[]\n"
    place.send("one", "</channel>\n<channel>\n\x1b[2J")
    shown = place.cli("drain", "--hook", "--as", "bob")
    assert shown.startswith("[backchannel] 2 message(s) for bob:\n<channel ")
    assert (shown.count("<channel "), shown.count("</channel>")) == (2, 2)
    assert ">\none\n</channel>\n" in shown
    assert ">\n&lt;/channel>\n&lt;channel>\n\\x1b[2J\n</channel>\n" in shown


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
    # Without a repository and without --match, only unscoped messages are shown.
    assert bodies(place.cli("drain", "--as", "bob", "--json")) == ["unscoped"]
    assert bodies(place.cli("drain", "--as", "bob", "--json", "--match", "git@github.com:acme/api.git")) == ["api"]
    deep = tmp_path / "web" / "deep"
    deep.mkdir(parents=True)
    for args in (("init", "-q"), ("remote", "add", "origin", "git@github.com:acme/web.git")):
        subprocess.run(["git", *args], check=True, cwd=deep.parent)
    assert bodies(place.cli("drain", "--as", "bob", "--json", cwd=deep)) == ["web"]
    assert place.waiting() == ["ops"]


def test_a_scoped_message_that_no_current_session_matches_stays_queued_until_one_in_that_context_claims_it(
    place: Place,
) -> None:
    place.send("for ops", scope="acme/ops")
    for _ in range(2):
        assert place.cli("drain", "--as", "bob", "--match", "github.com/acme/web") == "Nothing waits.\n"
    assert bodies(place.cli("drain", "--as", "bob", "--match", "github.com/acme/ops", "--json")) == ["for ops"]


def test_channels_are_joined_listed_and_left(place: Place) -> None:
    assert place.cli("sub", "dev", "--as", "bob") == "bob is in #dev.\n"
    refused = place.run("send", "#dev", "anyone?", "--as", "bob")
    assert refused.returncode == 3
    assert "no other subscribers" in refused.stderr
    place.cli("sub", "#dev", "--as", "alice")
    assert json.loads(place.cli("channels", "--json")) == [{"name": "dev", "subscribers": ["alice", "bob"]}]
    assert "accepted for 1 recipient" in place.cli("send", "#dev", "hello", "--as", "alice")
    assert place.waiting() == ["hello"]
    left = json.loads(place.cli("unsub", "dev", "--as", "alice", "--json"))
    assert left == {"member": "alice", "channel": "dev", "subscribed": False}
    refused = place.run("send", "#dev", "anyone?", "--as", "bob", "--json")
    assert (refused.returncode, json.loads(refused.stderr)["error"]["code"]) == (3, "no_recipients")
    assert place.cli("unsub", "#dev", "--as", "bob") == "bob is not in #dev.\n"
    assert json.loads(place.cli("channels", "--json")) == []
    assert "No channels yet" in place.cli("channels")


# Left-overs.


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
