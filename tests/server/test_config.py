"""Tests of the configuration: the first start writes a valid file, and an error message names the file of a mistake."""

import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tieline.contract.limits import Limits
from tieline.protocols import protocols
from tieline.protocols.agent_channels.settings import ChannelsSettings
from tieline.protocols.backchannel.settings import BackchannelSettings
from tieline.server.config import Config, ConfigError, Http, StoreSection, load_config
from tieline.server.room import open_store
from tieline.wire.address import parse_address
from tieline.wire.home import CONFIG_FILE


def write(folder: Path, text: str) -> Path:
    path = folder / CONFIG_FILE
    path.write_text(text, encoding="utf-8")
    return path


def test_the_first_start_writes_a_configuration_that_says_the_defaults(folder: Path) -> None:
    config = load_config(folder)
    # All but the secrets, which each home makes for itself.
    secrets: dict[str, dict[str, Any]] = {
        "backchannel": {"room_token": ""},
        "peerbus": {"tokens": (), "hmac_secret": ""},
    }
    defaults = {protocol.name: protocol.settings() for protocol in protocols()}
    assert config.overridden(secrets) == Config(protocols=defaults)
    path = folder / CONFIG_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    written = path.read_text(encoding="utf-8")
    assert load_config(folder) == config
    assert path.read_text(encoding="utf-8") == written


def test_each_home_has_a_room_token_of_its_own(folder: Path) -> None:
    tokens = set()
    for name in ("one", "other"):
        (folder / name).mkdir()
        tokens.add(load_config(folder / name).of(BackchannelSettings).room_token)
    assert len(tokens) == 2
    assert min(len(token) for token in tokens) >= 32


def test_a_configuration_without_a_room_token_admits_everybody_and_the_environment_can_set_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "[backchannel]\nenabled = true\n")
    assert load_config(folder).of(BackchannelSettings).room_token == ""
    monkeypatch.setenv("BACKCHANNEL_TOKEN", "from the environment")
    assert load_config(folder).of(BackchannelSettings).room_token == "from the environment"
    monkeypatch.setenv("BACKCHANNEL_TOKEN", "")
    assert load_config(folder).of(BackchannelSettings).room_token == ""


def test_what_the_template_shows_as_an_example_works_when_uncommented(folder: Path) -> None:
    load_config(folder)
    path = folder / CONFIG_FILE
    text = path.read_text(encoding="utf-8").replace("# [limits]", "[limits]").replace("# hops_max", "hops_max")
    path.write_text(text.replace("hops_max = 200", "hops_max = 7"), encoding="utf-8")
    assert load_config(folder).limits.hops_max == 7


def test_every_part_can_be_set_and_the_rest_keeps_its_default(folder: Path) -> None:
    write(
        folder,
        '[http]\nlisten = "[::1]:0"\n[store]\nurl = "memory"\n'
        "[agent_channels]\ninboxes = false\n[limits]\nhops_max = 3\n",
    )
    config = load_config(folder)
    assert config.http.listen == "[::1]:0"
    assert config.store.url == "memory"
    assert config.of(ChannelsSettings).enabled
    assert not config.of(ChannelsSettings).inboxes
    assert config.limits == Limits(hops_max=3)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("colour = 1\n", "colour"),
        ("[http]\nlitsen = '127.0.0.1:0'\n", "litsen"),
        ("[store]\nfile = 'x'\n", "file"),
        ("[agent_channels]\nsockets = true\n", "sockets"),
        ("[limits]\nhop_max = 3\n", "hop_max"),
        ("[limits]\nhops_max = 'many'\n", "hops_max"),
        ("[limits]\nhops_soft = 9\nhops_max = 8\n", "hops_soft is 9 and hops_max is 8"),
        ("[limits]\nobjective_hops_soft = 1001\n", "objective_hops_soft must be at most objective_hops_max"),
        ("[limits]\nspace_ms_max = 999\n", "space_ms_min"),
        ("[limits]\nhop_ms_min = 60001\n", "reply_window_ms"),
        ("[http]\nlisten = 7117\n", "listen"),
        ("[http\n", "line 1"),
    ],
)
def test_a_mistake_is_refused_with_the_file_and_the_word(folder: Path, text: str, word: str) -> None:
    path = write(folder, text)
    with pytest.raises(ConfigError) as caught:
        load_config(folder)
    assert str(path) in str(caught.value)
    assert word in str(caught.value)


def test_a_file_that_is_no_text_is_refused_by_name(folder: Path) -> None:
    (folder / CONFIG_FILE).write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=CONFIG_FILE):
        load_config(folder)


def test_the_environment_overrides_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, '[http]\nlisten = "127.0.0.1:1"\n[store]\nurl = "sqlite"\n')
    monkeypatch.setenv("TIELINE_HTTP", "127.0.0.1:2")
    monkeypatch.setenv("TIELINE_STORE", "memory")
    config = load_config(folder)
    assert (config.http, config.store) == (Http("127.0.0.1:2"), StoreSection("memory"))
    assert config == msgspec.structs.replace(Config(), http=config.http, store=config.store, protocols=config.protocols)
    monkeypatch.setenv("TIELINE_HTTP", "")
    assert load_config(folder).http.listen == "127.0.0.1:1"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:7117", ("127.0.0.1", 7117)),
        ("localhost:0", ("localhost", 0)),
        (":80", ("127.0.0.1", 80)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_an_address_has_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


def test_an_address_of_the_environment_leaves_the_names_of_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / CONFIG_FILE).write_text('[http]\nnames = ["hub.example.org"]\n')
    monkeypatch.setenv("TIELINE_HTTP", "127.0.0.1:2")
    assert load_config(folder).http == Http("127.0.0.1:2", ("hub.example.org",))


@pytest.mark.parametrize("text", ["", "7117", "host", "host:", "host:http", "host:-1", "host:65536", "host:1:x"])
def test_what_is_no_address_is_refused_and_shown_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT") as caught:
        parse_address(text)
    assert repr(text) in str(caught.value)


def test_a_store_that_nobody_knows_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="redis"):
        open_store("redis://x", folder)
