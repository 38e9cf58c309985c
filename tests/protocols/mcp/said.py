"""Messages and deliveries for tests of the texts that an agent gets."""

from typing import Any

from tieline.client import Delivery, Message
from tieline.contract.lifecycle import KIND
from tieline.contract.message import Kind

SENT_AT_MS = 1_776_262_999_000
"""Time of the test messages: 04/15/26 14:23:19 UTC."""


def said(body: str = "hello", **parts: Any) -> Message:
    """Return a message from alice to bob. `parts` replaces fields of the message."""
    whole: dict[str, Any] = {
        "id": "m-1",
        "offset": 7,
        "sender": "alice",
        "target": "@bob",
        "body": body,
        "sent_at_ms": SENT_AT_MS,
        "protocol": "tieline",
        **parts,
    }
    return Message(**whole)


def happened(sender: str = "alice", objective: str = "obj-1", **parts: Any) -> Message:
    """Return a message of `sender` about a completed objective."""
    data = {"kind": KIND, "event": {"kind": "completed"}, "objective_id": objective}
    return said("[objective completed]", sender=sender, target=f"obj:{objective}", kind=Kind.EVENT, data=data, **parts)


def delivered(key: int, message: Message) -> Delivery:
    """Return a delivery of a message with this key."""
    return Delivery(key=key, seq=key, message=message)
