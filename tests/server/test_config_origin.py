"""Tests of the origin of each setting: default, file, environment or flag."""

from pathlib import Path

import msgspec
import pytest

from tests.server.hubs import running_hub
from tieline.server.config import load_config
from tieline.server.config_origin import Origin, Setting, recorded, settings_of


def by_name(found: tuple[Setting, ...]) -> dict[str, Setting]:
    return {setting.name: setting for setting in found}


def test_each_value_has_the_place_it_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tieline.toml").write_text("[http]\nlisten = '127.0.0.1:1'\n[limits]\nhops_max = 300\n")
    monkeypatch.setenv("TIELINE_STORE", "memory")
    config = load_config(tmp_path).overridden({"peerbus": {"enabled": False}})
    found = by_name(settings_of(tmp_path, config).settings)
    assert found["http.listen"] == Setting("http.listen", "127.0.0.1:1", Origin.FILE)
    assert found["limits.hops_max"] == Setting("limits.hops_max", 300, Origin.FILE)
    assert found["limits.hops_soft"].origin is Origin.DEFAULT
    assert found["store.url"] == Setting("store.url", "memory", Origin.ENVIRONMENT)
    assert found["peerbus.enabled"] == Setting("peerbus.enabled", False, Origin.FLAG)


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    load_config(tmp_path)
    config = load_config(tmp_path)
    text = msgspec.json.encode(settings_of(tmp_path)).decode()
    secrets = [
        secret
        for settings in config.protocols.values()
        for name, value in msgspec.structs.asdict(settings).items()
        if "token" in name or "secret" in name
        for secret in ([value] if isinstance(value, str) else value if isinstance(value, tuple) else ())
        if secret
    ]
    assert len(secrets) == 3
    assert [secret for secret in secrets if secret in text] == []


async def test_a_running_hub_writes_down_its_settings_until_it_stops(folder: Path) -> None:
    async with running_hub(folder / "home") as there:
        found = recorded(folder / "home")
        assert found is not None
        assert by_name(found.settings)["http.listen"].origin is Origin.FLAG
        assert there.running.http.startswith("http://127.0.0.1:")
    assert recorded(folder / "home") is None
