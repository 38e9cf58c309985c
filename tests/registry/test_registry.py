"""Tests that one folder adds a protocol: the hub runs it, all protocols reach it, and no other file names it."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
import pytest

import tieline.protocols
from tests.server.hubs import WAIT_SECONDS, HubHarness, running_hub
from tieline.contract.channel import Admit
from tieline.protocols import named, protocols
from tieline.server.config import load_config
from tieline.wire.protocol import Protocol
from tieline.wire.puppet import Place, Puppet

PAGE = Path(__file__).parents[2] / "docs" / "protocols.md"
FOLDER = Path(__file__).parent / "folder"
OURS = ("ac7", "agent-channels", "agent-relay", "backchannel", "mcp", "peerbus")
TOY = "toy"
CHANNEL = "dev"


@pytest.fixture
def _toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fixture: add the folder with the toy protocol to the folders in which protocols are found."""
    monkeypatch.setattr(tieline.protocols, "__path__", [*tieline.protocols.__path__, str(FOLDER)])
    protocols.cache_clear()
    yield
    protocols.cache_clear()
    for name in [name for name in sys.modules if name.startswith("tieline.protocols.toy")]:
        del sys.modules[name]


class MixedHub:
    """Test helper: a hub, and one member for each protocol, used through a puppet (scripted client)."""

    def __init__(self, there: HubHarness, stack: AsyncExitStack) -> None:
        self._there = there
        self._stack = stack
        self.puppets: dict[str, Puppet] = {}

    async def enter(self, protocol: str) -> Puppet:
        """Connect the member that uses a protocol. Return its puppet (scripted client)."""
        name = f"m-{protocol}"
        if name not in self._there.tokens:
            await self._there.add(name)
        settings = load_config(self._there.home).protocols[protocol]
        place = Place.at(self._there.running, name, self._there.tokens[name], settings)
        puppet = self.puppets[protocol] = named(protocol).puppet()(place)
        await puppet.open()
        self._stack.push_async_callback(puppet.close)
        return puppet

    async def found(self) -> None:
        """Make a channel, and admit all members to it."""
        await self._there.add("host")
        host = await self._there.join("host")
        await host.create_channel(CHANNEL)
        for protocol in self.puppets:
            await host.change_channel(CHANNEL, Admit(f"m-{protocol}"))


@pytest.fixture
async def mixed_hub(folder: Path, _toy: None) -> AsyncIterator[MixedHub]:
    async with running_hub(folder / "h", store="sqlite:unsafe") as there, AsyncExitStack() as stack:
        yield MixedHub(there, stack)


async def hear(puppet: Puppet) -> tuple[str, str]:
    """Wait for the next message of a puppet (scripted client), and acknowledge it. Return sender and body."""
    async with asyncio.timeout(WAIT_SECONDS):
        heard = await puppet.hear()
    await puppet.acknowledge(heard)
    return heard.sender, heard.body


def is_from(sender: str, protocol: str) -> bool:
    """Return true if a sender name belongs to the member on this protocol.

    One protocol has no sender names, so its form of address counts too.
    """
    return fnmatchcase(sender, f"m-{protocol}") or fnmatchcase(sender, "client-*@*")


def test_the_page_says_how_the_toy_declares_itself_and_every_field_that_there_is() -> None:
    page = PAGE.read_text(encoding="utf-8")
    declaration = (FOLDER / "toy" / "__init__.py").read_text(encoding="utf-8").partition("PROTOCOL = ")
    assert "".join(declaration[1:]).strip() in page
    told = re.findall(r"^\| `(\w+)` \| (yes)? ?\|", page, re.MULTILINE)
    # Those without a default are the first.
    optional = dict(zip(Protocol.__struct_fields__[::-1], Protocol.__struct_defaults__[::-1], strict=False))
    needed = {name: optional.get(name, msgspec.NODEFAULT) is msgspec.NODEFAULT for name in Protocol.__struct_fields__}
    assert {name: bool(mark) for name, mark in told} == needed


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


@pytest.mark.parametrize("other", [*OURS, TOY])
async def test_the_new_protocol_and_every_other_reach_each_other_live_and_later(
    mixed_hub: MixedHub, other: str
) -> None:
    toy = await mixed_hub.enter(TOY)
    # Two members of the same protocol need two names.
    target = toy if other == TOY else await mixed_hub.enter(other)
    await toy.say(f"@m-{other}", "there")
    assert await hear(target) == ("m-toy", "there")
    await target.say("@m-toy", "back")
    sender, body = await hear(toy)
    assert body == "back"
    assert is_from(sender, other)
    if other != TOY:
        await toy.close()
        await target.say("@m-toy", "meanwhile")
        again = await mixed_hub.enter(TOY)
        assert (await hear(again))[1] == "meanwhile"


async def test_channels_and_everybody_reach_across_it(mixed_hub: MixedHub) -> None:
    for protocol in (*OURS, TOY):
        await mixed_hub.enter(protocol)
    await mixed_hub.found()
    toy = mixed_hub.puppets[TOY]
    for target, body in ((f"#{CHANNEL}", "in the channel"), ("*", "to everybody")):
        await toy.say(target, body)
        for protocol in OURS:
            assert await hear(mixed_hub.puppets[protocol]) == ("m-toy", body), protocol
    await mixed_hub.puppets["backchannel"].say(f"#{CHANNEL}", "an answer")
    assert await hear(toy) == ("m-backchannel", "an answer")


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
