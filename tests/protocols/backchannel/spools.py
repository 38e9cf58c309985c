"""Test helpers: send messages through a spool, inspect it, and write files like the real `bch` program."""

import json
import uuid
from pathlib import Path

import pytest

from tieline.contract.refusal import Code
from tieline.protocols.backchannel.spool import Spool, SpoolDraft, SpoolRefused


def draft(sender: str = "alice", to: str = "@bob", body: str = "hello", **more: str) -> SpoolDraft:
    return SpoolDraft(sender=sender, to=to, body=body, **more)  # type: ignore[arg-type]


def send(spool: Spool, *bodies: str, to: str = "@bob", sender: str = "alice") -> list[str]:
    return [spool.send(draft(sender, to, body)).message.id for body in bodies]


def files(spool: Spool, agent: str, box: str) -> list[str]:
    folder = spool.root / "spool" / agent / box
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def refused(error: "pytest.ExceptionInfo[SpoolRefused]") -> Code:
    return error.value.refusal.code


# As the real program writes it: compact messages, records in two spaces, only `new/` made.


def write_as_bch(
    root: Path, agent: str, body: str, *, sender: str = "alice", ts: str = "2026-06-12T12:00:00.000Z", **more: object
) -> str:
    message_id = str(uuid.uuid4())
    folder = root / "spool" / agent
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    (folder / "new").mkdir(exist_ok=True)
    document = {"id": message_id, "from": sender, "to": f"@{agent}", "body": body, "priority": "normal", **more}
    temporary = folder / "tmp" / f"{message_id}.json"
    temporary.write_text(json.dumps({**document, "ts": ts}, separators=(",", ":")))
    temporary.rename(folder / "new" / temporary.name)
    return message_id


def register_as_bch(root: Path, agent: str, **more: object) -> None:
    (root / "agents").mkdir(parents=True, exist_ok=True)
    (root / "spool" / agent / "new").mkdir(parents=True)
    ts = "2026-06-12T12:00:00.000Z"
    record = {"name": agent, "subscriptions": [], "createdAt": ts, "lastSeen": ts, **more}
    (root / "agents" / f"{agent}.json").write_text(json.dumps(record, indent=2))
