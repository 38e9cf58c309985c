"""Tests that every command with `--json` prints a document of its shape, by which the documentation describes it.

One test runs the commands in one story: against a hub, on a spool without a hub, and on a home without one. They run in
this process, because a process for each would take a minute. Commands of the pipeline that need Spark run in
`tests/pipeline`, and the demo in `tests/e2e`, which check their shapes; that of the report is its type alone.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from msgspec import Struct
from typer.testing import CliRunner

from tests.cli.hub_process import OWN_VARIABLES, HubProcess
from tests.cli.printed import assert_shape, fits
from tests.protocols.peerbus.foreign import make_database
from tests.protocols.peerbus.peers import envelope
from tests.stores.postgres_server import database_url
from tieline.cli.documents import Failed, Sent, derive, fill
from tieline.cli.main import make_app
from tieline.cli.shapes import schema, shapes
from tieline.client import Accepted

ELSEWHERE = {path for path in shapes() if path.startswith(("pipeline ", "cluster "))} | {"demo"}
"""Commands whose tests, in other files, check the shape: they take a whole demo, Spark, or several hubs."""
OTHER_TOKEN = "token-two-of-the-tests"
CONFIG = f"""\
[backchannel]
room_token = "room-token-of-the-tests"
[peerbus]
tokens = ["token-one-of-the-tests", "{OTHER_TOKEN}"]
hmac_secret = "{"k" * 32}"
"""


def paths(command: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all commands and groups that have `--json`. Another name of a command is hidden."""
    if any("--json" in one.opts for one in command.params):
        yield path
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from paths(inner, f"{path} {name}".strip())


class Story:
    """Runs commands in this process, and checks the shape of everything that they print."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        self.told: set[str] = set()
        self._app = make_app()
        self._home = home

    def run(self, path: str, *arguments: object, exit_code: int | None = 0, speaker: str | None = None) -> Any:
        """Run a command with `--json`, check what it prints, and return it. `exit_code` `None` allows any code."""
        words = [*path.split(), *map(str, arguments), "--json", *(["--as", speaker] if speaker else [])]
        done = CliRunner().invoke(self._app, words, env={"TIELINE_HOME": str(self._home)})
        assert exit_code in (done.exit_code, None), f"{words}: {done.output} {done.exception!r}"
        for document in done.stdout.splitlines():
            assert_shape(path, document)
        self.told.add(path)
        if exit_code:
            assert fits(Failed, done.stderr.splitlines()[-1])
        return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Story, HubProcess]]:
    """Fixture: commands for a home of a hub that does not run yet, in the environment of a user with Claude Code."""
    for name in os.environ:
        if name.startswith(OWN_VARIABLES):
            monkeypatch.delenv(name)
    program = tmp_path / "claude"
    program.write_text("#!/bin/sh\necho '2.1.197 (Claude Code)'\n", encoding="utf-8")
    program.chmod(0o700)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    hub = HubProcess("--peerbus", "127.0.0.1:0")
    try:
        yield Story(tmp_path, hub.home), hub
    finally:
        hub.__exit__()


def without_a_hub(story: Story) -> None:
    """Run the commands that work on a home in which no hub runs."""
    database = story.folder / "peerbus.db"
    make_database(
        database, ["alice", "bob"], [("m-1", "alice", "bob", envelope("alice", "bob", "hi", id="m-1"), False)]
    )
    story.run("import peerbus", database)
    story.run("member list")


def on_a_spool(story: Story) -> None:
    """Run the commands that work on a spool. Then import it into the home."""
    spool = story.folder / "spool"

    def run(path: str, *arguments: object) -> Any:
        return story.run(path, *arguments, "--spool", spool, speaker="ann")

    run("sub", "dev")
    sent = [run("send", "@ann", "hello")["id"] for _ in range(3)]
    run("inbox")
    run("take", sent[0])
    run("drain")
    for path in ("members", "channels", "whoami"):
        run(path)
    run("send", "@ann", "once more")
    story.run("import backchannel", spool)


def messages(story: Story, hub: HubProcess) -> None:
    """Run the commands for messages, as alice and bob."""
    sent = story.run("send", "@bob", "hello", "--data", '{"a": [1]}', "--ref", "a.py", speaker="alice")
    story.run("receipts", sent["id"], speaker="alice")
    story.run("inbox", speaker="bob")
    story.run("inbox", "--digest", speaker="bob")
    story.run("take", sent["id"], speaker="bob")
    story.run("reply", sent["id"], "yes", speaker="bob")
    waited = story.run("send", "@bob", "wait", "--wait-for", "acked", "--timeout", "0.1", exit_code=5, speaker="alice")
    assert waited["receipts"]
    story.run("drain", speaker="bob")
    dropped = story.run("send", "@bob", "not needed", speaker="alice")
    story.run("discard", dropped["id"], speaker="bob")
    story.run("history", speaker="bob")
    story.run("search", "hello", speaker="bob")
    hub.send("alice", "@bob", "for the watcher")
    for place in ((), ("--spool", str(story.folder / "spool"))):
        speaker = "ann" if place else "bob"
        with hub.cli_running("watch", "--json", "--as", speaker, *place) as watching:
            assert watching.stdout is not None
            assert_shape("watch", watching.stdout.readline())
    story.told.add("watch")
    story.run("redact", sent["id"], "--reason", "a password")


def team(story: Story) -> None:
    """Run the commands for members, channels, pauses and objectives."""
    story.run("member add", "carol", "--kind", "human")
    story.run("member rotate", "carol")
    story.run("member tokens", "carol")
    story.run("member kind", "carol", "script")
    story.run("member alias", "carol", "caroline")
    story.run("member reach", "carol", "--way", "push=30", "--way", "notify", "--notify", "alice")
    for path in ("members", "channels", "whoami"):
        story.run(path, speaker="alice")
    story.run("whoami")
    story.run("sub", "dev", speaker="alice")
    story.run("unsub", "dev", speaker="alice")
    story.run("pause", "@alice+@bob")
    story.run("pause")
    story.run("resume", "@alice+@bob")
    story.run("allow", "@alice+@bob")
    story.run("invite")
    story.run("invite revoke", story.run("invite list")[0]["id"])
    story.run("invite rotate")
    story.run("peerbus retoken", "bob", "--token", OTHER_TOKEN)
    objectives(story)
    story.run("member remove", "carol")


def objectives(story: Story) -> None:
    """Run the commands for objectives."""
    rights = (("--permission", f"objectives.{verb}") for verb in ("create", "cancel", "reassign"))
    story.run("member add", "maria", *(word for right in rights for word in right))

    def run(verb: str, *arguments: object) -> Any:
        return story.run(f"objectives {verb}", *arguments, speaker="maria")

    made = [run("create", "Ship", "--outcome", "it is out", "--assignee", "maria")["id"] for _ in range(2)]
    run("block", made[0], "no access")
    run("unblock", made[0])
    run("watch", made[0], "bob")
    run("unwatch", made[0], "bob")
    run("discuss", made[0], "how far is it?")
    run("complete", made[0], "done")
    run("view", made[0])
    run("reassign", made[1], "bob")
    run("cancel", made[1], "--reason", "not needed")
    run("list", "--all")


def operating(story: Story) -> None:
    """Run the commands for the hub, its data, and an agent's program."""
    story.run("status")
    story.run("login", "alice")
    story.run("logs")
    story.run("doctor", "--canary", exit_code=None)  # it may find something wrong with this machine
    (story.folder / "backups").mkdir()
    made = story.run("backup", story.folder / "backups", "--keep", "1")
    story.run("restore", made["file"], "--home", story.folder / "restored")
    story.run("store copy", f"sqlite:{story.folder / 'restored'}", database_url(story.folder))
    story.run("service status", exit_code=1)
    story.run("config show")
    story.run("audit verify")
    story.run("audit checkpoint")
    story.run("log readers")
    story.run("connect", "claude-code", "--yes")
    story.run("disconnect", "claude-code")


@pytest.mark.slow
def test_every_command_prints_the_shape_that_the_documentation_describes(story: tuple[Story, HubProcess]) -> None:
    """A new command with `--json` fails here, until it has a shape and a place in the story."""
    told, hub = story
    hub.home.mkdir(mode=0o700)
    (hub.home / "tieline.toml").write_text(CONFIG, encoding="utf-8")
    without_a_hub(told)
    on_a_spool(told)
    hub.start()
    team(told)
    messages(told, hub)
    operating(told)
    assert told.told | ELSEWHERE == set(paths(typer.main.get_command(make_app())))


def test_every_command_with_json_has_a_shape() -> None:
    assert set(shapes()) == set(paths(typer.main.get_command(make_app())))


def test_the_schema_names_every_command_and_every_reference_leads_to_a_type() -> None:
    made = schema()
    names = set(made["$defs"])
    assert {f"tieline-{path.replace(' ', '-')}" for path in shapes()} < names
    assert [name for name in names if "." in name] == [], "two types have the same name"
    text = msgspec.json.encode(made).decode()
    referred = {part.partition('"')[0] for part in text.split('"#/$defs/')[1:]}
    assert referred
    assert referred <= names


def test_a_document_with_a_field_too_many_or_too_few_does_not_fit() -> None:
    document = {"id": "m", "offset": 1, "recipients": 2}
    assert fits(Sent, json.dumps(document))
    assert not fits(Sent, json.dumps({**document, "more": 1}))
    assert not fits(Sent, json.dumps({"id": "m", "offset": 1}))
    assert not fits(Sent, json.dumps({**document, "receipts": [{"member": "bob", "state": "acked"}]}))


def test_a_derived_document_follows_its_type() -> None:
    class Plain(Struct, rename={"sender": "from"}):
        """A type with a field of another name in JSON."""

        n: int
        sender: str
        many: list[int] = []

    made = derive(Plain, "Derived", "Text.", without=("n",), first=(("intact", bool),), last=(("end", int, 0),))
    told = msgspec.json.encode(fill(made, Plain(1, "ann"), intact=True))
    assert told == b'{"intact":true,"from":"ann","many":[],"end":0}'
    accepted = fill(Sent, Accepted(7, "m", 1, 2, held="paused"))
    assert msgspec.json.encode(accepted) == b'{"id":"m","offset":1,"recipients":2,"held":"paused"}'
