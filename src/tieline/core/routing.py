"""Routing: who receives a message. The answer is a snapshot: later members and subscribers do not get it."""

from collections.abc import Collection, Mapping, Sequence
from typing import assert_never

from msgspec.structs import replace

from tieline.contract.command import Send
from tieline.contract.identifiers import ChannelName, MemberName
from tieline.contract.limits import Limits
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import Target, TargetKind, to_member
from tieline.core.channels import Channels
from tieline.core.directory import Account, Directory
from tieline.core.objectives import Objectives, unknown


def recipients(
    target: Target,
    sender: Account | None,
    directory: Directory,
    limits: Limits,
    *,
    allow_empty: bool,
    members_only: bool = False,
    channels: Channels,
    objectives: Objectives,
) -> Collection[Account] | Refusal:
    """The members a message goes to that is not for one alone: nobody hears its own broadcast."""
    found: Collection[Account]
    match target.kind:
        case TargetKind.MEMBER:
            return member(target.name, directory)
        case TargetKind.EVERYBODY:
            found = [account for account in _others(directory.accounts, sender) if account.present]
        case TargetKind.CHANNEL:
            subscribers = directory.subscribers(ChannelName(target.name))
            if subscribers is None:
                archived = channels.refuse_archived(target.name)
                if archived is not None or not allow_empty:
                    return archived or directory.unknown_channel(target.name)
            if members_only and (sender is None or sender.number not in (subscribers or {})):
                return Refusal(Code.FORBIDDEN, f"only its members may write to {target}: join it first")
            found = _others(subscribers or {}, sender)
        case TargetKind.OBJECTIVE:
            # Who speaks in its thread is in it, so nobody else need be.
            thread = objectives.others_in_thread(target.name, sender, directory)
            return unknown(target.name) if thread is None else thread
        case _:
            assert_never(target.kind)
    if not found and not allow_empty:
        return Refusal(Code.NO_RECIPIENTS, f"{target} has no other subscribers: nothing to deliver")
    if len(found) > limits.recipients_max:
        return Refusal(Code.TOO_MANY_RECIPIENTS, f"{target} has more than {limits.recipients_max} members")
    return found


def member(name: str, directory: Directory) -> Collection[Account] | Refusal:
    """The one member that a message is for, which may be its sender."""
    account = directory.find(name)
    return (account,) if account is not None else directory.unknown_member(name)


def by_own_name(command: Send, aliases: Mapping[str, str], directory: Directory) -> Send:
    """A message to an alias as one to the member that it stands for, with a note that says so."""
    content = command.content
    target = content.target
    if target.kind is not TargetKind.MEMBER or directory.find(target.name) is not None:
        return command
    name = aliases.get(target.name)
    if name is None:
        return command
    notes = (*content.notes, f"written to the alias {target}")
    return replace(command, content=replace(content, target=to_member(MemberName(name)), notes=notes))


def named(names: Sequence[MemberName], directory: Directory) -> Collection[Account] | Refusal:
    """The members whom a sender has chosen."""
    accounts = []
    for name in dict.fromkeys(names):
        account = directory.find(name)
        if account is None:
            return directory.unknown_member(name)
        accounts.append(account)
    return accounts


def _others(accounts: dict[int, Account], sender: Account | None) -> Collection[Account]:
    if sender is None or sender.number not in accounts:
        return accounts.values()
    return [account for account in accounts.values() if account is not sender]
