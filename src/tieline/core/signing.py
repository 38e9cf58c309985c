"""Who cannot be written to: members whose only wire takes signed messages, while the hub has nothing to sign with.

A message that its sender signed reaches them as it is. Any other has to be signed by the hub on its way into that wire;
with no secret it is refused, because a message without a signature, or with a made-up one, would be dropped there in
silence. Where it is for others too, it is accepted, and their deliveries are dead, with that reason.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.member import Origin
from tieline.contract.message import Signature
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import TargetKind
from tieline.core.directory import Account

if TYPE_CHECKING:
    from tieline.core.broker import Broker

EVIDENCE = "cannot_sign"
"""Why a delivery is dead."""


def refuse(broker: "Broker", command: c.Send, recipients: Collection[Account]) -> Refusal | None:
    """Refuse a message that is for such a member alone."""
    if broker.signs or not broker.directory.shared or command.content.target.kind is not TargetKind.MEMBER:
        return None
    for account in _barred(broker, command, recipients):
        text = f"{account.name} takes signed messages only, and this hub has no secret to sign with"
        return Refusal(Code.CANNOT_SIGN, text)
    return None


def give_up(broker: "Broker", command: c.Send, recipients: Collection[Account]) -> None:
    """Settle the deliveries, just made, that such members will never get."""
    if broker.signs or not broker.directory.shared:
        return
    for account in _barred(broker, command, recipients):
        key = account.inbox.next_key - 1
        broker.move(account, ((key, key),), State.DEAD, evidence=EVIDENCE)


def _barred(broker: "Broker", command: c.Send, recipients: Collection[Account]) -> Collection[Account]:
    if command.signature is not Signature.NONE:
        return ()
    # One that has a token of its own can come through other wires.
    directory = broker.directory
    return [one for one in recipients if one.member.origin is Origin.SHARED and not directory.has_token(one)]
