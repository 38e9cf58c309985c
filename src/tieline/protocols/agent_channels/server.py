"""agent-channels as a protocol of the hub: a folder of sockets, each of which is a channel or a member's inbox.

Above: the server's assembly. Below: the Hub port, and this folder's `ChannelGroup`.

- `<channel>.sock`: a post becomes a durable message to that channel's subscribers on every protocol, and then goes to
  the other clients of the socket. What anybody says in the channel through another protocol goes to all of them. A
  channel socket never replays.
- `inbox-<member>.sock`: a post becomes a message to that member. A client that listens receives the member's messages,
  beginning with those that were not offered to it yet. Connecting to an inbox in order to write must not use up its
  owner's mail, so a client that writes before it has listened for a moment hears only what is new.
"""

import asyncio
import os
import resource
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from tieline.contract import command as c
from tieline.contract import message as m
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
from tieline.contract.keys import join_keys
from tieline.contract.member import ByPlace, Unnamed
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached, Channels, Progress, Reply, Roster
from tieline.contract.target import EVERYBODY, Target, to_channel, to_member
from tieline.protocols.agent_channels.channel import Channel, ClientError
from tieline.protocols.agent_channels.codec import MESSAGE_BYTES_MAX, InvalidMessage, Message, encode
from tieline.protocols.agent_channels.group import ChannelGroup
from tieline.wire.fidelity import LABELS, Carriage, Field, beyond, labels, own_note
from tieline.wire.folder import own_folder
from tieline.wire.frames import HEADER_BYTES, encode_frame
from tieline.wire.greeting import Greeting
from tieline.wire.protocol import Server
from tieline.wire.session_pump import Parcel, SessionPump
from tieline.wire.unfinished import Unfinished
from tieline.wire.unix import PATH_BYTES_MAX

PROTOCOL = "agent-channels"
LISTEN_SECONDS = 0.25
"""How long an inbox's client is silent before it counts as listening: a writer writes as soon as it is connected."""

_CHANGES_MAX = 512
"""Sockets that are opened before `group.json` says so: with thousands of names, writing it takes milliseconds."""
_SOCKETS_SHARE = 0.75
"""The share of the files that the hub may open; the rest is for its clients, its store and the other protocols."""


_STAMP = "tieline"
"""The key of `data` that the hub alone writes."""

CARRIAGE = Carriage(
    PROTOCOL,
    says={Field.DATA: "`data`", **{name: f"`data.{name}`" for name in LABELS}, Field.OWN: "other top-level keys"},
    carries={Field.DATA: "`data`"},
    rest=f"`data.{_STAMP}`",
)

_Change = MemberAppeared | MemberVanished | ChannelAppeared | ChannelVanished

log = structlog.get_logger(__name__)


def frame_of(message: m.Message) -> bytes | None:
    """A message of the hub as a frame of this protocol, or `None` when it does not fit into one.

    What came in through this protocol goes out as it came. Anything else carries who said it in `data.from`, and in
    `data.tieline` what else the hub knows; neither can be forged, because the hub writes them last.
    """
    said = message.content
    try:
        if message.protocol == PROTOCOL:
            return encode_frame(said.original) if said.original else _encode(Message(said.body, said.data))
        stamp = {"id": message.id, "target": str(said.target), "sent_at_ms": message.sent_at_ms}
        stamp |= {"level": said.level.value, "priority": said.priority.value, "protocol": message.protocol}
        stamp |= beyond(message, CARRIAGE.carries)
        return _encode(Message(said.body, {**(said.data or {}), "from": message.sender, _STAMP: stamp}))
    except InvalidMessage:
        return None


def _encode(message: Message) -> bytes:
    return encode(message, max_size=MESSAGE_BYTES_MAX)


class _Client:
    """One connection to one of the sockets: the wire of up to two sessions.

    Its words are said by a session without a name; what it hears on an inbox, it hears as a session of that member.
    """

    __slots__ = (
        "_channel",
        "_greeting",
        "_hearing",
        "_leaving",
        "_missed",
        "_own",
        "_place",
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
        # The session that speaks, made with its first words; and what it said before the session was open.
        self._speaking: SessionPump | None = None
        self._greeting: Greeting[Message] | None = None
        # Whether it hung up before that session was open: its words count all the same.
        self._leaving = False
        # The session that listens, on an inbox.
        self._hearing: SessionPump | None = None
        self._timer: asyncio.TimerHandle | None = None
        # Whether it receives the member's deliveries; otherwise it hears only what is new.
        self.listens = False
        # What was new before it was known whether it listens: a listener gets that from the inbox.
        self._missed: list[bytes] = []
        # Ids of its own messages that are on their way to its own inbox.
        self._own: set[str] = set()
        if place.member is not None:
            # It is there at once, but is given nothing before it is known to listen.
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

    def post(self, message: Message) -> None:
        """It said something."""
        if self._timer is not None:
            # It is a writer, and no listener.
            self._timer.cancel()
            self._timer = None
            if self._hearing is not None:
                self._hearing.close()
                self._hearing = None
            for frame in self._missed:
                self._channel.send(self.id, frame)
            self._missed.clear()
        if self._greeting is None:
            self._speaking = SessionPump(self._place.server.hub, self)
            self._greeting = Greeting(self._speaking)
            attach = c.Attach(protocol=PROTOCOL, credential=Unnamed(self.id, self._place.name), acknowledges=False)
            self._greeting.open(attach, self._opened)
        if self._greeting.waits:
            self._greeting.wait((message,))
        else:
            self._send(message)

    def _opened(self, reply: Attached | Refusal) -> None:
        if isinstance(reply, Refusal):
            self.end(reply)
            return
        assert self._greeting is not None, "it was opened by this"
        self._place.server.speakers[reply.session] = self
        for message in self._greeting.activate():
            self._send(message)
        if self._leaving:
            self._end_speaking()

    def _send(self, message: Message) -> None:
        assert self._speaking is not None, "a session that is open"
        message, notes = self._place.server.disarm(message, f"{self.id}@{self._place.name}")
        content = m.Content(
            target=self._target,
            body=message.msg,
            data=message.data,
            notes=(*notes, *own_note(PROTOCOL, *message.extra)),
            **labels(message.data),
            # Top-level keys beside `msg` and `data` are known to this protocol alone.
            original=encode(message)[HEADER_BYTES:] if message.extra else None,
        )
        send = c.Send(self._speaking.session, content=content, allow_empty=True, attempt=self._speaking.attempt)
        self._speaking.insist((send,), self._sent)

    def _sent(self, replies: Sequence[Reply]) -> None:
        for reply in replies:
            if isinstance(reply, Refusal) and reply.code is not Code.STORE_FAILED:
                # The wire has no form for a refusal; the log and the audit chain have.
                log.warning("a post was refused", place=self._place.name, client=self.id, code=reply.code)

    def hear(self, frame: bytes) -> None:
        """Something new was said here."""
        if self._timer is not None:
            self._missed.append(frame)
        elif not self.listens:
            self._channel.send(self.id, frame)

    def owns(self, message: m.Message) -> None:
        """This message is its own: the sender does not hear itself."""
        if self.listens:
            self._own.add(message.id)

    def drained(self) -> None:
        """Its socket takes bytes again."""
        if self._hearing is not None:
            self._hearing.resume_writing()

    def close(self) -> None:
        """It is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._hearing is not None:
            self._hearing.close()
        if self._greeting is not None and self._greeting.waits:
            self._leaving = True
        else:
            self._end_speaking()

    def _end_speaking(self) -> None:
        if self._speaking is not None:
            self._place.server.speakers.pop(self._speaking.session, None)
            self._speaking.close()

    # What the session pumps call: the Wire port.

    def write_deliveries(self, parcels: Sequence[Parcel]) -> Sequence[Parcel]:
        """Deliveries of the member whose inbox this is."""
        written = []
        too_large: list[int] = []
        for parcel in parcels:
            message = parcel[0]
            if message.id in self._own:
                self._own.discard(message.id)
                continue
            frame = frame_of(message)
            if frame is None:
                too_large.append(parcel[1])
            elif self._channel.send(self.id, frame):
                written.append(parcel)
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
        """Nothing is followed from here."""

    def end(self, why: Refusal) -> None:
        """The hub ended its session."""
        self._channel.disconnect(self.id, why.message)

    def pause_reading(self) -> None:
        """It says more than the hub can take down."""
        self._channel.pause_reading(self.id)

    def resume_reading(self) -> None:
        """Go on."""
        self._channel.resume_reading(self.id)


class _Place:
    """One socket: a channel or a member's inbox."""

    def __init__(self, server: "ChannelsServer", name: str, path: Path) -> None:
        self.server = server
        self.name = name
        if name.startswith(INBOX_PREFIX):
            self.member: MemberName | None = MemberName(name.removeprefix(INBOX_PREFIX))
            self.target: Target = to_member(self.member)
        else:
            self.member = None
            self.target = to_channel(ChannelName(name))
        # What is said to everybody is heard in the channel that holds everybody.
        self._targets = (self.target, EVERYBODY) if name == GENERAL else (self.target,)
        # Ends the watch over what is said here, while there are clients.
        self._unwatch: Callable[[], None] | None = None
        self._clients: dict[str, _Client] = {}
        self.channel = Channel(path, mode=0o600, post=self._posted, held=server.unfinished)
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

    def _posted(self, client_id: str, message: Message) -> None:
        client = self._clients.get(client_id)
        if client is None:
            # A client of a channel costs nothing here until it speaks.
            client = self._clients[client_id] = _Client(self, client_id)
        client.post(message)

    def _disconnected(self, client_id: str) -> None:
        client = self._clients.pop(client_id, None)
        if client is not None:
            client.close()
        if self._unwatch is not None and not self.channel.client_count:
            self._unwatch()
            self._unwatch = None

    def _drained(self, client_id: str) -> None:
        client = self._clients.get(client_id)
        if client is not None:
            client.drained()

    def _failed(self, error: ClientError) -> None:
        log.warning("a client was disconnected", place=self.name, client=error.client_id, reason=str(error))

    def _hear(self, notice: Notice) -> None:
        """A message for this place: to everybody here but its speaker and those who get it as a delivery."""
        assert isinstance(notice, Posted), "asked for"
        message, speaker = notice.message, self.server.speakers.get(notice.origin)
        if not message.reaches(PROTOCOL):
            return
        if speaker is not None:
            speaker.owns(message)
        frame = frame_of(message)
        if frame is None:
            log.warning("a message does not fit the frames of this protocol", place=self.name, message=message.id)
            return
        here = speaker is not None and speaker.id in self._clients and self._clients[speaker.id] is speaker
        speaker_id = speaker.id if speaker is not None and here else None
        if self.member is None:
            self.channel.send_all(frame, exclude=speaker_id)
            return
        for client_id, client in tuple(self._clients.items()):
            if client_id != speaker_id:
                client.hear(frame)


class ChannelsServer(Server):
    """The folder of sockets of one hub."""

    def __init__(self, hub: Hub, folder: Path, *, inboxes: bool = True, unfinished: Unfinished | None = None) -> None:
        self.hub = hub
        # What all clients may hold of frames that are not whole yet.
        self.unfinished = unfinished or Unfinished(hub.limits)
        self.folder = folder
        self.unsent_bytes_max = hub.limits.unsent_bytes_max
        # Clients by the session under which they speak.
        self.speakers: dict[SessionId, _Client] = {}
        # Names whose sockets are left out: their path does not fit into a Unix address, or the files run out.
        self.left_out: set[str] = set()
        self._sockets_max = int(_SOCKETS_SHARE * resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._name_bytes_max = PATH_BYTES_MAX - len(os.fsencode(folder / ".sock"))
        self._inboxes = inboxes
        # Names that nobody here may claim.
        self._members: set[object] = set()
        self._places: dict[str, _Place] = {}
        self._group: ChannelGroup | None = None
        # Members and channels that came or went and whose sockets did not follow yet.
        self._changes: deque[_Change] = deque()
        self._awake = asyncio.Event()
        self._stopping = False
        self._changing: asyncio.Task[None] | None = None
        self._unwatch: Callable[[], None] | None = None

    async def start(self) -> None:
        """Open a socket for every channel and member there is; later ones follow as they appear."""
        # Watch first: what appears while the lists are read is applied on top of them.
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
        self._group = ChannelGroup(self.folder, self._within_limit(fitting), channel_factory=self._make)
        await self._group.start()
        self._changing = asyncio.create_task(self._follow_changes())

    async def stop(self) -> None:
        """Close every socket and remove `group.json`."""
        if self._unwatch is not None:
            self._unwatch()
        if self._changing is not None:
            # Not in the middle of a change, which would leave sockets open that are in no list.
            self._stopping = True
            self._awake.set()
            await self._changing
        if self._group is not None:
            await self._group.stop()

    def places(self) -> Mapping[str, str]:
        """The folder."""
        return {"channels_dir": str(self.folder)}

    def _make(self, name: str, path: Path) -> Channel:
        place = self._places[name] = _Place(self, name, path)
        return place.channel

    def _fits(self, name: str) -> bool:
        if len(os.fsencode(name)) <= self._name_bytes_max:
            return True
        self.left_out.add(name)
        log.warning("a socket is left out: its path is too long", name=name)
        return False

    def _within_limit(self, names: list[str]) -> list[str]:
        """As many of these as the limit of open files has room for, beside the clients of the hub."""
        room = max(0, self._sockets_max - len(self._places))
        if len(names) > room:
            self.left_out.update(names[room:])
            log.warning("sockets are left out: the limit of open files is too low", sockets=len(names) - room)
        return names[:room]

    def disarm(self, message: Message, speaker: str) -> tuple[Message, tuple[str, ...]]:
        """What a client without an identity says, without what only the hub may say: its stamp, and members' names."""
        data = message.data
        if data is None or not (_STAMP in data or self._is_anothers(data.get("from"))):
            return message, ()
        data = {key: value for key, value in data.items() if key != _STAMP}
        claimed = data.get("from")
        notes: tuple[str, ...] = ()
        if self._is_anothers(claimed):
            data["from"] = speaker
            notes = (f"claimed to be {claimed}",)
        return Message(message.msg, data, message.extra), notes

    def _is_anothers(self, name: object) -> bool:
        """Whether a name is a member's, or the hub's own."""
        return isinstance(name, str) and (name in self._members or is_reserved(name.partition("@")[0]))

    def _changed(self, change: Notice) -> None:
        """A member or channel came or went."""
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

    def _next_changes(self) -> dict[str, _Change]:
        """Changes that can be applied together: sockets by name, each once."""
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
        remove = [name for name in gone if name in group and name != GENERAL]
        add = [name for name in changes if name not in gone and name not in group and self._fits(name)]
        try:
            failed = await group.change(self._within_limit(add), remove)
        except Exception as error:
            # Whatever it was, those who come later still want their sockets.
            log.exception("sockets could not be changed", names=[*changes], error=str(error))
            failed = {}
        for name, why in failed.items():
            log.error("a socket could not be opened", name=name, error=str(why))
        for name in changes:
            if name not in group:
                self._places.pop(name, None)
