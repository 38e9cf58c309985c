"""Tests of the doctor's findings about the peerbus settings and listeners of a hub."""

from pathlib import Path

from tieline.cli.doctor_finding import Grade
from tieline.protocols.peerbus.commands import PeerbusCommands
from tieline.protocols.peerbus.settings import PeerbusSettings

CONFIG = Path("tieline.toml")


def test_a_hub_that_cannot_sign_is_noted_with_what_to_set() -> None:
    (found,) = PeerbusCommands().look_at_settings(PeerbusSettings(), CONFIG)
    assert found.grade is Grade.NOTE
    assert found.what.startswith("peerbus has no secret")
    assert found.do == "set hmac_secret under [peerbus] in tieline.toml"
    assert not list(PeerbusCommands().look_at_settings(PeerbusSettings(enabled=False), CONFIG))
    assert not list(PeerbusCommands().look_at_settings(PeerbusSettings(hmac_secret="s" * 32), CONFIG))


def test_the_socket_and_the_port_of_its_own_must_answer() -> None:
    places = {"peerbus_socket": "peerbus.sock", "peerbus": None, "spool": "elsewhere"}
    assert list(PeerbusCommands().listeners(places)) == ["peerbus.sock"]
    places["peerbus"] = "ws://127.0.0.1:1"
    assert list(PeerbusCommands().listeners(places)) == ["peerbus.sock", "ws://127.0.0.1:1"]
