"""Routing: who receives a message. The answer is a snapshot: later members and subscribers do not get it."""

from collections.abc import Collection
from typing import assert_never

from tieline.contract.identifiers import GENERAL, ChannelName
from tieline.contract.limits import Limits
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import Target, TargetKind
from tieline.core.directory import Account, Directory


def recipients(
    target: Target, sender: Account | None, directory: Directory, limits: Limits, *, allow_empty: bool
) -> Collection[Account] | Refusal:
    """The members a message goes to. A member may write to itself, but never hears its own broadcast."""
    found: Collection[Account]
    match target.kind:
        case TargetKind.MEMBER:
            account = directory.find(target.name)
            return (account,) if account is not None else directory.unknown_member(target.name)
        case TargetKind.EVERYBODY:
            found = [account for account in _others(directory.accounts, sender) if account.present]
        case TargetKind.CHANNEL:
            everybody = target.name == GENERAL
            subscribers = directory.accounts if everybody else directory.channels.get(ChannelName(target.name))
            if subscribers is None and not allow_empty:
                return directory.unknown_channel(target.name)
            found = _others(subscribers or {}, sender)
        case TargetKind.OBJECTIVE:
            return Refusal(Code.UNKNOWN_OBJECTIVE, f"there is no objective {target.name!r}")
        case _:
            assert_never(target.kind)
    if not found and not allow_empty:
        return Refusal(Code.NO_RECIPIENTS, f"{target} has no other subscribers: nothing to deliver")
    if len(found) > limits.recipients_max:
        return Refusal(Code.TOO_MANY_RECIPIENTS, f"{target} has more than {limits.recipients_max} members")
    return found


def _others(accounts: dict[int, Account], sender: Account | None) -> Collection[Account]:
    if sender is None or sender.number not in accounts:
        return accounts.values()
    return [account for account in accounts.values() if account is not sender]
