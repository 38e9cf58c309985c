"""The directory: who is a member, who subscribes to what, which sessions are open, and whose token it is."""

import heapq
import hmac
from collections.abc import Iterable
from difflib import get_close_matches
from hashlib import sha256

from tieline.contract.identifiers import GENERAL, USERS, ChannelName, SessionId
from tieline.contract.member import Member, MemberKind, Origin, Presence
from tieline.contract.message import Message
from tieline.contract.permission import MEMBERS_MANAGE
from tieline.contract.refusal import Code, Refusal
from tieline.contract.team import Team
from tieline.core.inbox import Inbox
from tieline.core.store import Foundation, MemberImage, MemberRow, TokenRow

_NEAR_MAX = 3
_NEAR_CANDIDATES_MAX = 256
"""Comparing names takes tens of microseconds each, on the thread that everybody waits for."""
_NEAR_LENGTH_MAX = 64
HINTS_MAX = 16
"""Unknown names of one batch for which near ones are looked for: whoever misspells more is no person."""


def token_digest(token: str) -> bytes:
    """Tokens are random and long, so one round of a fast hash keeps them as well as a slow one would."""
    return sha256(token.encode()).digest()


class Account:
    """A member as the broker works with it."""

    __slots__ = (
        "busy_until_ms",
        "changed",
        "inbox",
        "last_seen_ms",
        "member",
        "name",
        "number",
        "owner",
        "sessions",
        "since",
        "streams",
    )

    def __init__(self, row: MemberRow) -> None:
        self.number = row.number
        self.member = member = row.member
        # Log offset at which it was made.
        self.since = row.since
        self.name = member.name
        # Digest of the shared token that the name belongs to, if it does.
        self.owner: bytes | None = None
        self.inbox = Inbox()
        # Last sequence by stream: `sender␟topic`.
        self.streams: dict[str, int] = {}
        self.sessions: list[Session] = []
        self.last_seen_ms: int | None = None
        # Until when it counts as busy.
        self.busy_until_ms = 0
        # Whether inbox or streams differ from the last snapshot.
        self.changed = False

    @property
    def present(self) -> bool:
        """Whether a message to everybody is for it: those that no token made count only while connected."""
        return self.member.origin is Origin.TOKEN or bool(self.sessions)

    def touch(self, now_ms: int) -> None:
        """Somebody acted as this member."""
        self.last_seen_ms = now_ms
        self.changed = True

    def image(self) -> MemberImage:
        """What a snapshot keeps."""
        return MemberImage(self.number, self.inbox.image(), dict(self.streams), self.last_seen_ms)


class Session:
    """One authenticated attachment through one protocol."""

    __slots__ = (
        "account",
        "acknowledges",
        "by_token",
        "by_user",
        "follows_others",
        "id",
        "operator",
        "protocol",
        "resume_id",
        "speaker",
        "token",
    )

    def __init__(self, session_id: SessionId, protocol: str, speaker: str, *, account: Account | None) -> None:
        self.id = session_id
        self.protocol = protocol
        # The name stamped on what this session says.
        self.speaker = speaker
        # The member it belongs to; none for operators and for those without an identity.
        self.account = account
        # Whether its wire can acknowledge.
        self.acknowledges = True
        # Whether it holds the key of the hub's home.
        self.operator = False
        # Whether a token proved it, so that it ends with the token.
        self.by_token = False
        # The digest of that token.
        self.token: bytes | None = None
        # Whether it showed nothing, because a local name needs nothing; so that it ends when a token gets the name.
        self.by_user = False
        # Whether it hears of what other members do, so that it ends with that permission.
        self.follows_others = False
        # Under which it can be taken up again, if it can.
        self.resume_id: str | None = None

    def may(self, permission: str) -> bool:
        """Whether the session has a permission."""
        return self.operator or (self.account is not None and permission in self.account.member.permissions)

    def said(self, message: Message) -> bool:
        """Whether this session's member sent it; a former member of the same name is another."""
        return message.sender == self.speaker and (self.account is None or message.offset >= self.account.since)

    def refuse_without(self, permission: str, *, itself: str | None = None) -> Refusal | None:
        """The refusal of a session that lacks a permission, unless it is a session of the member `itself`."""
        if self.may(permission) or (self.account is not None and self.account.name == itself):
            return None
        return Refusal(Code.FORBIDDEN, f"{self.speaker} lacks the permission {permission}")


class Directory:
    """Members, channels, tokens and sessions. Only the broker changes it."""

    def __init__(self, foundation: Foundation) -> None:
        self.sessions: dict[SessionId, Session] = {}
        # How often near names are still looked for in this batch; see `HINTS_MAX`.
        self.hints_left = HINTS_MAX
        self.accounts: dict[int, Account] = {}
        # Who receives what is said in a channel, by its name; see `core.channels`.
        self.channels: dict[ChannelName, dict[int, Account]] = {}
        # Numbers of those whose names belong to a shared token.
        self.shared: set[int] = set()
        # Those who may manage members, by number.
        self.managers: dict[int, Account] = {}
        # What is said about the team; see `core.team`.
        self.team = Team()
        self._by_name: dict[str, Account] = {}
        self._tokens: dict[bytes, TokenRow] = {}
        self._tokens_of: dict[int, dict[bytes, TokenRow]] = {}
        # (time, digest) of tokens that expire, the next one first; those that are gone are still in it.
        self._expiring: list[tuple[int, bytes]] = []
        # When a session was last opened by a token.
        self._used: dict[bytes, int] = {}
        self._next_number = foundation.next_number
        for row in foundation.members:
            self._enter(row)
        for image in foundation.images:
            account = self.accounts.get(image.number)
            if account is not None:
                account.inbox = Inbox.from_image(image.inbox)
                account.streams = dict(image.streams)
                account.last_seen_ms = image.last_seen_ms
        for number, digest in foundation.owners:
            self.accounts[number].owner = digest
        for token in foundation.tokens:
            self.add_token(token)

    def _enter(self, row: MemberRow) -> Account:
        account = Account(row)
        self.accounts[row.number] = account
        self._by_name[row.member.name.casefold()] = account
        if MEMBERS_MANAGE in row.member.permissions:
            self.managers[row.number] = account
        if row.member.origin is Origin.SHARED:
            self.shared.add(row.number)
        return account

    def find(self, name: str) -> Account | None:
        """The member with exactly this name."""
        account = self._by_name.get(name.casefold())
        return account if account is not None and account.member.name == name else None

    def find_any_case(self, name: str) -> Account | None:
        """The member whose name differs from this one in case at most."""
        return self._by_name.get(name.casefold())

    def find_for(self, session: Session, permission: str, name: str) -> Account | Refusal:
        """The member of this name, for its own sessions and for those with a permission over members."""
        refusal = session.refuse_without(permission, itself=name)
        return refusal or self.find(name) or self.unknown_member(name)

    def unknown_member(self, name: str) -> Refusal:
        """The refusal for a name that nobody has."""
        near = self._near(name, (account.member.name for account in self.accounts.values()))
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        return Refusal(Code.UNKNOWN_MEMBER, f"no member is called {name!r}{hint}", near)

    def unknown_channel(self, name: str) -> Refusal:
        """The refusal for a channel that does not exist."""
        near = tuple(f"#{channel}" for channel in self._near(name, self.channels))
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        return Refusal(Code.UNKNOWN_CHANNEL, f"there is no channel #{name}{hint}", near)

    def _near(self, name: str, candidates: Iterable[str]) -> tuple[str, ...]:
        if len(name) > _NEAR_LENGTH_MAX or self.hints_left <= 0:
            return ()
        self.hints_left -= 1
        some = [candidate for candidate, _ in zip(candidates, range(_NEAR_CANDIDATES_MAX), strict=False)]
        by_lower = {candidate.lower(): candidate for candidate in some}
        return tuple(by_lower[match] for match in get_close_matches(name.lower(), by_lower, _NEAR_MAX))

    def add(self, member: Member, since: int) -> MemberRow:
        """Enter a new member."""
        row = MemberRow(self._next_number, member, since)
        self._next_number += 1
        self._enter(row).changed = True
        return row

    def remove(self, account: Account) -> None:
        """Strike out a member that has left its channels."""
        del self.accounts[account.number]
        self.managers.pop(account.number, None)
        self.shared.discard(account.number)
        del self._by_name[account.member.name.casefold()]
        for row in self.tokens_of(account):
            self.drop_token(row)

    def update(self, account: Account, member: Member) -> None:
        """Note that a member is another than it was."""
        account.member = member
        self.managers.pop(account.number, None)
        if MEMBERS_MANAGE in member.permissions:
            self.managers[account.number] = account

    def add_token(self, row: TokenRow) -> None:
        """Enter a token."""
        self._tokens[row.digest] = row
        self._tokens_of.setdefault(row.number, {})[row.digest] = row
        if row.expires_at_ms is not None:
            heapq.heappush(self._expiring, (row.expires_at_ms, row.digest))

    def drop_token(self, row: TokenRow) -> None:
        """Strike a token out."""
        del self._tokens[row.digest]
        self._used.pop(row.digest, None)
        rows = self._tokens_of[row.number]
        del rows[row.digest]
        if not rows:
            del self._tokens_of[row.number]

    def take_expired(self, now_ms: int) -> list[TokenRow]:
        """Tokens that have expired, each once."""
        expired: list[TokenRow] = []
        while self._expiring and self._expiring[0][0] <= now_ms:
            row = self._tokens.get(heapq.heappop(self._expiring)[1])
            # The same token may have been given again for longer.
            if row is not None and row.expires_at_ms is not None and row.expires_at_ms <= now_ms:
                expired.append(row)
        return expired

    def tokens_of(self, account: Account) -> list[TokenRow]:
        """All tokens of a member."""
        return list(self._tokens_of.get(account.number, {}).values())

    def note_use(self, digest: bytes, now_ms: int) -> None:
        """A session was opened by a token."""
        self._used[digest] = now_ms

    def last_use(self, digest: bytes) -> int | None:
        """When a session was last opened by a token, since the hub started."""
        return self._used.get(digest)

    def owner_of(self, token: str, now_ms: int) -> Account | None:
        """The member that a token belongs to."""
        digest = token_digest(token)
        row = self._tokens.get(digest)
        if row is None or not hmac.compare_digest(row.digest, digest):
            return None
        if row.expires_at_ms is not None and row.expires_at_ms <= now_ms:
            return None
        return self.accounts.get(row.number)

    def has_token(self, account: Account) -> bool:
        """Whether some token opens sessions of this member."""
        return account.number in self._tokens_of

    def token_known(self, digest: bytes) -> bool:
        """Whether any member has this token."""
        return digest in self._tokens

    def subscribers(self, channel: ChannelName) -> dict[int, Account] | None:
        """Who is in a channel, or `None` if there is no such channel."""
        if channel == GENERAL:
            return self.accounts
        if channel == USERS:
            humans = (account for account in self.accounts.values() if account.member.kind is MemberKind.HUMAN)
            return {account.number: account for account in humans}
        return self.channels.get(channel)

    def open(self, session: Session) -> None:
        """Enter a session."""
        self.sessions[session.id] = session
        if session.account is not None:
            session.account.sessions.append(session)

    def end(self, session: Session) -> None:
        """Strike a session out."""
        del self.sessions[session.id]
        if session.account is not None:
            session.account.sessions.remove(session)

    def carry_over(self, before: "Directory") -> None:
        """Take over what another directory of the same members knew that no store keeps."""
        self._used = before._used
        for number, account in before.accounts.items():
            now = self.accounts.get(number)
            if now is not None:
                now.busy_until_ms = account.busy_until_ms
                if account.last_seen_ms is not None and account.last_seen_ms != now.last_seen_ms:
                    now.touch(account.last_seen_ms)
        for session in before.sessions.values():
            if session.account is not None:
                session.account = self.accounts[session.account.number]
            self.open(session)

    def roster(self, name: str | None = None, now_ms: int = 0) -> tuple[Presence, ...]:
        """All members by name, or the one of this name whatever its case, with what is known of them."""
        one = None if name is None else self.find_any_case(name)
        accounts = self.accounts.values() if name is None else [one] if one else []
        return tuple(
            Presence(
                account.member,
                tuple(session.protocol for session in account.sessions),
                account.inbox.backlog,
                account.last_seen_ms,
                account.busy_until_ms > now_ms,
                account.inbox.held,
            )
            for account in sorted(accounts, key=lambda account: account.member.name)
        )
