"""Signing: handles members that can receive only signed messages, for the case that the hub has no secret to sign with.

Some members are connected only through a wire that drops messages without a valid signature. A message that its sender
signed reaches such a member unchanged. The hub must sign any other message for that wire. If the hub has no secret, it
refuses a message to such a member alone. It accepts a message to a channel or to everybody, and marks the deliveries to
such members as dead. The evidence of these deliveries has the reason.
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
"""The evidence on a delivery that is dead because the hub cannot sign."""


class Signing:
    """Refuses messages, and marks deliveries as dead, if they need a signature that the hub cannot make."""

    __slots__ = ("_deliveries", "_directory", "_signs")

    def __init__(self, signs: bool, directory: Directory, deliveries: Deliveries) -> None:
        # True if the hub has a secret to sign with.
        self._signs = signs
        self._directory = directory
        self._deliveries = deliveries

    def refuse(self, command: c.Send, recipients: Collection[Account]) -> Refusal | None:
        """Return a refusal for a message to a single member that accepts only signed messages, if the hub cannot sign.

        Otherwise return `None`.
        """
        if self._signs or not self._directory.shared or command.content.target.kind is not TargetKind.MEMBER:
            return None
        for account in self._barred(command, recipients):
            text = f"{account.name} takes signed messages only, and this hub has no secret to sign with"
            return Refusal(Code.CANNOT_SIGN, text)
        return None

    def give_up(self, command: c.Send, recipients: Collection[Account]) -> None:
        """Mark new deliveries to members that accept only signed messages as dead, if the hub cannot sign."""
        if self._signs or not self._directory.shared:
            return
        for account in self._barred(command, recipients):
            key = account.inbox.next_key - 1
            self._deliveries.move(account, one_key(key), State.DEAD, evidence=EVIDENCE)

    def _barred(self, command: c.Send, recipients: Collection[Account]) -> Collection[Account]:
        if command.signature is not Signature.NONE:
            return ()
        # A member with its own token can connect through other wires.
        directory = self._directory
        return [one for one in recipients if one.member.origin is Origin.SHARED and not directory.has_token(one)]
