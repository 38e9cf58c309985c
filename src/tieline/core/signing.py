"""Who cannot be written to: members whose only wire takes signed messages, while the hub has nothing to sign with.

A message that its sender signed reaches them as it is. Any other has to be signed by the hub on its way into that wire;
with no secret it is refused, because a message without a signature, or with a made-up one, would be dropped there in
silence. Where it is for others too, it is accepted, and their deliveries are dead, with that reason.
"""

from collections.abc import Collection

from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.keys import one_key
from tieline.contract.member import Origin
from tieline.contract.message import Signature
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import TargetKind
from tieline.core.deliveries import Deliveries
from tieline.core.directory import Account, Directory

EVIDENCE = "cannot_sign"
"""Why a delivery is dead."""


class Signing:
    """Refuses and gives up what would need a signature that the hub cannot make."""

    __slots__ = ("_deliveries", "_directory", "_signs")

    def __init__(self, signs: bool, directory: Directory, deliveries: Deliveries) -> None:
        # Whether the hub has a secret to sign with.
        self._signs = signs
        self._directory = directory
        self._deliveries = deliveries

    def refuse(self, command: c.Send, recipients: Collection[Account]) -> Refusal | None:
        """Refuse a message that is for such a member alone."""
        if self._signs or not self._directory.shared or command.content.target.kind is not TargetKind.MEMBER:
            return None
        for account in self._barred(command, recipients):
            text = f"{account.name} takes signed messages only, and this hub has no secret to sign with"
            return Refusal(Code.CANNOT_SIGN, text)
        return None

    def give_up(self, command: c.Send, recipients: Collection[Account]) -> None:
        """Settle the deliveries, just made, that such members will never get."""
        if self._signs or not self._directory.shared:
            return
        for account in self._barred(command, recipients):
            key = account.inbox.next_key - 1
            self._deliveries.move(account, one_key(key), State.DEAD, evidence=EVIDENCE)

    def _barred(self, command: c.Send, recipients: Collection[Account]) -> Collection[Account]:
        if command.signature is not Signature.NONE:
            return ()
        # One that has a token of its own can come through other wires.
        directory = self._directory
        return [one for one in recipients if one.member.origin is Origin.SHARED and not directory.has_token(one)]
