"""Channels in the hub's own protocol: frames, and what they mean in the contract."""

from typing import assert_never

from msgspec import Struct

from tieline.contract import channel as ch
from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.identifiers import ChannelName, SessionId
from tieline.wire.native.frame import Frame

# What a client says.


class ListChannels(Frame, frozen=True, omit_defaults=True, tag="channels"):
    """Answered by `channel_list`."""

    n: int


class CreateChannel(Frame, frozen=True, omit_defaults=True, tag="create_channel"):
    """Make a channel, and be its admin. Answered by `channel`."""

    n: int
    name: str


class ChangeChannel(Frame, frozen=True, omit_defaults=True, tag="change_channel"):
    """Do something to a channel, by its name or id; `do` in `change` says what. Answered by `channel`."""

    n: int
    channel: str
    change: ch.AnyChange


class ViewChannel(Frame, frozen=True, omit_defaults=True, tag="view_channel"):
    """Answered by `channel`."""

    n: int
    channel: str


Request = ListChannels | CreateChannel | ChangeChannel | ViewChannel


# What the hub says.


class ChannelView(Struct, frozen=True, omit_defaults=True):
    """A channel, its subscribers, and what they are in it."""

    name: str
    subscribers: tuple[str, ...]
    id: str = ""
    created_by: str = ""
    created_at_ms: int = 0
    archived_at_ms: int | None = None
    members: tuple[ch.ChannelMember, ...] = ()


class ChannelList(Frame, frozen=True, omit_defaults=True, tag="channel_list"):
    """All channels."""

    n: int
    channels: tuple[ChannelView, ...]


class Channel(Frame, frozen=True, omit_defaults=True, tag="channel"):
    """A channel as it stands after what was asked."""

    n: int
    channel: ChannelView


Answer = ChannelList | Channel


# Between both and the contract.


def command_of(frame: Request, session: SessionId) -> c.Command:
    """What a frame asks of the hub."""
    match frame:
        case ListChannels():
            return c.ListChannels(session)
        case CreateChannel():
            return c.CreateChannel(session, ChannelName(frame.name.removeprefix("#")))
        case ChangeChannel():
            return c.ChangeChannel(session, frame.channel.removeprefix("#"), frame.change)
        case ViewChannel():
            return c.ViewChannel(session, frame.channel.removeprefix("#"))
        case _:
            assert_never(frame)


def answer_of(n: int, reply: r.Channels | r.ChannelState) -> Answer:
    """What the hub answers."""
    match reply:
        case r.Channels():
            return ChannelList(n, tuple(map(_view, reply.channels)))
        case r.ChannelState():
            return Channel(n, _view(reply.channel))
        case _:
            assert_never(reply)


def _view(view: r.ChannelView) -> ChannelView:
    about = (view.id, view.created_by, view.created_at_ms, view.archived_at_ms, view.members)
    return ChannelView(view.name, view.subscribers, *about)
