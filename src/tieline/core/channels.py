"""Channels: their members and roles, how they are created, changed and removed, and which messages belong to them.

The id of a channel never changes. The name can change, and another channel can use the name later. So each channel
keeps its spans: the parts of the log in which it had a certain name. The first subscriber to a name creates the channel
and is its admin. When the last admin leaves, the member who joined first becomes admin. When the last member leaves,
the channel is removed. A change that removes a member (`Dismiss`) or gives it another role (`Admit`) is refused if it
would leave the other members without an admin.
"""

from collections import Counter
from collections.abc import Iterator
from typing import assert_never

from msgspec.structs import replace

from tieline.contract import channel as ch
from tieline.contract import command as c
from tieline.contract.event import ChannelChanged, Subscribed, Unsubscribed
from tieline.contract.hub import ChannelAppeared, ChannelVanished, SubscriptionsChanged
from tieline.contract.identifiers import GENERAL, USERS, ChannelName, MemberName, parse_channel_name
from tieline.contract.member import MemberKind
from tieline.contract.permission import MEMBERS_MANAGE
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import ChannelState, ChannelView, Done, Reply
from tieline.core.batch import Batch
from tieline.core.directory import Account, Directory, Session
from tieline.core.rules import Rules, decides
from tieline.core.store import ChannelRow, Span, StoredState, Subscription

IMPLICIT = (GENERAL, USERS)
"""Channels that members are in automatically. Nobody can join or leave these channels."""


class Channel:
    """A channel in the broker's memory: its stored row and its subscriptions.

    `Directory.channels` has the recipients of the channel's messages, by the name of the channel.
    """

    __slots__ = ("row", "subscriptions")

    def __init__(self, row: ChannelRow) -> None:
        self.row = row
        # Key: the number of the member.
        self.subscriptions: dict[int, Subscription] = {}

    @property
    def name(self) -> ChannelName:
        """Current name of the channel; for an archived channel, its last name."""
        return self.row.name

    @property
    def archived(self) -> bool:
        """True if the channel is archived, so that nobody may write to it."""
        return self.row.archived_at_ms is not None

    def admins(self) -> list[int]:
        """Return the member numbers of the channel's admins."""
        return [number for number, one in self.subscriptions.items() if one.role is ch.Role.ADMIN]


class Channels:
    """All channels, in the broker's memory. Only the broker changes this object."""

    def __init__(self, stored_state: StoredState, directory: Directory) -> None:
        self._by_id = {row.id: Channel(row) for row in stored_state.channels}
        self._directory = directory
        # Channels of each member by number, with archived ones; and the number of channels each member created.
        self._of: dict[int, dict[ch.ChannelId, Channel]] = {}
        self._made: Counter[str] = Counter()
        # By target (`#name`): the log offset at which the last channel with this name gave the name up.
        self._ends: dict[str, int] = {}
        for one in stored_state.subscriptions:
            self.note_subscription(self._by_id[one.channel], one)
        for channel in self._by_id.values():
            self._made[channel.row.created_by] += 1
            self.note_spans(channel)
        self._by_name: dict[ChannelName, Channel] = {}
        # By name: the last channel that was archived under the name.
        self._archived: dict[ChannelName, Channel] = {}
        for channel in self._by_id.values():
            if channel.archived:
                self._archived[channel.name] = channel
            else:
                self._by_name[channel.name] = channel
                accounts = (directory.accounts[number] for number in channel.subscriptions)
                directory.channels[channel.name] = {account.number: account for account in accounts}

    def __len__(self) -> int:
        return len(self._by_id)

    def named(self, name: ChannelName) -> Channel | None:
        """Return the active channel with this name. If there is none, return the last archived channel with it."""
        return self._by_name.get(name) or self._archived.get(name)

    def find(self, wanted: str) -> Channel | None:
        """Return the channel with the id `wanted`. If there is none, return the channel with the name `wanted`."""
        return self._by_id.get(ch.ChannelId(wanted)) or self.named(ChannelName(wanted))

    def refuse_archived(self, name: str) -> Refusal | None:
        """Return a refusal if only an archived channel has this name; otherwise `None`."""
        if name in self._archived and name not in self._by_name:
            return Refusal(Code.CHANNEL_ARCHIVED, f"#{name} is archived: it can be read and not written to")
        return None

    def spans_of(self, account: Account) -> Iterator[Span]:
        """Yield the spans (parts of the log) that have the messages of a member's channels.

        Archived channels are included.
        """
        everybody, humans = (Span(f"#{name}") for name in IMPLICIT)
        yield everybody
        if account.member.kind is MemberKind.HUMAN:
            yield humans
        for channel in self.of(account):
            yield from channel.row.spans

    def of(self, account: Account) -> list[Channel]:
        """Return the channels that a member is in, including archived ones."""
        return list(self._of.get(account.number, {}).values())

    def made_by(self, name: str) -> int:
        """Return the number of channels that the member with this name has created, including archived channels."""
        return self._made[name]

    def note_subscription(self, channel: Channel, one: Subscription) -> None:
        """Remember that a member joined a channel, or has a new role in the channel.

        `one` is the member's subscription.
        """
        channel.subscriptions[one.number] = one
        self._of.setdefault(one.number, {})[channel.row.id] = channel

    def drop_subscription(self, channel: Channel, number: int) -> None:
        """Remember that the member with this number left a channel."""
        del channel.subscriptions[number]
        own = self._of[number]
        del own[channel.row.id]
        if not own:
            del self._of[number]

    def note_spans(self, channel: Channel) -> None:
        """Remember, for each former name of a channel, the log offset at which the channel stopped using the name.

        `freed_offset` returns this offset.
        """
        for span in channel.row.spans:
            if span.end is not None:
                self._ends[span.target] = max(span.end, self._ends.get(span.target, 0))

    def freed_offset(self, name: ChannelName) -> int:
        """Return the log offset at which a channel last stopped using this name; 0 if no channel did.

        If somebody subscribes to the name now, a new channel is created. The messages to this name from this offset on
        belong to the new channel.
        """
        return self._ends.get(f"#{name}", 0)

    def add_name(self, channel: Channel) -> None:
        """Add a new channel, or an existing channel with a new name, to the index of names."""
        if channel.row.id not in self._by_id:
            self._by_id[channel.row.id] = channel
            self._made[channel.row.created_by] += 1
        self.note_spans(channel)
        self._by_name[channel.name] = channel
        self._directory.channels.setdefault(channel.name, {})

    def remove_name(self, channel: Channel) -> dict[int, Account]:
        """Remove the name of a channel from the index of names. Return the channel's recipients by member number."""
        del self._by_name[channel.name]
        return self._directory.channels.pop(channel.name)

    def archive(self, channel: Channel) -> None:
        """Move a channel from the active channels to the archived channels."""
        self.remove_name(channel)
        self.note_spans(channel)
        self._archived[channel.name] = channel

    def forget(self, channel: Channel) -> None:
        """Remove a channel from memory, because it was deleted."""
        self.remove_name(channel)
        del self._by_id[channel.row.id]
        self._made[channel.row.created_by] -= 1
        if len(channel.row.spans) > 1:
            # The channel had other names before, and `_ends` may have offsets from its spans. So compute it again.
            self._ends.clear()
            for other in self._by_id.values():
                self.note_spans(other)

    def describe(self, name: ChannelName) -> ChannelView:
        """Return the data of the active channel with this name.

        If no such channel is stored, the result has only the name and the subscribers. `#general` is an example.
        """
        channel = self._by_name.get(name)
        if channel is not None:
            return self.view(channel)
        there = (account.name for account in (self._directory.subscribers(name) or {}).values())
        return ChannelView(
            name=name, subscribers=tuple(sorted(there)), id=ch.ChannelId(name if name in IMPLICIT else "")
        )

    def view(self, channel: Channel) -> ChannelView:
        """Return all data of a channel, for a reply to a client."""
        accounts = self._directory.accounts
        found = [(accounts[number], one) for number, one in channel.subscriptions.items()]
        found.sort(key=lambda pair: (pair[1].role is not ch.Role.ADMIN, pair[1].joined_at_ms, pair[0].number))
        members = tuple(ch.ChannelMember(account.name, one.role, one.joined_at_ms) for account, one in found)
        row = channel.row
        subscribers = tuple(sorted(member.name for member in members))
        return ChannelView(
            name=row.name,
            subscribers=subscribers,
            id=row.id,
            created_by=row.created_by,
            created_at_ms=row.created_at_ms,
            archived_at_ms=row.archived_at_ms,
            members=members,
        )


class ChannelRules(Rules):
    """Rules for the commands that create, show and change channels, and for members that join or leave a channel."""

    def __init__(self, batch: Batch, directory: Directory, channels: Channels) -> None:
        self._batch = batch
        self._store = batch.store
        self._limits = batch.limits
        self._directory = directory
        self._clock_and_ids = batch.clock_and_ids
        self._channels = channels

    # Commands for every protocol.

    @decides(c.Subscribe)
    def subscribe(self, session: Session, command: c.Subscribe) -> Reply:
        """Add the session's own member, or the member that the command names, to a channel.

        Only a session that manages members may name another member.
        """
        account = self._subscriber(session, command.member)
        if isinstance(account, Refusal):
            return account
        channel = parse_channel_name(command.channel)
        if isinstance(channel, Refusal):
            return channel
        if channel in IMPLICIT:
            there = channel == GENERAL or account.member.kind is MemberKind.HUMAN
            return Done() if there else Refusal(Code.FORBIDDEN, "#users holds the human members; no other can join it")
        return self._join(channel, account)

    @decides(c.Unsubscribe)
    def unsubscribe(self, session: Session, command: c.Unsubscribe) -> Reply:
        """Remove the session's own member, or the member that the command names, from a channel.

        Only a session that manages members may name another member. A channel without members is deleted. If the last
        admin leaves, another member becomes admin.
        """
        account = self._subscriber(session, command.member)
        if isinstance(account, Refusal):
            return account
        if command.channel in IMPLICIT:
            whom = "every" if command.channel == GENERAL else "every human"
            return Refusal(Code.FORBIDDEN, f"#{command.channel} holds {whom} member; nobody can leave it")
        channel = self._channels.named(command.channel)
        if channel is not None and not channel.archived and account.number in channel.subscriptions:
            self._unsubscribe(channel, account)
        return Done()

    def _subscriber(self, session: Session, other: MemberName | None) -> Account | Refusal:
        if other is None:
            return session.account or Refusal(Code.INVALID_REQUEST, "only a member can subscribe")
        return self._directory.find_for(session, MEMBERS_MANAGE, other)

    def _join(self, name: ChannelName, account: Account) -> Reply:
        """Add a member to the channel with this name. If there is no such channel, create it.

        Return the reply to the command.
        """
        channel = self._channels.named(name)
        if channel is None:
            made = self._make(name, account, start=self._channels.freed_offset(name))
            return made if isinstance(made, Refusal) else Done()
        if channel.archived:
            return self._channels.refuse_archived(name) or Done()
        return self._enter(channel, account) or Done()

    def leave_all(self, account: Account) -> None:
        """Remove a member from every channel, because the member is removed from the hub."""
        for channel in [one for one in self._channels.of(account) if not one.archived]:
            self._unsubscribe(channel, account)
        for channel in self._channels.of(account):
            self._channels.drop_subscription(channel, account.number)

    def _make(self, name: ChannelName, account: Account, *, start: int) -> Channel | Refusal:
        if len(self._channels) >= self._limits.channels_max:
            return Refusal(Code.TOO_MANY_CHANNELS, f"there are {self._limits.channels_max} channels already")
        if self._channels.made_by(account.name) >= self._limits.member_channels_max:
            most = self._limits.member_channels_max
            return Refusal(Code.TOO_MANY_CHANNELS, f"{account.name} has made {most} channels already")
        refusal = self._refuse_more(account)
        if refusal is not None:
            return refusal
        channel_id = ch.ChannelId(self._clock_and_ids.message_id(self._batch.now_ms))
        spans = (Span(f"#{name}", start),)
        channel = Channel(ChannelRow(channel_id, name, account.name, self._batch.now_ms, None, spans))
        self._store.channels.save(channel.row)
        self._channels.add_name(channel)
        self._subscribe(channel, account, ch.Role.ADMIN)
        self._batch.outcome.changes.append(ChannelAppeared(name, channel_id))
        return channel

    def _refuse_more(self, account: Account) -> Refusal | None:
        """Return a refusal if a member is already in too many channels; otherwise `None`."""
        most = self._limits.subscriptions_max
        if len(self._channels.of(account)) >= most:
            return Refusal(Code.TOO_MANY_CHANNELS, f"{account.name} is in {most} channels already")
        return None

    def _enter(self, channel: Channel, account: Account, role: ch.Role = ch.Role.MEMBER) -> Refusal | None:
        """Add a member to an existing channel. Return `None`, or a refusal if the member is in too many channels.

        If the member is already in the channel, change nothing.
        """
        if account.number in channel.subscriptions:
            return None
        refusal = self._refuse_more(account)
        if refusal is None:
            self._subscribe(channel, account, role)
        return refusal

    def _subscribe(self, channel: Channel, account: Account, role: ch.Role) -> None:
        assert account.number not in channel.subscriptions, "who joins is not in the channel yet"
        one = Subscription(channel.row.id, account.number, role, self._batch.now_ms)
        self._channels.note_subscription(channel, one)
        self._directory.channels[channel.name][account.number] = account
        self._store.channels.join(one)
        self._batch.record(Subscribed(account.name, channel.name))
        self._batch.outcome.changes.append(SubscriptionsChanged(account.name))

    def _unsubscribe(self, channel: Channel, account: Account) -> None:
        self._channels.drop_subscription(channel, account.number)
        del self._directory.channels[channel.name][account.number]
        self._store.channels.leave(channel.row.id, account.number)
        self._batch.record(Unsubscribed(account.name, channel.name))
        self._batch.outcome.changes.append(SubscriptionsChanged(account.name))
        if not channel.subscriptions:
            self._channels.forget(channel)
            self._store.channels.drop(channel.row.id)
            self._batch.outcome.changes.append(ChannelVanished(channel.name))
        elif not channel.admins():
            eldest = min(channel.subscriptions.values(), key=lambda one: (one.joined_at_ms, one.number))
            self._set_role(channel, self._directory.accounts[eldest.number], ch.Role.ADMIN, "hub")

    def _set_role(self, channel: Channel, account: Account, role: ch.Role, by: str) -> None:
        one = replace(channel.subscriptions[account.number], role=role)
        self._channels.note_subscription(channel, one)
        self._store.channels.join(one)
        self._batch.record(
            ChannelChanged(id=channel.row.id, name=channel.name, by=by, what=role.value, member=account.name)
        )

    # Commands that manage channels.

    @decides(c.CreateChannel)
    def create(self, session: Session, command: c.CreateChannel) -> Reply:
        """Create a channel, and reply with it.

        Earlier messages to a channel of the same name do not belong to the new channel.
        """
        if session.account is None:
            return Refusal(Code.INVALID_REQUEST, "only a member can make a channel")
        name = self._free_name(command.name)
        if isinstance(name, Refusal):
            return name
        channel = self._make(name, session.account, start=self._batch.ledger.end)
        if isinstance(channel, Refusal):
            return channel
        self._batch.record(ChannelChanged(id=channel.row.id, name=name, by=session.speaker, what="create"))
        return ChannelState(self._channels.view(channel))

    def _free_name(self, text: str) -> ChannelName | Refusal:
        name = parse_channel_name(text)
        if isinstance(name, Refusal):
            return name
        if name in IMPLICIT:
            return Refusal(Code.RESERVED_NAME, f"#{name} is there always, and holds its members by itself")
        known = self._channels.named(name)
        if known is not None and not known.archived:
            return Refusal(Code.NAME_TAKEN, f"there is a channel #{name} already")
        return name

    @decides(c.ViewChannel)
    def view(self, session: Session, command: c.ViewChannel) -> Reply:
        """Reply with a channel and its members."""
        if command.channel in IMPLICIT:
            return ChannelState(self._channels.describe(ChannelName(command.channel)))
        channel = self._channels.find(command.channel)
        return self._directory.unknown_channel(command.channel) if channel is None else self._state(channel)

    def _state(self, channel: Channel) -> Reply:
        return ChannelState(self._channels.view(channel))

    @decides(c.ChangeChannel)
    def change(self, session: Session, command: c.ChangeChannel) -> Reply:
        """Change a channel, for example rename or archive it. Reply with the changed channel."""
        if command.channel in IMPLICIT:
            return Refusal(Code.RESERVED_NAME, f"#{command.channel} holds its members by itself, and stays as it is")
        channel = self._channels.find(command.channel)
        if channel is None:
            return self._directory.unknown_channel(command.channel)
        refusal = _refuse(session, channel, command.change) or self._carry_out(session, channel, command.change)
        # If the last member has left, the reply shows the removed channel.
        return refusal or self._state(channel)

    def _carry_out(self, session: Session, channel: Channel, change: ch.AnyChange) -> Refusal | None:
        match change:
            case ch.Rename(name):
                return self._rename(session, channel, name)
            case ch.Archive():
                if not channel.archived:
                    self._archive(session, channel)
                return None
            case ch.Enter():
                assert session.account is not None, "refused before"
                return self._enter(channel, session.account)
            case ch.Admit(name, role):
                return self._admit(session, channel, name, role)
            case ch.Dismiss(name):
                return self._dismiss(channel, name)
            case _:
                assert_never(change)

    def _rename(self, session: Session, channel: Channel, text: str) -> Refusal | None:
        if text == channel.name:
            return None
        name = self._free_name(text)
        if isinstance(name, Refusal):
            return name
        if len(channel.row.spans) > self._limits.channel_names_max:
            return Refusal(Code.TOO_MANY_CHANNELS, f"#{channel.name} had {len(channel.row.spans)} names already")
        before = channel.name
        receivers = self._channels.remove_name(channel)
        *earlier, last = channel.row.spans
        end = self._batch.ledger.end
        spans = (*earlier, replace(last, end=end), Span(f"#{name}", end))
        channel.row = replace(channel.row, name=name, spans=spans)
        self._store.channels.save(channel.row)
        self._channels.add_name(channel)
        self._directory.channels[name].update(receivers)
        self._batch.outcome.changes.extend((ChannelVanished(before, ended=True), ChannelAppeared(name, channel.row.id)))
        self._batch.record(
            ChannelChanged(id=channel.row.id, name=name, by=session.speaker, what=f"rename from {before}")
        )
        return None

    def _archive(self, session: Session, channel: Channel) -> None:
        *earlier, last = channel.row.spans
        spans = (*earlier, replace(last, end=self._batch.ledger.end))
        channel.row = replace(channel.row, archived_at_ms=self._batch.now_ms, spans=spans)
        self._store.channels.save(channel.row)
        self._channels.archive(channel)
        self._batch.outcome.changes.append(ChannelVanished(channel.name, ended=True))
        self._batch.record(ChannelChanged(id=channel.row.id, name=channel.name, by=session.speaker, what="archive"))

    def _admit(self, session: Session, channel: Channel, name: str, role: ch.Role) -> Refusal | None:
        account = self._directory.find(name)
        if account is None:
            return self._directory.unknown_member(name)
        own = channel.subscriptions.get(account.number)
        if own is None:
            return self._enter(channel, account, role)
        if own.role is not role:
            if role is ch.Role.MEMBER and channel.admins() == [account.number]:
                return _last_admin(channel)
            self._set_role(channel, account, role, session.speaker)
        return None

    def _dismiss(self, channel: Channel, name: str) -> Refusal | None:
        account = self._directory.find(name)
        if account is None or account.number not in channel.subscriptions:
            return Refusal(Code.UNKNOWN_MEMBER, f"{name[:140]!r} is not in #{channel.name}")
        if channel.admins() == [account.number] and len(channel.subscriptions) > 1:
            return _last_admin(channel)
        self._unsubscribe(channel, account)
        return None


def _refuse(session: Session, channel: Channel, change: ch.AnyChange) -> Refusal | None:
    """Return a refusal if the session may not make this change; otherwise `None`."""
    account = session.account
    own = channel.subscriptions.get(account.number) if account is not None else None
    if isinstance(change, ch.Enter):
        if account is None:
            return Refusal(Code.INVALID_REQUEST, "only a member can enter a channel")
    elif isinstance(change, ch.Dismiss) and account is not None and change.name == account.name:
        # Every member may leave a channel.
        pass
    elif not session.operator and (own is None or own.role is not ch.Role.ADMIN):
        return Refusal(Code.FORBIDDEN, f"only an admin of #{channel.name} may do this")
    if channel.archived and not isinstance(change, ch.Archive):
        return Refusal(Code.CHANNEL_ARCHIVED, f"#{channel.name} is archived: it can be read and not changed")
    return None


def _last_admin(channel: Channel) -> Refusal:
    return Refusal(Code.FORBIDDEN, f"#{channel.name} would have members and no admin: make somebody else admin first")
