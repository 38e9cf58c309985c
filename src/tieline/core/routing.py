"""Routing: finds the recipients of a message. Members who join a channel or the hub later do not get the message."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from tieline.contract.command import Send
from tieline.contract.identifiers import ChannelName, MemberName
from tieline.contract.limits import Limits
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import Target, TargetKind, to_member
from tieline.core.channels import Channels
from tieline.core.directory import Account, Directory
from tieline.core.objectives import Objectives, unknown


class Routing:
    """Finds the recipients of messages."""

    __slots__ = ("_channels", "_directory", "_limits", "_objectives")

    def __init__(self, limits: Limits, directory: Directory, channels: Channels, objectives: Objectives) -> None:
        self._limits = limits
        self._directory = directory
        self._channels = channels
        self._objectives = objectives

    def by_own_name(self, command: Send) -> Send:
        """Return the command with the member's own name as its target, if the target is an alias.

        The new command also has a note about the alias. Without an alias, return the command unchanged.
        """
        aliases = self._directory.team.aliases
        if not aliases:
            return command
        content = command.content
        target = content.target
        if target.kind is not TargetKind.MEMBER or self._directory.find(target.name) is not None:
            return command
        name = aliases.get(target.name)
        if name is None:
            return command
        notes = (*content.notes, f"written to the alias {target}")
        return replace(command, content=replace(content, target=to_member(MemberName(name)), notes=notes))

    def recipients(self, command: Send, sender: Account | None) -> Collection[Account] | Refusal:
        """Return the recipients of a message.

        Return a refusal if the target is unknown, or if the message has no recipients or too many.
        """
        target = command.content.target
        if command.only:
            return self._named(command.only)
        if target.kind is TargetKind.MEMBER:
            # A member may send to itself.
            account = self._directory.find(target.name)
            return (account,) if account is not None else self._directory.unknown_member(target.name)
        if target.kind is TargetKind.OBJECTIVE:
            # The sender takes part in the thread, so an empty list of recipients is fine here.
            thread = self._objectives.others_in_thread(target.name, sender, self._directory)
            return unknown(target.name) if thread is None else thread
        found = self._audience(command, target, sender)
        if isinstance(found, Refusal):
            return found
        if not found and not command.allow_empty:
            return Refusal(Code.NO_RECIPIENTS, f"{target} has no other subscribers: nothing to deliver")
        if len(found) > self._limits.recipients_max:
            return Refusal(Code.TOO_MANY_RECIPIENTS, f"{target} has more than {self._limits.recipients_max} members")
        return found

    def _audience(self, command: Send, target: Target, sender: Account | None) -> Collection[Account] | Refusal:
        """Return the recipients of a message to everybody or to a channel, without the sender; or a refusal."""
        directory = self._directory
        if target.kind is TargetKind.EVERYBODY:
            return [account for account in _others(directory.accounts, sender) if account.present]
        subscribers = directory.subscribers(ChannelName(target.name))
        if subscribers is None:
            archived = self._channels.refuse_archived(target.name)
            if archived is not None or not command.allow_empty:
                return archived or directory.unknown_channel(target.name)
        if command.members_only and (sender is None or sender.number not in (subscribers or {})):
            return Refusal(Code.FORBIDDEN, f"only its members may write to {target}: join it first")
        return _others(subscribers or {}, sender)

    def _named(self, names: Sequence[MemberName]) -> Collection[Account] | Refusal:
        """Return the members that the sender listed by name (`Send.only`), or a refusal if one is unknown."""
        accounts = []
        for name in dict.fromkeys(names):
            account = self._directory.find(name)
            if account is None:
                return self._directory.unknown_member(name)
            accounts.append(account)
        return accounts


def _others(accounts: dict[int, Account], sender: Account | None) -> Collection[Account]:
    if sender is None or sender.number not in accounts:
        return accounts.values()
    return [account for account in accounts.values() if account is not sender]
