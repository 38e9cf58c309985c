"""Tests that one folder adds a protocol: the hub runs it, all protocols reach it, and no other file names it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
import pytest

import tieline.protocols
from tests.interop.drivers import Heard, mixed_hub
from tests.registry.toy_folder import FOLDER, TOY, toy_protocol
from tests.server.hubs import running_hub
from tieline.protocols import protocols
from tieline.server.config import load_config
from tieline.wire.protocol import Protocol

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "protocols.md"
OURS = ("ac7", "agent-channels", "agent-relay", "backchannel", "mcp", "peerbus")


@pytest.fixture
def _toy() -> Iterator[None]:
    """Fixture: the hub finds the toy protocol."""
    with toy_protocol():
        yield


def test_the_page_says_how_the_toy_declares_itself_and_every_field_that_there_is() -> None:
    page = PAGE.read_text(encoding="utf-8")
    declaration = (FOLDER / "toy" / "__init__.py").read_text(encoding="utf-8").partition("PROTOCOL = ")
    assert "".join(declaration[1:]).strip() in page
    told = re.findall(r"^\| `(\w+)` \| (yes)? ?\|", page, re.MULTILINE)
    # Those without a default are the first.
    optional = dict(zip(Protocol.__struct_fields__[::-1], Protocol.__struct_defaults__[::-1], strict=False))
    needed = {name: optional.get(name, msgspec.NODEFAULT) is msgspec.NODEFAULT for name in Protocol.__struct_fields__}
    assert {name: bool(mark) for name, mark in told} == needed


def test_the_menu_of_the_documentation_has_the_page_of_each_protocol() -> None:
    menu = (ROOT / "docs" / "zensical.toml").read_text(encoding="utf-8")
    folders = {name.replace("-", "_") for name in OURS}
    assert set(re.findall(r'"wire/(\w+)\.md"', menu)) == {*folders, "tieline"}


@pytest.mark.parametrize("name", OURS)
def test_twin_files_have_twin_names(name: str) -> None:
    folder = Path(*tieline.protocols.__path__) / name.replace("-", "_")
    for file in ("PROTOCOL.md", "__init__.py", "settings.py", "codec.py", "server.py", "client.py", "puppet.py"):
        assert (folder / file).is_file(), file


def test_nothing_outside_the_folders_names_a_protocol() -> None:
    """Exception: the demo's script, with one agent on each protocol."""
    name = re.compile(r"agent.?channels|agent.?relay|backchannel|peerbus|(?<![a-z])ac7", re.IGNORECASE)
    source = Path(tieline.__file__).parent
    script = source / "cli" / "demo" / "script.py"
    found = [
        f"{path.relative_to(source)}: {line.strip()}"
        for path in sorted([*source.rglob("*.py"), *source.rglob("*.sql")])
        if not path.is_relative_to(source / "protocols") and path != script
        for line in path.read_text(encoding="utf-8").splitlines()
        if name.search(line)
    ]
    assert found == []


def test_the_protocols_are_the_folders() -> None:
    assert tuple(protocol.name for protocol in protocols()) == OURS


@pytest.mark.usefixtures("_toy")
def test_a_new_folder_is_found_and_has_its_section_in_a_new_configuration(folder: Path) -> None:
    assert [protocol.name for protocol in protocols()] == [*OURS, TOY]
    config = load_config(folder)
    assert config.protocols[TOY].enabled
    assert "\n[toy]\nenabled = true\n" in (folder / "tieline.toml").read_text()


@pytest.mark.usefixtures("_toy")
@pytest.mark.parametrize("other", [*OURS, TOY])
async def test_the_new_protocol_and_every_other_reach_each_other_live_and_later(folder: Path, other: str) -> None:
    async with mixed_hub(folder / "h") as place:
        toy, target = await place.puppet(TOY, "toy"), await place.puppet(other, "other")
        await toy.send("@other", "there")
        assert await target.hear() == Heard("toy", "there", {})
        await target.send("@toy", "back")
        heard = await toy.hear()
        assert heard.body == "back"
        # One protocol has no sender names, so its form of address counts too.
        assert fnmatchcase(heard.sender, "other") or fnmatchcase(heard.sender, "client-*@*")
        await toy.leave()
        await target.send("@toy", "meanwhile")
        await place.connect(toy)
        assert (await toy.hear()).body == "meanwhile"


@pytest.mark.usefixtures("_toy")
async def test_channels_and_everybody_reach_across_it(folder: Path) -> None:
    async with mixed_hub(folder / "h") as place:
        await place.there.add("host")
        await (await place.there.join("host")).create_channel("dev")
        members = {protocol: await place.puppet(protocol, f"m-{protocol}") for protocol in (*OURS, TOY)}
        for member in members.values():
            await member.join("dev")
        toy = members.pop(TOY)
        for target, body in (("#dev", "in the channel"), ("*", "to everybody")):
            await toy.send(target, body)
            for member in members.values():
                assert await member.hear() == Heard("m-toy", body, {}), member.protocol
        await members["backchannel"].send("#dev", "an answer")
        assert await toy.hear() == Heard("m-backchannel", "an answer", {})


@pytest.mark.usefixtures("_toy")
async def test_it_is_in_run_json_and_can_be_turned_off(folder: Path) -> None:
    async with running_hub(folder / "h") as there:
        assert there.running.places["toy_socket"] == str(folder / "h" / "toy.sock")
    async with running_hub(folder / "h", flags={TOY: {"enabled": False}}) as there:
        assert there.running.places["toy_socket"] is None


def test_the_command_line_has_its_options() -> None:
    program = (
        "import sys, tieline.protocols as p; p.__path__.append(sys.argv.pop(1)); "
        "from tieline.cli.main import main; main()"
    )
    command = [sys.executable, "-c", program, str(FOLDER), "serve", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "200"})
    assert "--no-toy" in shown.stdout
    assert "Speak the toy protocol." in shown.stdout
