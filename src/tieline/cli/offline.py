"""Work on a hub's home while no hub runs: opens its store, and runs the broker (the hub's rules) in this process.

Used by: `tieline member` and `tieline import`. Uses: `server`. `OfflineHub` holds the lock of the home, so that no hub
starts at the same time. `OfflineHub` has the methods of the SDK's `Client` that manage members. `OfflineSession` has
those by which a member sends messages and joins channels.
"""

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import warn
from tieline.client import Accepted, HubRefused, Issued, MemberView
from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.identifiers import ChannelName, MemberName, SessionId
from tieline.contract.member import ByHomeKey, InvitationView, MemberKind
from tieline.contract.objective import Status
from tieline.contract.refusal import Refusal
from tieline.server.config import ConfigError, load_config
from tieline.server.home import Home, HomeBusy
from tieline.server.room import open_broker
from tieline.wire.native import derived as frames
from tieline.wire.native.content import content_of
from tieline.wire.native.derived import (
    ChannelView,
    Invited,
    ObjectiveList,
    view_channel_view,
    view_presence,
    view_seen_objective,
)
from tieline.wire.native.frames import Send

_A = TypeVar("_A")
_R = TypeVar("_R")


class MemberAdmin(Protocol):
    """Interface of the methods that manage members. A session with a running hub and `OfflineHub` implement it."""

    async def add_member(
        self, name: str, *, kind: MemberKind = ..., permissions: tuple[str, ...] = ..., token: str | None = ...
    ) -> Issued:
        """Create a member and return its token."""

    async def remove_member(self, name: str) -> None:
        """Remove a member."""

    async def rotate_token(self, name: str) -> Issued:
        """Replace a member's tokens by a new one."""

    async def invitations(self) -> tuple[InvitationView, ...]:
        """Return the invitations with which somebody can still join."""

    async def invite(self, *, room: bool) -> Invited:
        """Make an invitation, or with `room` a new room token."""

    async def retoken(self, name: str, token: str) -> None:
        """Let another shared token (one token that many members use) own the member `name`."""

    async def members(self) -> tuple[MemberView, ...]:
        """Return all members."""

    async def channels(self) -> tuple[ChannelView, ...]:
        """Return all channels, by name."""

    async def objectives(
        self, *, statuses: tuple[Status, ...], assignee: str | None, before: str | None
    ) -> ObjectiveList:
        """Return a page of objectives, newest first."""


class OfflineHub:
    """A hub's home folder, opened without a running hub.

    Use it as an async context manager, like a `Client` of the SDK.
    """

    def __init__(self, path: Path) -> None:
        try:
            if not path.exists():
                warn(f"there was no home at {path}; it is created now")
            self._home = Home(path)
        except HomeBusy as error:
            message = f"a hub is just starting or stopping in {path}"
            raise Failure(Exit.UNREACHABLE, message, "try again in a moment") from error
        except OSError as error:
            said = f"{error.filename or path}: {error.strerror}" if error.strerror else str(error)
            raise Failure(Exit.FAILED, said) from error
        try:
            config = load_config(path)
            if config.store.url == "memory":
                hint = "start it, and then add members; or choose another store in tieline.toml"
                raise Failure(Exit.UNREACHABLE, f"the hub in {path} keeps its members in memory and does not run", hint)
            self._broker = open_broker(self._home, config)
            self._session = self._attach()
        except ConfigError as error:
            self._home.release()
            raise Failure(Exit.FAILED, str(error)) from error
        except BaseException:
            self._home.release()
            raise

    def _attach(self, member: str | None = None) -> SessionId:
        name = None if member is None else MemberName(member)
        command = c.Attach(protocol="tieline", credential=ByHomeKey(self._home.key()), member=name)
        return self._ask(command, r.Attached, lambda reply: reply.session)

    def open_session(self, member: str) -> "OfflineSession":
        """Open and return a session of a member."""
        return OfflineSession(self._ask, self._attach(member))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._broker.close()
        finally:
            self._home.release()

    async def add_member(
        self,
        name: str,
        *,
        kind: MemberKind = MemberKind.AGENT,
        permissions: tuple[str, ...] = (),
        token: str | None = None,
    ) -> Issued:
        """Create a member and return its token."""
        command = c.AddMember(self._session, name=MemberName(name), kind=kind, permissions=permissions, token=token)
        return self._ask(command, r.Issued, _issued)

    async def remove_member(self, name: str) -> None:
        """Remove a member."""
        self._ask(c.RemoveMember(self._session, name=MemberName(name)), r.Done, lambda _: None)

    async def rotate_token(self, name: str) -> Issued:
        """Replace a member's tokens by a new one."""
        return self._ask(c.RotateToken(self._session, name=MemberName(name)), r.Issued, _issued)

    async def invitations(self) -> tuple[InvitationView, ...]:
        """Return the invitations with which somebody can still join."""
        return self._ask(c.ListInvitations(self._session), r.Invitations, lambda reply: reply.invitations)

    async def invite(self, *, room: bool) -> Invited:
        """Make an invitation, or with `room` a new room token."""
        command = c.Invite(self._session, room=room)
        return self._ask(command, r.Invited, lambda reply: Invited(0, reply.secret, reply.view))

    async def retoken(self, name: str, token: str) -> None:
        """Let another shared token (one token that many members use) own the member `name`."""
        self._ask(c.Retoken(self._session, name=MemberName(name), token=token), r.Done, lambda _: None)

    async def members(self) -> tuple[MemberView, ...]:
        """Return all members."""
        command = c.ListMembers(self._session)
        return self._ask(command, r.Roster, lambda roster: tuple(map(view_presence, roster.members)))

    async def channels(self) -> tuple[ChannelView, ...]:
        """Return all channels, by name."""
        command = c.ListChannels(self._session)
        return self._ask(command, r.Channels, lambda reply: tuple(map(view_channel_view, reply.channels)))

    async def objectives(
        self, *, statuses: tuple[Status, ...], assignee: str | None, before: str | None
    ) -> ObjectiveList:
        """Return a page of objectives, newest first."""
        command = frames.ListObjectives(0, statuses, assignee, before).command(self._session)
        return self._ask(
            command,
            r.ObjectiveList,
            lambda page: ObjectiveList(0, tuple(map(view_seen_objective, page.objectives)), page.complete),
        )

    def _ask(self, command: c.Command, expected: type[_A], view: Callable[[_A], _R]) -> _R:
        (reply,) = self._broker.handle((command,)).replies
        self._broker.commit()
        if isinstance(reply, Refusal):
            raise HubRefused(reply.code, reply.message, reply.near)
        assert isinstance(reply, expected), "each command has its own answer"
        return view(reply)


class OfflineSession:
    """A member's session with an `OfflineHub` (a hub's home folder, opened without a running hub)."""

    def __init__(self, ask: Callable[..., Any], session: SessionId) -> None:
        self._ask = ask
        self._session = session

    async def send(self, target: str, body: str, *, wire_id: str | None = None, **parts: Any) -> Accepted:
        """Send a message. The message is durable (safe on disk) when this returns. `parts` are its optional fields."""
        content = content_of(Send(0, target, body, **parts))
        if isinstance(content, Refusal):
            raise HubRefused(content.code, content.message, content.near)
        accepted: r.Accepted = self._ask(
            c.Send(self._session, content=content, wire_id=wire_id), r.Accepted, lambda reply: reply
        )
        return Accepted(0, accepted.message_id, accepted.offset, accepted.recipients, accepted.duplicate)

    async def subscribe(self, channel: str) -> None:
        """Join a channel."""
        self._ask(c.Subscribe(self._session, channel=ChannelName(channel.removeprefix("#"))), r.Done, lambda _: None)


def _issued(reply: r.Issued) -> Issued:
    return Issued(0, reply.member, reply.token)
