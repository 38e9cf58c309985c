"""Threads: finds the target of a message from the fields `to` and `data.thread` of the request that sends it.

Used by: `messages`, `channels`, `objectives` and `file_routes`. Uses: the interface `contract.hub`. The sender's
`data.thread` names the thread that the message is for. If the sender may not write to that thread, the request is
refused with the reason.
"""

from msgspec import Struct

from tieline.contract import command as c
from tieline.contract import objective as o
from tieline.contract import reply as r
from tieline.contract.file import EVERYBODY as EVERYBODY_SEES
from tieline.contract.identifiers import GENERAL, ChannelName, MemberName, SessionId, parse_member_name
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import EVERYBODY, Target, TargetKind, parse_target, to_channel, to_member
from tieline.protocols.ac7 import codec
from tieline.wire.route import Call, Refused, fail, no

_EXCERPT = 140
"""Largest number of characters of a client's text that an error message repeats. No valid name is longer."""


class Thread(Struct, frozen=True):
    """Result of `thread_of`: the conversation that a message goes to.

    It is a member, a channel, an objective's thread, or everybody.
    """

    target: Target
    key: str | None = None
    """Value for `data.thread`, if it cannot be derived from the target."""
    members: int | None = None
    """Number of members in the thread, if it is known before the message is sent."""

    @property
    def viewer(self) -> str:
        """The viewer that may read the attachments of the message: a member's name, a group, or everybody."""
        match self.target.kind:
            case TargetKind.MEMBER:
                return self.target.name
            case TargetKind.OBJECTIVE:
                return str(self.target)
            case TargetKind.CHANNEL if self.key is not None and self.target.name != GENERAL:
                return self.key
            case _:
                return EVERYBODY_SEES


async def find_channel(call: Call, wanted: str) -> r.ChannelView:
    """Return the channel with this id or slug (name in ac7's form). Raises `Refused` if there is none."""
    replies = await call.ask(lambda session: (c.ViewChannel(session, channel=wanted), c.ListChannels(session)))
    match replies:
        case (r.ChannelState(channel), *_):
            return channel
        case (Refusal(Code.UNKNOWN_CHANNEL), r.Channels(channels)):
            # A channel name that is not a valid slug gets a slug derived from it.
            for channel in channels:
                if codec.slug(channel.name, channel.id) == wanted:
                    return channel
            raise Refused(no(404, f"no such channel: {wanted[:_EXCERPT]}"))
        case _:
            raise fail(replies)


async def own_channel(call: Call, wanted: str) -> r.ChannelView:
    """Return the channel with this id or slug (name in ac7's form). Raises `Refused` if the caller is not in it."""
    channel = await find_channel(call, wanted)
    if call.member not in channel.subscribers:
        raise Refused(no(403, f"you are not a member of #{codec.slug(channel.name, channel.id)}"))
    return channel


async def thread_of(call: Call, to: str | None, wanted: object) -> Thread:
    """Return the conversation that a message goes to.

    `to` is the value of `to` in the request, and `wanted` is the value of `data.thread`. Raises `Refused` if one of
    them is invalid, or if the caller may not write to the conversation.
    """
    found = await _named_thread(call, wanted) if wanted is not None else None
    # spec, The four thread types: no thread is everybody, and with `to` a direct message.
    if to is None:
        return found or Thread(EVERYBODY)
    name = parse_member_name(to)
    if isinstance(name, Refusal):
        raise Refused(no(404, f"no such agent: {to}"))
    key = found.key if found is not None and found.target.kind is TargetKind.CHANNEL else None
    return Thread(to_member(name), key, 1)


async def _named_thread(call: Call, wanted: object) -> Thread:
    # spec, The four thread types: chan:general is implicit, chan:<id> and obj:<id> have member lists.
    match wanted:
        case str() if wanted == f"chan:{GENERAL}":
            return Thread(to_channel(GENERAL), wanted)
        case str() if wanted.startswith("chan:"):
            channel = await find_channel(call, wanted.removeprefix("chan:"))
            if channel.archived_at_ms is not None:
                raise Refused(no(410, f"#{codec.slug(channel.name, channel.id)} is archived"))
            if call.member not in channel.subscribers:
                raise Refused(no(403, f"you are not a member of #{codec.slug(channel.name, channel.id)}"))
            return Thread(to_channel(ChannelName(channel.name)), f"chan:{channel.id}", len(channel.subscribers))
        case str():
            target = parse_target(wanted)
            if isinstance(target, Target) and target.kind is TargetKind.OBJECTIVE:
                return Thread(target)
        case _:
            pass
    raise Refused(no(400, "invalid push payload: data.thread is none of chan:<id> and obj:<id>"))


async def objectives_of(
    call: Call, statuses: tuple[o.Status, ...] = (), assignee: MemberName | None = None
) -> list[o.Objective]:
    """Return the objectives that the member may see, newest first, up to the hub's `page_max`.

    If `statuses` are given, only objectives with one of these statuses are returned. If `assignee` is given, only
    objectives of that member are returned.
    """
    found: list[o.Objective] = []

    def page(session: SessionId) -> tuple[c.Command]:
        before, left = found[-1].id if found else None, call.hub.limits.page_max - len(found)
        return (c.ListObjectives(session, statuses=statuses, assignee=assignee, before=before, limit=left),)

    while True:
        replies = await call.ask(page)
        match replies:
            case (r.ObjectiveList(objectives, complete),):
                found += objectives
                if complete or len(found) >= call.hub.limits.page_max:
                    return found
            case (Refusal(Code.UNKNOWN_MEMBER),) if not found:
                return found
            case _:
                raise fail(replies)
