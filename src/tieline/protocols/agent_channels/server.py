"""agent-channels as a protocol of the hub: a folder of sockets, each of which is a channel or a member's inbox.

Used by: the package `server`, which starts it. Uses: the interface `contract.hub`, and this folder's `ChannelGroup`.

- `<channel>.sock`: a post becomes a durable message to the channel's subscribers on every protocol. Then it goes to the
  other clients of the socket. A message to the channel from another protocol goes to all clients of the socket. A
  channel socket never replays old messages.
- `inbox-<member>.sock`: a post becomes a message to that member. A client that listens receives the member's messages,
  beginning with messages that were not offered yet. A client that connects only to write must not consume the member's
  messages. A client that writes before it has listened for `LISTEN_SECONDS` therefore receives only new messages. If a
  client begins to write later, the messages that it received are given to the next listener, too.
"""

import asyncio
import os
import resource
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.hub import (
    ChannelAppeared,
    ChannelVanished,
    Hub,
    Interest,
    MemberAppeared,
    MemberVanished,
    Notice,
    Posted,
)
from tieline.contract.identifiers import GENERAL, INBOX_PREFIX, ChannelName, MemberName, SessionId, is_reserved
from tieline.contract.keys import Range, Ranges, each_key, extend_ranges, join_keys, one_key, without_keys
from tieline.contract.member import ByPlace, Unnamed
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached, Channels, Progress, Reply, Roster
from tieline.contract.target import EVERYBODY, Target, to_channel, to_member
from tieline.protocols.agent_channels.aliases import InboxAliases, inbox_of, is_inbox
from tieline.protocols.agent_channels.channel import Channel, ClientError
from tieline.protocols.agent_channels.codec import Message
from tieline.protocols.agent_channels.group import ChannelGroup
from tieline.protocols.agent_channels.large import LargeMessage
from tieline.protocols.agent_channels.posts import PROTOCOL, content_of, frame_of
from tieline.wire.folder import own_folder
from tieline.wire.greeting import Greeting
from tieline.wire.protocol import Server
from tieline.wire.session_pump import Parcel, SessionPump
from tieline.wire.unfinished import Unfinished
from tieline.wire.unix import PATH_BYTES_MAX

LISTEN_SECONDS = 0.25
"""Time after which a client of an inbox socket that has sent nothing counts as a listener. Clients that only write do
so as soon as they are connected."""

_CHANGES_MAX = 512
"""Largest number of sockets that are opened or closed before `group.json` is written again. With thousands of names, a
write takes milliseconds."""
_SOCKETS_SHARE = 0.75
"""Part of the limit of open files that the sockets may use, from 0 to 1. Clients, the store and other protocols need
open files, too."""

_Change = MemberAppeared | MemberVanished | ChannelAppeared | ChannelVanished

log = structlog.get_logger(__name__)


class _Client:
    """One connection of a client to a socket, with up to two sessions of the hub.

    The socket stands for a channel or a member's inbox. The client sends through an anonymous session. On an inbox
    socket, it receives through a session of the member.
    """

    __slots__ = (
        "_channel",
        "_given",
        "_greeting",
        "_hearing",
        "_leaving",
        "_missed",
        "_place",
        "_posts",
        "_speaking",
        "_target",
        "_timer",
        "id",
        "listens",
    )

    def __init__(self, place: "_Place", client_id: str) -> None:
        self.id = client_id
        self._place = place
        self._channel = place.channel
        self._target = place.target
        # The session that sends, created at the first post; and the queue of posts until that session is open.
        self._speaking: SessionPump | None = None
        self._greeting: Greeting[Message | LargeMessage] | None = None
        # Posts of this turn of the event loop, which go to the hub together at its end.
        self._posts: list[Message | LargeMessage] = []
        # True if the client hung up before that session was open. Its queued posts are still sent.
        self._leaving = False
        # The session that receives, on an inbox.
        self._hearing: SessionPump | None = None
        self._timer: asyncio.TimerHandle | None = None
        # True if the client receives the member's deliveries; otherwise the client receives only new messages.
        self.listens = False
        # New messages that came before the client counted as a listener or writer. A listener gets them from the inbox.
        self._missed: list[bytes] = []
        # Keys of the member's deliveries that were given to the client.
        self._given: list[Range] = []
        if place.member is not None:
            # The session opens at once, but gets no deliveries until the client counts as a listener.
            self._timer = asyncio.get_running_loop().call_later(LISTEN_SECONDS, self._listen)
            self._hearing = SessionPump(place.server.hub, self)
            attach = c.Attach(protocol=PROTOCOL, credential=ByPlace(), member=place.member, acknowledges=False)
            self._hearing.open(attach, self._attached)

    def _attached(self, reply: Attached | Refusal) -> None:
        if isinstance(reply, Refusal):
            self.end(reply)
        elif self.listens:
            self._receive()

    def _listen(self) -> None:
        self._timer = None
        self.listens = True
        self._missed.clear()
        if self._hearing is not None and self._hearing.session:
            self._receive()

    def _receive(self) -> None:
        assert self._hearing is not None, "a listener has a session"
        self._hearing.receive(window=None, unoffered_only=True)
        self.bring(self._place.take_returned())

    def bring(self, keys: Ranges) -> None:
        """Send this client deliveries that another client of the inbox got, but gave up by beginning to write.

        `keys` are the keys of the deliveries. Do nothing if this client does not listen. Leave out deliveries that this
        client already has.
        """
        if self.listens and self._hearing is not None and self._hearing.session:
            self._hearing.repeat(tuple(each_key(without_keys(keys, self._given))))

    def note_heard(self, keys: Ranges) -> None:
        """Record that a listener got the deliveries with these keys.

        They are not passed on again if this client begins to write.
        """
        self._given = without_keys(self._given, keys)

    def post(self, message: Message | LargeMessage) -> None:
        """Send to the hub a message that the client wrote to the socket.

        On an inbox socket, this also shows that the client is a writer, and not a listener.
        """
        if self._timer is not None:
            # The client is a writer, not a listener.
            self._timer.cancel()
            self._timer = None
            if self._hearing is not None:
                self._hearing.close()
                self._hearing = None
            for frame in self._missed:
                self._channel.send(self.id, frame)
            self._missed.clear()
        elif self.listens:
            self._stop_listening()
        if self._greeting is None:
            self._speaking = SessionPump(self._place.server.hub, self)
            self._greeting = Greeting(self._speaking)
            attach = c.Attach(protocol=PROTOCOL, credential=Unnamed(self.id, self._place.name), acknowledges=False)
            self._greeting.open(attach, self._opened)
        if self._greeting.waits:
            self._greeting.wait((message,))
            return
        if not self._posts:
            asyncio.get_running_loop().call_soon(self._send_posts)
        self._posts.append(message)

    def _stop_listening(self) -> None:
        """Send the client only new messages from now on, because a client that writes to an inbox does not read it.

        Deliveries that the client already got are passed on to the listeners of the inbox.
        """
        self.listens = False
        if self._hearing is not None:
            self._hearing.close()
            self._hearing = None
        given, self._given = self._given, []
        self._place.redeliver(given)

    def _opened(self, reply: Attached | Refusal) -> None:
        if isinstance(reply, Refusal):
            self.end(reply)
            return
        assert self._greeting is not None, "it was opened by this"
        self._place.server.speakers[reply.session] = self
        self._posts += self._greeting.activate()
        self._send_posts()
        if self._leaving:
            self._end_speaking()

    def _send_posts(self) -> None:
        """Submit the posts of this turn of the event loop to the hub, together."""
        posts, self._posts = self._posts, []
        if not posts:
            return
        speaking = self._speaking
        assert speaking is not None, "a session that is open"
        speaker, is_anothers = f"{self.id}@{self._place.name}", self._place.server.is_anothers
        contents = [content_of(post, self._target, speaker, is_anothers) for post in posts]
        speaking.submit_with_retry(
            [
                c.Send(speaking.session, content=content, allow_empty=True, attempt=speaking.attempt)
                for content in contents
            ],
            self._sent,
        )

    def _sent(self, replies: Sequence[Reply]) -> None:
        for reply in replies:
            if isinstance(reply, Refusal) and reply.code is not Code.STORE_FAILED:
                # spec, Messages: a message is the only frame, so no refusal can be sent. The audit chain has it.
                log.warning("a post was refused", place=self._place.name, client=self.id, code=reply.code)

    def hear(self, frame: bytes) -> None:
        """Send the client a new message of its socket, unless the client gets it as a delivery from the inbox."""
        if self._timer is not None:
            self._missed.append(frame)
        elif not self.listens:
            self._channel.send(self.id, frame)

    def drained(self) -> None:
        """Take deliveries from the hub again, because the client's socket accepts bytes again."""
        if self._hearing is not None:
            self._hearing.resume_writing()

    def close(self) -> None:
        """End the client's sessions with the hub, because the client disconnected."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._hearing is not None:
            self._hearing.close()
        if self._given:
            # It never wrote, so it was a listener.
            self._place.note_heard(self._given)
        if self._greeting is not None and self._greeting.waits:
            self._leaving = True
        else:
            self._end_speaking()

    def _end_speaking(self) -> None:
        self._send_posts()
        if self._speaking is not None:
            self._place.server.speakers.pop(self._speaking.session, None)
            self._speaking.close()

    # The Wire port, which the session pumps call.

    def write_deliveries(self, parcels: Sequence[Parcel]) -> Sequence[Parcel]:
        """Write deliveries of the inbox's member to the client. Return the deliveries that were written."""
        written = []
        frames: list[bytes] = []
        too_large: list[int] = []
        for parcel in parcels:
            frame = frame_of(parcel[0])
            if frame is None:
                too_large.append(parcel[1])
            else:
                frames.append(frame)
                written.append(parcel)
        if frames and not self._channel.send(self.id, b"".join(frames)):
            written = []
        for _, key, _ in written:
            extend_ranges(self._given, one_key(key))
        if too_large and self._hearing is not None:
            log.warning("a message does not fit the frames of this protocol", place=self._place.name, keys=too_large)
            give_up = c.Advance(
                self._hearing.session, ranges=join_keys(too_large), state=State.DEAD, evidence="too_large"
            )
            self._hearing.submit((give_up,))
        if self._hearing is not None and self._channel.unsent_bytes(self.id) > self._place.server.unsent_bytes_max:
            self._hearing.pause_writing()
        return written

    def write_progress(self, step: Progress) -> None:
        """Do nothing: agent-channels cannot report to a client how its messages are delivered."""

    def end(self, why: Refusal) -> None:
        """Disconnect the client, because the hub ended its session."""
        self._channel.disconnect(self.id, why.message)

    def pause_reading(self) -> None:
        """Stop reading from the client, because it writes messages faster than the hub can store them."""
        self._channel.pause_reading(self.id)

    def resume_reading(self) -> None:
        """Read from the client again, because the hub can store more messages."""
        self._channel.resume_reading(self.id)


class _Place:
    """One socket and its clients. The socket stands for a channel or for a member's inbox."""

    def __init__(self, server: "ChannelsServer", name: str, path: Path) -> None:
        self.server = server
        self.name = name
        if name.startswith(INBOX_PREFIX):
            self.member: MemberName | None = MemberName(name.removeprefix(INBOX_PREFIX))
            self.target: Target = to_member(self.member)
        else:
            self.member = None
            self.target = to_channel(ChannelName(name))
        # The general channel holds everybody, so it also carries messages to everybody.
        self._targets = (self.target, EVERYBODY) if name == GENERAL else (self.target,)
        # Callback that ends the watch for messages to this place. Set while there are clients.
        self._unwatch: Callable[[], None] | None = None
        self._clients: dict[str, _Client] = {}
        # Keys of deliveries that came back from clients, for the next listener.
        self._returned: list[Range] = []
        # True if the channel has no subscribers any more, but its socket stays open for its clients.
        self.emptied = False
        # spec, What It Doesn't Do: there is no authentication, so the file's permissions are the only protection.
        self.channel = Channel(
            path, mode=0o600, post=self._posted, post_large=self._posted, unfinished=server.unfinished
        )
        self.channel.on("connect", self._connected)
        self.channel.on("disconnect", self._disconnected)
        self.channel.on("drain", self._drained)
        self.channel.on("error", self._failed)

    def _connected(self, client_id: str) -> None:
        if self._unwatch is None:
            self._unwatch = self.server.hub.watch(Interest(targets=self._targets), self._hear)
        if self.channel.peer_uid(client_id) not in (None, os.geteuid()):
            self.channel.disconnect(client_id, "this socket is for the user who runs the hub")
        elif self.member is not None:
            self._clients[client_id] = _Client(self, client_id)

    def _posted(self, client_id: str, message: Message | LargeMessage) -> None:
        client = self._clients.get(client_id)
        if client is None:
            # A client of a channel gets a `_Client` at its first post, so a silent client costs no memory here.
            client = self._clients[client_id] = _Client(self, client_id)
        client.post(message)

    def _disconnected(self, client_id: str) -> None:
        client = self._clients.pop(client_id, None)
        if client is not None:
            client.close()
        if self._unwatch is not None and not self.channel.client_count:
            self._unwatch()
            self._unwatch = None
            if self.emptied:
                self.server.close_emptied(self.name)

    def redeliver(self, keys: Ranges) -> None:
        """Pass deliveries on to the listeners of this inbox, because the client that got them began to write.

        `keys` are the keys of the deliveries. If there is no listener, they are stored for the next listener.
        """
        listeners = [client for client in self._clients.values() if client.listens]
        for client in listeners:
            client.bring(keys)
        if not listeners:
            self._returned += keys

    def take_returned(self) -> Ranges:
        """Return the keys of the deliveries that `redeliver` stored for the next listener, and forget them."""
        returned, self._returned = self._returned, []
        return sorted(returned)

    def note_heard(self, keys: Ranges) -> None:
        """Record that a listener got the deliveries with these keys, and left.

        If another client begins to write, these deliveries are not passed on again.
        """
        for client in self._clients.values():
            client.note_heard(keys)

    def _drained(self, client_id: str) -> None:
        client = self._clients.get(client_id)
        if client is not None:
            client.drained()

    def _failed(self, error: ClientError) -> None:
        log.warning("a client was disconnected", place=self.name, client=error.client_id, reason=str(error))

    def _hear(self, notice: Notice) -> None:
        """Send a message that the hub just accepted to the clients of this socket.

        The client that sent the message does not get it. A listener of an inbox gets the message as a delivery instead.
        """
        assert isinstance(notice, Posted), "asked for"
        message, speaker = notice.message, self.server.speakers.get(notice.origin)
        if not message.reaches(PROTOCOL):
            return
        frame = frame_of(message)
        if frame is None:
            log.warning("a message does not fit the frames of this protocol", place=self.name, message=message.id)
            return
        here = speaker is not None and speaker.id in self._clients and self._clients[speaker.id] is speaker
        speaker_id = speaker.id if speaker is not None and here else None
        if self.member is None:
            # spec, Channels: all other connected clients receive it, and the sender does not.
            self.channel.send_all(frame, exclude=speaker_id)
            return
        for client_id, client in tuple(self._clients.items()):
            if client_id != speaker_id:
                client.hear(frame)


class ChannelsServer(Server):
    """Server of agent-channels in a hub: a folder with one socket for each channel and each member."""

    def __init__(self, hub: Hub, folder: Path, *, inboxes: bool = True, unfinished: Unfinished | None = None) -> None:
        self.hub = hub
        # Limit on the unfinished frames of all clients.
        self.unfinished = unfinished or Unfinished(hub.limits)
        self.folder = folder
        self.unsent_bytes_max = hub.limits.unsent_bytes_max
        # Clients by the session that they send through.
        self.speakers: dict[SessionId, _Client] = {}
        # Names without a socket: the path is too long for a Unix address, or the limit of open files is reached.
        self.left_out: set[str] = set()
        self._sockets_max = int(_SOCKETS_SHARE * resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._name_bytes_max = PATH_BYTES_MAX - len(os.fsencode(folder / ".sock"))
        self._inboxes = inboxes
        # Names of members, which no client may claim in `data.from`.
        self._members: set[object] = set()
        self._places: dict[str, _Place] = {}
        self._group: ChannelGroup | None = None
        self._aliases = InboxAliases(folder)
        # Queue of changes (members and channels that came or went) that are not yet applied to the sockets.
        self._changes: deque[_Change] = deque()
        self._awake = asyncio.Event()
        self._stopping = False
        self._changing: asyncio.Task[None] | None = None
        self._unwatch: Callable[[], None] | None = None

    async def start(self) -> None:
        """Open a socket for every channel and member. New channels and members get a socket when they appear."""
        # Watch before listing: changes that come while the lists are read are applied after them.
        self._unwatch = self.hub.watch(Interest(members=True, channels=True), self._changed)
        attached = await self.hub.ask(c.Attach(protocol=PROTOCOL, credential=Unnamed("server", PROTOCOL)))
        assert isinstance(attached, Attached), "a session without a name is never refused"
        channels = await self.hub.ask(c.ListChannels(attached.session))
        roster = await self.hub.ask(c.ListMembers(attached.session))
        await self.hub.ask(c.Detach(attached.session))
        assert isinstance(channels, Channels), "lists are never refused"
        assert isinstance(roster, Roster), "lists are never refused"
        self._members.update(presence.member.name for presence in roster.members)
        names: list[str] = [view.name for view in channels.channels]
        if self._inboxes:
            names += [INBOX_PREFIX + presence.member.name for presence in roster.members]
        own_folder(self.folder)
        fitting = [name for name in names if self._fits(name)]
        self._aliases.clear()
        self._group = ChannelGroup(self.folder, self._within_limit(fitting), channel_factory=self._make)
        # spec, Channel Groups: group.json is written after all channels listen.
        await self._group.start()
        self._aliases.add(filter(is_inbox, self._group.list()))
        self._changing = asyncio.create_task(self._follow_changes())

    async def stop(self) -> None:
        """Close every socket and remove `group.json`."""
        if self._unwatch is not None:
            self._unwatch()
        if self._changing is not None:
            # Wait for the running change. Cancelling it could leave sockets open that are in no list.
            self._stopping = True
            self._awake.set()
            await self._changing
        if self._group is not None:
            self._aliases.clear()
            await self._group.stop()

    def places(self) -> Mapping[str, str]:
        """Return the address for the hub's file `run.json`: the folder of the sockets, under `channels_dir`."""
        return {"channels_dir": str(self.folder)}

    def _make(self, name: str, path: Path) -> Channel:
        place = self._places[name] = _Place(self, name, path)
        return place.channel

    def _fits(self, name: str) -> bool:
        if self._inboxes and inbox_of(name) is not None:
            # Anybody may make a channel. It must not take the place at which a member gets its messages.
            why = "its name is kept for the inbox of a member"
        elif len(os.fsencode(name)) <= self._name_bytes_max:
            return True
        else:
            why = "its path is too long"
        self.left_out.add(name)
        log.warning("a socket is left out", name=name, why=why)
        return False

    def _within_limit(self, names: list[str]) -> list[str]:
        """Return as many of `names` as the limit of open files allows, with room left for clients of the hub."""
        room = max(0, self._sockets_max - len(self._places))
        if len(names) > room:
            self.left_out.update(names[room:])
            log.warning("sockets are left out: the limit of open files is too low", sockets=len(names) - room)
        return names[:room]

    def is_anothers(self, name: object) -> bool:
        """True if a client must not use this name, because it belongs to a member or is reserved for the hub."""
        return isinstance(name, str) and (name in self._members or is_reserved(name.partition("@")[0]))

    def _changed(self, change: Notice) -> None:
        """Queue the notice that a member or channel appeared or vanished. Its socket is opened or closed later."""
        match change:
            case MemberAppeared():
                self._members.add(change.name)
            case MemberVanished():
                self._members.discard(change.name)
            case ChannelAppeared() | ChannelVanished():
                pass
            case _:
                raise AssertionError(f"nobody asked for {change}")
        self._changes.append(change)
        self._awake.set()

    async def _follow_changes(self) -> None:
        while not self._stopping:
            await self._awake.wait()
            self._awake.clear()
            while self._changes and not self._stopping:
                await self._apply(self._next_changes())

    def _stays(self, change: _Change) -> bool:
        """True if a channel has no subscribers any more, but its socket must stay open.

        The socket still has clients. It is closed when the last client leaves.
        """
        if not isinstance(change, ChannelVanished) or change.ended or change.name not in self._places:
            return False
        place = self._places[change.name]
        place.emptied = place.channel.client_count > 0
        return place.emptied

    def close_emptied(self, name: str) -> None:
        """Close the socket of a channel without subscribers, whose last client has left."""
        self._changed(ChannelVanished(ChannelName(name)))

    def _next_changes(self) -> dict[str, _Change]:
        """Remove from the queue the next changes that can be applied together. Return the changes by socket name."""
        changes: dict[str, _Change] = {}
        while self._changes and len(changes) < _CHANGES_MAX:
            change = self._changes[0]
            inbox = isinstance(change, MemberAppeared | MemberVanished)
            name = INBOX_PREFIX + change.name if inbox else str(change.name)
            if name in changes:
                break
            self._changes.popleft()
            if self._inboxes or not inbox:
                changes[name] = change
        return changes

    async def _apply(self, changes: Mapping[str, _Change]) -> None:
        group = self._group
        assert group is not None, "changes are followed while the group runs"
        gone = [name for name, change in changes.items() if isinstance(change, MemberVanished | ChannelVanished)]
        self.left_out.difference_update(gone)
        remove = [name for name in gone if name in group and name != GENERAL and not self._stays(changes[name])]
        for name in changes.keys() & self._places.keys() - set(gone):
            self._places[name].emptied = False
        add = [name for name in changes if name not in gone and name not in group and self._fits(name)]
        try:
            self._aliases.remove(filter(is_inbox, remove))
            failed = await group.change(self._within_limit(add), remove)
            self._aliases.add([name for name in filter(is_inbox, add) if name in group])
        except Exception as error:
            # Go on after any error, because later members and channels still need their sockets.
            log.exception("sockets could not be changed", names=[*changes], error=str(error))
            failed = {}
        for name, why in failed.items():
            log.error("a socket could not be opened", name=name, error=str(why))
        for name in changes:
            if name not in group:
                self._places.pop(name, None)
