"""Tests of the origin of each setting: default, file, environment or flag."""

from pathlib import Path

import msgspec
import pytest

from tests.server.hubs import running_hub
from tests.stores.postgres_server import on_postgres
from tieline.server.config import BackupSection, load_config
from tieline.server.config_origin import Origin, Setting, in_use, recorded, settings_of


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


def test_a_value_that_the_hub_spells_in_another_way_has_its_origin(tmp_path: Path) -> None:
    (tmp_path / "tieline.toml").write_text("[http]\nbase_url = 'https://hub.example/'\nnames = ['bücher.example']\n")
    found = by_name(settings_of(tmp_path, load_config(tmp_path).overridden({})).settings)
    assert found["http.base_url"] == Setting("http.base_url", "https://hub.example", Origin.FILE)
    assert found["http.names"] == Setting("http.names", ("xn--bcher-kva.example",), Origin.FILE)


def test_a_file_that_needs_a_flag_has_origins_too(tmp_path: Path) -> None:
    (tmp_path / "tieline.toml").write_text("[http]\ntls_cert = 'a.crt'\n")
    found = by_name(settings_of(tmp_path, load_config(tmp_path).overridden({"http": {"tls_key": "a.key"}})).settings)
    assert (found["http.tls_cert"].origin, found["http.tls_key"].origin) == (Origin.FILE, Origin.FLAG)


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


@pytest.mark.skipif(on_postgres(), reason="it is about the files of a home that has the whole store")
async def test_a_running_hub_writes_down_its_settings_until_it_stops(folder: Path) -> None:
    async with running_hub(folder / "home", backup={"every": "6h", "folder": "/backups"}) as there:
        found = recorded(folder / "home")
        assert found is not None
        assert by_name(found.settings)["http.listen"].origin is Origin.FLAG
        assert there.running.http.startswith("http://127.0.0.1:")
        assert by_name(found.settings)["backup.every"] == Setting("backup.every", "6h", Origin.FLAG)
        assert in_use(folder / "home").section("backup", BackupSection) == BackupSection("6h", "/backups")
    assert recorded(folder / "home") is None
    assert in_use(folder / "home").section("backup", BackupSection) == BackupSection()
