"""Exports the hub's log as a database of the first peerbus server, with an audit chain.

Used by: `tieline audit export`. Uses: a store's inspection, and `protocols.peerbus.database`. The audit chain of
peerbus has three kinds of events: a message was sent to a recipient, delivered to the recipient, or acknowledged by the
recipient. Other events of the hub's log are not exported. Of a message that retention has deleted, only the first kind
of event is exported.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tieline.cli.failure import Exit, Failure
from tieline.contract import event as e
from tieline.core import ledger
from tieline.core.store import DeliveryRoute
from tieline.protocols.peerbus import chain, codec
from tieline.protocols.peerbus.database import Copy, DatabaseError, Export, Moves

if TYPE_CHECKING:
    from tieline.core.audit import Inspection, StoredMessage

_KINDS: dict[type[e.Event], str] = {
    e.Delivered: chain.DELIVER,
    e.Acknowledged: chain.ACK,
    e.Claimed: chain.ACK,
}


def write(inspection: "Inspection", path: Path) -> int:
    """Write the hub's log to this path, as a peerbus database with members, deliveries and an audit chain.

    Return the number of rows in the chain.
    """
    try:
        return _write(inspection, Export(path))
    except DatabaseError as error:
        raise Failure(Exit.FAILED, str(error)) from error


def _write(inspection: "Inspection", export: Export) -> int:
    names: dict[int, str] = {}
    peers: dict[str, int] = {}
    for number, name, created_at_ms in inspection.members():
        names[number] = name
        # The same name may have been given to a new member.
        peers.setdefault(name, created_at_ms)
    for name, created_at_ms in peers.items():
        export.add_peer(name, created_at_ms)
    messages = inspection.messages()
    message = next(messages, None)
    for row in inspection.rows():
        event = ledger.decode_event(row.event)
        if isinstance(event, e.Sent):
            if message is not None and message.offset == row.offset:
                export.add_sent(_copies(message, names), row.at_ms)
                message = next(messages, None)
            else:
                export.add_forgotten(event.id, event.sender, event.target.removeprefix("@"), row.at_ms)
        elif isinstance(event, e.Moved) and type(event) in _KINDS:
            export.add_moves(Moves(_KINDS[type(event)], event.member, event.number, event.keys), row.at_ms)
    return export.finish()


def _copies(message: "StoredMessage", names: dict[int, str]) -> Iterator[Copy]:
    route = DeliveryRoute.unpack(message.route)
    wire_id = message.wire_id if message.protocol == codec.PROTOCOL else None
    everybody = message.target == codec.ALL
    for number, place in zip(route.numbers, route.keys, strict=True):
        recipient = names[number]
        key = codec.delivery_key(wire_id, message.id, recipient, everybody=everybody)
        yield Copy(number, place, key, message.sender, recipient)
