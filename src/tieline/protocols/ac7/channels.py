"""Channels: routes to create, list, rename and archive channels, and to change their members.

Used by: the server. Uses: the interface `contract.hub`, which checks permissions. A request names a channel by id or
slug (its name in ac7's form).
"""

from tieline.contract import channel as ch
from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.identifiers import ChannelName
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.ac7 import codec
from tieline.protocols.ac7 import shapes as s
from tieline.protocols.ac7.threads import find_channel
from tieline.wire.route import Call, Refused, Route, fail, no

_CHANGING = (404, 409, 410)


def routes() -> list[Route]:
    """Return the routes for channels."""
    return [
        Route("GET", "/channels", listing),
        Route("POST", "/channels", create, status=201, errors=(409,)),
        Route("GET", "/channels/{slug}", show, errors=(404,)),
        Route("PATCH", "/channels/{slug}", rename, errors=_CHANGING),
        Route("DELETE", "/channels/{slug}", archive, errors=_CHANGING),
        Route("POST", "/channels/{slug}/members", admit, errors=_CHANGING),
        Route("DELETE", "/channels/{slug}/members/{name}", dismiss, errors=_CHANGING),
    ]


async def listing(call: Call, _: None) -> s.ChannelList:
    """List all channels, with the member's own membership and role."""
    found = await call.get(c.ListChannels, r.Channels)
    return s.ChannelList([codec.channel_summary(channel, call.member) for channel in found.channels])


async def create(call: Call, form: s.SlugRequest) -> s.ChannelShape:
    """Create a channel. The member becomes its admin."""
    replies = await call.ask(lambda session: (c.CreateChannel(session, name=ChannelName(form.slug)),))
    match replies:
        case (r.ChannelState(channel),):
            return codec.channel(channel)
        case (Refusal(Code.NAME_TAKEN),):
            raise Refused(no(409, f"there is a channel {form.slug} already", "slug_taken"))
        case (Refusal(Code.RESERVED_NAME),):
            raise Refused(no(403, f"the slug {form.slug} is reserved", "reserved"))
        case _:
            raise fail(replies)


async def show(call: Call, _: None) -> s.ChannelResponse:
    """Show a channel and its members."""
    return codec.channel_members(await find_channel(call, call.params["slug"]), call.member)


async def rename(call: Call, form: s.SlugRequest) -> s.ChannelShape:
    """Rename a channel. Only for its admins."""
    return codec.channel(await _change(call, ch.Rename(form.slug)))


async def archive(call: Call, _: None) -> s.ChannelShape:
    """Archive a channel. Only for its admins."""
    return codec.channel(await _change(call, ch.Archive()))


async def admit(call: Call, form: s.AddChannelMember | None) -> s.ChannelResponse:
    """Join a channel. An admin of the channel may also add other members."""
    if form is None or form.member is None or (form.member == call.member and form.role == "member"):
        return codec.channel_members(await _change(call, ch.Enter()), call.member)
    return codec.channel_members(await _change(call, ch.Admit(form.member, ch.Role(form.role))), call.member)


async def dismiss(call: Call, _: None) -> s.ChannelResponse:
    """Leave a channel. An admin of the channel may also remove other members."""
    return codec.channel_members(await _change(call, ch.Dismiss(call.params["name"])), call.member)


async def _change(call: Call, change: ch.AnyChange) -> r.ChannelView:
    channel = await find_channel(call, call.params["slug"])
    replies = await call.ask(lambda session: (c.ChangeChannel(session, channel=channel.id, change=change),))
    match replies:
        case (r.ChannelState(changed),):
            return changed
        case (Refusal(Code.NAME_TAKEN),) if isinstance(change, ch.Rename):
            raise Refused(no(409, f"there is a channel {change.name} already", "slug_taken"))
        case _:
            raise fail(replies)
