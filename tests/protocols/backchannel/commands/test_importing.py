"""Tests of the import of a spool into a hub: senders, ids and times are kept, and no message comes twice."""

import json
import time
import uuid
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess, run_cli
from tieline.protocols.backchannel.spool import Spool, SpoolDraft

pytestmark = pytest.mark.slow


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """Fixture: a spool with three agents, a channel and waiting messages."""
    made = Spool(tmp_path / "spool")
    for name in ("alice", "bob", "carol"):
        made.register(name)
        made.subscribe(name, "#dev")
    made.send(
        SpoolDraft(sender="alice", to="@bob", body="direct", priority="urgent", scope="s", thread="t", refs=("r",))
    )
    # Messages of the same millisecond have no order.
    time.sleep(0.002)
    made.send(SpoolDraft(sender="alice", to="#dev", body="to the channel"))
    made.send(SpoolDraft(sender="bob", to="alice", body="hello alice"))
    return made


def imported(home: Path, spool: Spool, *args: str) -> dict[str, object]:
    done = run_cli(home, "import", "backchannel", str(spool.root), "--json", *args)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("running", [True, False])
def test_agents_subscriptions_and_unread_messages_come_once_with_the_hub_up_or_down(
    spool: Spool, running: bool
) -> None:
    with HubProcess() as hub:
        if not running:
            hub.stop()
        assert imported(hub.home, spool) == {
            "members": 3,
            "subscriptions": 3,
            "messages": 4,
            "known": 0,
            "left": [],
        }
        again = imported(hub.home, spool)
        assert (again["members"], again["messages"], again["known"]) == (0, 0, 4)
        # The other way round, too: what was brought while the hub was down is known when it is up.
        if running:
            hub.stop()
        else:
            hub.start()
        assert imported(hub.home, spool)["known"] == 4
        if running:
            hub.start()
        items = json.loads(hub.cli("inbox", "--as", "bob", "--json").stdout)
        direct, copy = (item["message"] for item in items)
        (first, _) = spool.unread("bob")
        assert (direct["from"], direct["body"], direct["priority"]) == ("alice", "direct", "urgent")
        assert (direct["scope"], direct["thread"], direct["refs"], direct["wire_id"]) == ("s", "t", ["r"], first.id)
        assert direct["data"]["backchannel"] == {"id": first.id, "to": "@bob", "ts": first.ts, "imported": True}
        assert (copy["target"], copy["data"]["backchannel"]["to"]) == ("@bob", "#dev")
        assert len(json.loads(hub.cli("inbox", "--as", "alice", "--json").stdout)) == 1
        channels = json.loads(hub.cli("channels", "--json").stdout)
        assert ["dev", ["alice", "bob", "carol"]] in [[each["name"], each["subscribers"]] for each in channels]
        assert hub.cli("audit", "verify").returncode == 0
    assert len(spool.unread("bob")) == 2, "the spool is left as it was"


def test_with_move_what_was_brought_is_kept_and_no_longer_unread(spool: Spool) -> None:
    with HubProcess() as hub:
        assert imported(hub.home, spool, "--move")["messages"] == 4
        assert [spool.unread(name) for name in ("alice", "bob", "carol")] == [[], [], []]
        assert len(list((spool.folder("bob") / "cur").glob("*.json"))) == 2
        assert imported(hub.home, spool, "--move")["messages"] == 0


def test_what_cannot_be_brought_is_said_and_left(spool: Spool, tmp_path: Path) -> None:
    spool.register("operator")
    message_id = str(uuid.uuid4())
    document = {"id": message_id, "from": "no name at all", "to": "@bob", "body": "x", "ts": "t"}
    (spool.folder("bob") / "new" / f"{message_id}.json").write_text(json.dumps(document))
    home = tmp_path / "home"
    done = run_cli(home, "import", "backchannel", str(spool.root), "--move")
    assert done.returncode == 1
    assert "4 messages" in done.stdout
    assert "agent operator" in done.stderr
    assert message_id in done.stderr
    assert [message.id for message in spool.unread("bob")] == [message_id]
    assert run_cli(home, "import", "backchannel", str(tmp_path / "nowhere")).returncode == 2
