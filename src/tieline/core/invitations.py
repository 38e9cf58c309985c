"""Invitations: secrets with which somebody who is no member can become one.

Only the hash of a secret is stored. An invitation ends when its time is over, when it was used as often as allowed, or
by a command. It also ends when a member is removed who may know the secret: the member that made it, the member with
the name that it is for, or a member who joined with it.

The *room token* is one of them, with the id `room`. It is in the configuration, never expires, and serves any number of
newcomers. When it is replaced or revoked, the hub stores the hash of the configured token as ended. So the token in the
configuration stays refused after a restart, until somebody writes another one there.
"""

import hmac
from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tieline.contract import command as c
from tieline.contract.event import InvitationChanged
from tieline.contract.identifiers import parse_member_name
from tieline.contract.member import ROOM_INVITATION as ROOM
from tieline.contract.member import InvitationView, MemberKind
from tieline.contract.permission import MEMBERS_MANAGE
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Done, Invitations, Invited, Issued, Reply
from tieline.core.batch import Batch
from tieline.core.directory import Account, Directory, Session, token_digest
from tieline.core.rules import Rules, decides
from tieline.core.store import INTEGER_MAX

_SETTING = "invitations"
"""Key of the stored invitations."""
_CONFIGURED = "tieline.toml"
_ID_CHARS = 12
"""Number of characters of an id: enough to tell a hundred invitations apart, and few enough to type."""
_EXCERPT = 140
"""Largest number of characters of an invitation's id that a refusal shows."""


class _Invitation(Struct, frozen=True, omit_defaults=True):
    """A stored invitation. `digest` is the hash of its secret, in hexadecimal digits."""

    id: str
    digest: str
    created_by: str = ""
    created_at_ms: int = 0
    member: str = ""
    expires_at_ms: int | None = None
    uses: int | None = None
    maker: int = 0
    """Number of the member that made it; 0 for the operator."""
    joined: tuple[int, ...] = ()
    """Numbers of the members who joined with it."""
    kind: MemberKind = MemberKind.AGENT
    """Kind of the members who join with it."""


class _Kept(Struct, frozen=True, omit_defaults=True):
    """All stored invitations, and the hash of the configured room token if this token was replaced."""

    invitations: tuple[_Invitation, ...] = ()
    ended_room: str = ""


AddMember = Callable[[Session, c.AddMember], Reply]

_decoder = msgspec.json.Decoder(_Kept)


class InvitationBook:
    """The invitations of a hub, in memory and in the store.

    `configured` is the hash of the room token in the configuration; `None` if there is none.
    """

    def __init__(
        self, batch: Batch, directory: Directory, settings: Mapping[str, bytes], configured: bytes | None
    ) -> None:
        self._batch = batch
        self._directory = directory
        self._configured = "" if configured is None else configured.hex()
        kept = _decoder.decode(settings[_SETTING]) if _SETTING in settings else _Kept()
        self._by_id = {one.id: one for one in kept.invitations}
        self._ended_room = kept.ended_room
        if self._configured and self._configured != kept.ended_room:
            # The configuration has another token than the one that was replaced, so the configuration counts.
            self._by_id[ROOM] = _Invitation(ROOM, self._configured, _CONFIGURED)

    @property
    def has_room_token(self) -> bool:
        """True if the configuration has a room token, even one that was replaced or revoked."""
        return bool(self._configured)

    def valid(self) -> list[_Invitation]:
        """Return the invitations with which somebody can still join, oldest first."""
        now_ms = self._batch.now_ms
        good = (one for one in self._by_id.values() if one.expires_at_ms is None or now_ms < one.expires_at_ms)
        return sorted(good, key=lambda one: (one.created_at_ms, one.id))

    def find(self, secret: str) -> _Invitation | None:
        """Return the valid invitation with this secret, or `None`."""
        digest = token_digest(secret).hex()
        found = [one for one in self.valid() if hmac.compare_digest(one.digest, digest)]
        return found[0] if found else None

    def view(self, one: _Invitation) -> InvitationView:
        """Return the details of an invitation for people who must not know its secret."""
        accounts = self._directory.accounts
        joined = tuple(accounts[number].name for number in one.joined if number in accounts)
        return InvitationView(
            id=one.id,
            member=one.member,
            created_by=one.created_by,
            created_at_ms=one.created_at_ms,
            expires_at_ms=one.expires_at_ms,
            uses=one.uses,
            joined=joined,
        )

    def keep(self, one: _Invitation, by: str, what: str, member: str = "") -> None:
        """Store a new or changed invitation. `what` describes the change in the log, `by` is who made it."""
        if one.id == ROOM:
            self._ended_room = self._configured
        self._by_id[one.id] = one
        self._save()
        self._batch.record(InvitationChanged(one.id, by, what, member or one.member))

    def end(self, ended: Iterable[_Invitation], by: str, what: str) -> None:
        """Delete invitations. `what` describes the reason in the log, `by` is who ended them."""
        for one in list(ended):
            if one.id == ROOM:
                self._ended_room = self._configured
            del self._by_id[one.id]
            self._batch.record(InvitationChanged(one.id, by, what, one.member))
        self._save()

    def end_with(self, account: Account, by: str) -> None:
        """End the invitations that a removed member made, those for its name, and those with which it joined."""
        name = account.name.casefold()
        known = [
            one
            for one in self._by_id.values()
            if account.number in (one.maker, *one.joined) or (one.member and one.member.casefold() == name)
        ]
        if known:
            self.end(known, by, f"revoked with {account.name}")

    def drop_expired(self) -> None:
        """Delete the invitations whose time is over."""
        good = {one.id for one in self.valid()}
        expired = [one for one in self._by_id.values() if one.id not in good]
        if expired:
            self.end(expired, "hub", "expired")

    def _save(self) -> None:
        # The configured room token is not stored: it would outlive a change of the configuration.
        kept = tuple(one for one in self._by_id.values() if one.digest != self._configured)
        self._batch.store.save_setting(_SETTING, msgspec.json.encode(_Kept(kept, self._ended_room)))
        self._batch.dirty = True


class InvitationRules(Rules):
    """Rules for the commands that make, list, revoke and accept invitations.

    `add_member` is the rule that creates a member.
    """

    def __init__(self, batch: Batch, directory: Directory, book: InvitationBook, add_member: AddMember) -> None:
        self._batch = batch
        self._limits = batch.limits
        self._directory = directory
        self._clock_and_ids = batch.clock_and_ids
        self._book = book
        self._add_member = add_member

    @decides(c.Invite)
    def make(self, session: Session, command: c.Invite) -> Reply:
        """Make an invitation, or a new room token, and reply with its secret."""
        refusal = session.refuse_without(MEMBERS_MANAGE) or self._check(command)
        if refusal is not None:
            return refusal
        now_ms = self._batch.now_ms
        secret = self._clock_and_ids.token()
        digest = token_digest(secret).hex()
        maker = session.account.number if session.account is not None else 0
        if command.room:
            made = _Invitation(ROOM, digest, session.speaker, now_ms)
        else:
            made = _Invitation(
                id=self._clock_and_ids.session_id()[:_ID_CHARS],
                digest=digest,
                created_by=session.speaker,
                created_at_ms=now_ms,
                member=command.member or "",
                expires_at_ms=command.expires_at_ms,
                uses=command.uses,
                maker=maker,
                kind=command.kind,
            )
        self._book.keep(made, session.speaker, "a new room token" if command.room else "made")
        return Invited(secret, self._book.view(made))

    def _check(self, command: c.Invite) -> Refusal | None:
        if command.room:
            if self._book.has_room_token:
                return None
            why = "this hub has no room token, so everybody can register; set `room_token` in its configuration"
            return Refusal(Code.INVALID_REQUEST, why)
        if not 0 < command.uses <= self._limits.invitation_uses_max:
            most = self._limits.invitation_uses_max
            return Refusal(Code.INVALID_REQUEST, f"an invitation has from 1 to {most} uses")
        if command.expires_at_ms is not None and not self._batch.now_ms < command.expires_at_ms <= INTEGER_MAX:
            return Refusal(Code.INVALID_REQUEST, "the invitation would have expired already, or never would")
        self._book.drop_expired()
        if len(self._book.valid()) >= self._limits.invitations_max:
            return Refusal(Code.TOO_MANY_INVITATIONS, f"there are {self._limits.invitations_max} invitations already")
        return None if command.member is None else self._check_name(command)

    def _check_name(self, command: c.Invite) -> Refusal | None:
        name = parse_member_name(command.member or "")
        if isinstance(name, Refusal):
            return name
        if self._directory.find_any_case(name) is not None:
            why = f"{name!r} is a member already; give it a new token instead ('tieline member rotate {name}')"
            return Refusal(Code.NAME_TAKEN, why)
        if command.uses != 1:
            return Refusal(Code.INVALID_REQUEST, "an invitation for one name has one use")
        return None

    @decides(c.ListInvitations)
    def select(self, session: Session, command: c.ListInvitations) -> Reply:
        """Reply with details of the invitations with which somebody can still join."""
        refusal = session.refuse_without(MEMBERS_MANAGE)
        if refusal is not None:
            return refusal
        if command.secret is None:
            found = self._book.valid()
        else:
            one = self._book.find(command.secret)
            found = [] if one is None else [one]
        return Invitations(tuple(self._book.view(one) for one in found))

    @decides(c.RevokeInvitation)
    def revoke(self, session: Session, command: c.RevokeInvitation) -> Reply:
        """Delete an invitation, so that nobody can join with it any more."""
        refusal = session.refuse_without(MEMBERS_MANAGE)
        if refusal is not None:
            return refusal
        one = next((one for one in self._book.valid() if one.id == command.invitation_id), None)
        if one is None:
            return Refusal(Code.UNKNOWN_INVITATION, f"there is no invitation {command.invitation_id[:_EXCERPT]!r}")
        self._book.end([one], session.speaker, "revoked")
        return Done()

    @decides(c.AcceptInvitation)
    def accept(self, session: Session, command: c.AcceptInvitation) -> Reply:
        """Create a member with an invitation, and reply with the member's first token."""
        refusal = session.refuse_without(MEMBERS_MANAGE)
        if refusal is not None:
            return refusal
        one = self._book.find(command.secret)
        if one is None:
            return Refusal(Code.UNAUTHORIZED, "the invitation is unknown, used, revoked or expired")
        if one.member and one.member != command.name:
            return Refusal(Code.FORBIDDEN, f"this invitation is for {one.member!r}")
        reply = self._add_member(
            session,
            c.AddMember(session.id, name=command.name, kind=one.kind, token=command.token, self_named=True),
        )
        if isinstance(reply, Issued):
            self._use(one, reply.member)
        return reply

    def _use(self, one: _Invitation, name: str) -> None:
        account = self._directory.find(name)
        assert account is not None, "it was just made"
        if one.uses is None:
            self._batch.record(InvitationChanged(one.id, name, "used", name))
            return
        used = replace(one, uses=one.uses - 1, joined=(*one.joined, account.number))
        self._book.keep(used, name, "used", name)
        if used.uses == 0:
            self._book.end([used], "hub", "used up")
