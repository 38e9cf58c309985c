"""Tests of commands that use the stored name through a hub or a relay, and of invites that bring a new agent there."""

import json
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess, wait_until
from tests.cli.place import Place, bodies, line_of
from tests.protocols.backchannel.relays import request
from tieline.protocols.backchannel.invite import Invite, decode_invite, encode_invite
from tieline.protocols.backchannel.settings import BackchannelSettings
from tieline.server.config import load_config

pytestmark = pytest.mark.slow


def test_with_a_hub_the_stored_name_speaks_and_init_makes_it_a_member(hub: HubProcess, bob: str) -> None:
    name = f"{bob}-here"
    assert f"You are {name} here now, through the hub" in hub.cli("init", name).stdout
    try:
        assert json.loads(hub.cli("whoami", "--json").stdout)["member"] == name
        assert hub.cli("send", f"@{bob}", "hello").returncode == 0
        assert json.loads(hub.cli("inbox", "--as", bob, "--json").stdout)[0]["message"]["from"] == name
    finally:
        (hub.home / "spool-home" / "config.json").unlink()


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
    assert f"You are {name} here already, through" in place.cli("join", text, "--as", name)
    other = Place(tmp_path / "other")
    taken = other.run("join", text, "--as", name)
    assert taken.returncode == 3
    assert not (other.root / "config.json").exists()


def test_an_invite_is_read_from_stdin_where_no_other_user_sees_it(hub: HubProcess, bob: str, tmp_path: Path) -> None:
    text = hub.cli("invite").stdout
    place = Place(tmp_path / "elsewhere")
    joined = place.run("join", "-", "--as", f"{bob}-quiet", stdin=text)
    assert (joined.returncode, f"You are {bob}-quiet here now" in joined.stdout) == (0, True), joined.stderr
    assert text.strip() not in joined.stdout + joined.stderr
    assert place.run("join", "-", "--as", "carol", stdin="").returncode == 2


def test_an_invitation_ends_with_its_uses_its_time_or_a_command(hub: HubProcess, bob: str, tmp_path: Path) -> None:
    def invite(*options: str) -> tuple[str, str]:
        made = json.loads(hub.cli("invite", "--json", *options).stdout)
        return made["invite"], made["invitation"]["id"]

    def listed() -> dict[str, int]:
        return {one["id"]: one["uses"] for one in json.loads(hub.cli("invite", "list", "--json").stdout)}

    def join(text: str, name: str) -> int:
        return Place(tmp_path / name).run("join", text, "--as", f"{bob}-{name}").returncode

    text, number = invite("--uses", "2", "--expires", "2h")
    assert join(text, "first") == 0
    assert listed()[number] == 1
    assert [join(text, name) for name in ("second", "third")] == [0, 3]
    assert number not in listed()
    text, number = invite("--expires", "1s")
    wait_until(lambda: number not in listed(), "the end of the invitation")
    assert join(text, "late") == 3
    text, number = invite("--expires", "never")
    assert hub.cli("invite", "revoke", number[:8]).returncode == 0
    assert join(text, "revoked") == 3
    assert hub.cli("invite", "revoke", number).returncode == 3


def test_an_invitation_can_say_that_the_newcomer_is_a_person(hub: HubProcess, bob: str, tmp_path: Path) -> None:
    name = f"{bob}-invited"
    text = hub.cli("invite", "--as", name, "--kind", "human").stdout.strip()
    Place(tmp_path / "elsewhere").cli("join", text)
    kinds = {each["name"]: each["kind"] for each in json.loads(hub.cli("members", "--json").stdout)}
    assert (kinds[name], kinds[bob]) == ("human", "agent")


def test_a_member_that_was_removed_joins_again_by_a_new_invitation(hub: HubProcess, bob: str, tmp_path: Path) -> None:
    name, place = f"{bob}-invited", Place(tmp_path / "elsewhere")
    place.cli("join", hub.cli("invite", "--as", name).stdout.strip())
    hub.cli("member", "remove", name)
    again = place.cli("join", hub.cli("invite", "--as", name).stdout.strip())
    assert f"You are {name} here now, through" in again


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
    with place.running(
        "watch", "--exec", 'cat > /dev/null; echo "$TIELINE_BODY"; test "$TIELINE_BODY" != two'
    ) as watcher:
        assert [line_of(watcher), line_of(watcher)] == ["two\n", "three\n"]
        wait_until(lambda: hub.states(alice, three)[name] == "acked", "the claim after the command")
    assert hub.states(alice, two)[name] != "acked", "what failed is not taken"
    assert bodies(place.cli("drain", "--json")) == ["two"]


def test_an_invite_to_a_room_leads_there_through_the_hub_and_through_a_relay(
    hub: HubProcess, bob: str, tmp_path: Path
) -> None:
    made = request(hub.running.http, "POST", "/v1/rooms", None, {}).value
    text = encode_invite(Invite(hub.running.http, made["roomToken"], made["roomId"], ("#dev",)))
    alice, also_bob = Place(tmp_path / "alice"), Place(tmp_path / "bob")
    for place, name in ((alice, "alice"), (also_bob, bob)):
        assert f"{name} is in #dev." in place.cli("join", text, "--as", name)
        assert json.loads((place.root / "config.json").read_text())["room"] == made["roomId"]
    # As another program of backchannel stores it: then nothing but the relay's API is asked.
    stored = json.loads((also_bob.root / "config.json").read_text())
    del stored["hub"]
    (also_bob.root / "config.json").write_text(json.dumps(stored))
    alice.cli("send", f"@{bob}", "in the room")
    assert bodies(also_bob.cli("drain", "--json")) == ["in the room"]
    also_bob.cli("send", "#dev", "from the room")
    assert bodies(alice.cli("drain", "--json")) == ["from the room"]
    assert json.loads(hub.cli("inbox", "--as", bob, "--json").stdout) == [], "the name of the common room is another"
    lost = encode_invite(Invite(hub.running.http, made["roomToken"], "gone"))
    refused = Place(tmp_path / "lost").run("join", lost, "--as", "carol")
    assert refused.returncode == 3
    assert 'unknown room "gone"' in refused.stderr


def test_an_address_where_no_relay_is_is_exit_code_4(place: Place) -> None:
    (place.root / "config.json").write_text('{"agent": "bob", "url": "http://127.0.0.1:1", "token": "t"}')
    done = place.run("inbox")
    assert (done.returncode, done.stdout) == (4, "")
    assert "no relay answers at http://127.0.0.1:1" in done.stderr


def test_what_is_no_invite_is_wrong_usage(place: Place) -> None:
    assert place.run("join", "hello", "--as", "bob").returncode == 2
    assert place.run("invite").returncode == 4


def test_invitations_are_listed_used_up_and_the_room_token_is_replaced(hub: HubProcess, tmp_path: Path) -> None:
    text = hub.cli("invite", "--as", "invited").stdout.strip()
    listed = [one for one in json.loads(hub.cli("invite", "list", "--json").stdout) if one["member"] == "invited"]
    assert [one["uses"] for one in listed] == [1]
    # The name is in the invite, and an invite for it works once.
    assert "You are invited here now" in Place(tmp_path / "elsewhere").cli("join", text)
    again = Place(tmp_path / "again").run("join", text)
    assert (again.returncode, "ask for a new one" in again.stderr) == (3, True)
    old = load_config(hub.home).of(BackchannelSettings).room_token
    new = json.loads(hub.cli("invite", "rotate", "--json").stdout)["room_token"]
    for secret, status in ((old, 401), (new, 200)):
        shown = {"authorization": f"Bearer {secret}", "content-type": "application/json"}
        assert request(hub.running.http, "POST", "/v1/register", b'{"name":"rotated"}', shown).status == status
