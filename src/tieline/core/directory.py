"""The directory: members, recipients of channels, open sessions, and owners of tokens, in the broker's memory."""

import heapq
import hmac
from collections.abc import Iterable
from difflib import get_close_matches
from hashlib import sha256

from msgspec.structs import replace

from tieline.contract.delivery import Step
from tieline.contract.identifiers import GENERAL, USERS, ChannelName, SessionId
from tieline.contract.member import Member, MemberKind, Origin, Presence
from tieline.contract.message import Message
from tieline.contract.permission import MEMBERS_MANAGE
from tieline.contract.refusal import Code, Refusal
from tieline.contract.team import Team
from tieline.core.inbox import Inbox
from tieline.core.store import MemberImage, MemberRow, StoredState, TokenRow

_NEAR_MAX = 3
_NEAR_CANDIDATES_MAX = 256
"""Largest number of existing names that are compared with an unknown name, to suggest similar names.

One comparison takes tens of microseconds, and all clients share the thread on which it runs.
"""
_NEAR_LENGTH_MAX = 64
HINTS_MAX = 16
"""Largest number of unknown names per batch for which the refusal suggests similar names.

A person misspells fewer names than this. The limit is for programs, which can send any number of unknown names.
"""


def token_digest(token: str) -> bytes:
    """Return the hash of a token. Tokens are long and random, so a fast hash protects them as well as a slow one."""
    return sha256(token.encode()).digest()


class Account:
    """A member in the broker's memory, with its inbox, streams and sessions.

    A stream has the messages of one sender on one topic, with numbers.
    """

    __slots__ = (
        "busy_since_ms",
        "busy_until_ms",
        "changed",
        "evidence",
        "inbox",
        "last_seen_ms",
        "member",
        "name",
        "number",
        "owner",
        "sessions",
        "since",
        "streams",
        "words",
    )

    def __init__(self, row: MemberRow) -> None:
        self.number = row.number
        # The member as everybody sees it. Its presets are replaced by the permissions that they give.
        self.member = member = row.member
        # Permissions and names of presets, as they are stored.
        self.words = member.permissions
        # Log offset when the member was created.
        self.since = row.since
        self.name = member.name
        # Digest of the shared token that owns the name, if any.
        self.owner: bytes | None = None
        self.inbox = Inbox()
        # Last sequence by stream: `sender␟topic`.
        self.streams: dict[str, int] = {}
        self.sessions: list[Session] = []
        self.last_seen_ms: int | None = None
        # The member counts as busy until this time.
        self.busy_until_ms = 0
        # Time of its first report of those that make it busy without a gap until then.
        self.busy_since_ms = 0
        # The last step of a delivery for which a session of this member gave evidence.
        self.evidence: Step | None = None
        # True if the inbox or the streams differ from the last snapshot.
        self.changed = False

    @property
    def present(self) -> bool:
        """True if a message to everybody goes to this member now: it has its own token, or it is connected."""
        return self.member.origin is Origin.TOKEN or bool(self.sessions)

    def touch(self, now_ms: int) -> None:
        """Remember `now_ms` as the last time that a session acted for this member."""
        self.last_seen_ms = now_ms
        self.changed = True

    def row(self) -> MemberRow:
        """Return the row of this member, to save in the store."""
        return MemberRow(self.number, replace(self.member, permissions=self.words, presets=()), self.since)

    def image(self) -> MemberImage:
        """Return a copy of the inbox and the streams of this member, for a snapshot."""
        return MemberImage(self.number, self.inbox.image(), dict(self.streams), self.last_seen_ms)


class Session:
    """One authenticated session of a client, through one protocol: its member, its sender name and its rights."""

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
        # The sender name on messages of this session.
        self.speaker = speaker
        # The member of this session. None for operators without a member and for senders without an identity.
        self.account = account
        # True if the wire of this session can acknowledge.
        self.acknowledges = True
        # True if the session has proved the key of the hub's home.
        self.operator = False
        # True if the session was opened with a token. It ends when the token becomes invalid.
        self.by_token = False
        # The digest of the token that opened the session: a member's own, or a shared one.
        self.token: bytes | None = None
        # True if the session opened a local name without a token. It ends when the name gets a token.
        self.by_user = False
        # True if the session follows activity of other members. It ends when its member loses that permission.
        self.follows_others = False
        # Id to resume this session, if it can be resumed.
        self.resume_id: str | None = None

    def may(self, permission: str) -> bool:
        """True if the session has this permission."""
        return self.operator or (self.account is not None and permission in self.account.member.permissions)

    def said(self, message: Message) -> bool:
        """True if this session's member sent the message. An earlier member with the same name is another member."""
        return message.sender == self.speaker and (self.account is None or message.offset >= self.account.since)

    def refuse_without(self, permission: str, *, itself: str | None = None) -> Refusal | None:
        """Return a refusal if the session lacks a permission; otherwise `None`.

        A session of the member named `itself` needs no permission.
        """
        if self.may(permission) or (self.account is not None and self.account.name == itself):
            return None
        return Refusal(Code.FORBIDDEN, f"{self.speaker} lacks the permission {permission}")


class Directory:
    """The members, channel recipients, tokens and open sessions, in memory. Only the broker changes this object."""

    def __init__(self, stored_state: StoredState, team: Team) -> None:
        self.sessions: dict[SessionId, Session] = {}
        # Number of hints left in this batch; see `HINTS_MAX`.
        self.hints_left = HINTS_MAX
        self.accounts: dict[int, Account] = {}
        # Recipients of each channel, by channel name; see `core.channels`.
        self.channels: dict[ChannelName, dict[int, Account]] = {}
        # Numbers of members whose names belong to a shared token.
        self.shared: set[int] = set()
        # Members who may manage members, by number.
        self.managers: dict[int, Account] = {}
        # Data of the team; see `core.team`.
        self.team = team
        self._by_name: dict[str, Account] = {}
        self._tokens: dict[bytes, TokenRow] = {}
        self._tokens_of: dict[int, dict[bytes, TokenRow]] = {}
        # Heap of (time, digest) of tokens that expire. Deleted tokens may still be in it.
        self._expiring: list[tuple[int, bytes]] = []
        # By token digest: the last time that the token opened a session.
        self._used: dict[bytes, int] = {}
        self._next_number = stored_state.next_number
        for row in stored_state.members:
            self._enter(row)
        for image in stored_state.images:
            # The store deletes the image of a member with the member.
            account = self.accounts[image.number]
            account.inbox = Inbox.from_image(image.inbox)
            account.streams = dict(image.streams)
            account.last_seen_ms = image.last_seen_ms
        for number, digest in stored_state.owners:
            self.accounts[number].owner = digest
        for token in stored_state.tokens:
            self.add_token(token)

    def _enter(self, row: MemberRow) -> Account:
        account = Account(row)
        self.accounts[row.number] = account
        self._by_name[row.member.name.casefold()] = account
        self.update(account, account.member, account.words)
        if row.member.origin is Origin.SHARED:
            self.shared.add(row.number)
        return account

    def find(self, name: str) -> Account | None:
        """Return the member with exactly this name; `None` if there is none."""
        account = self._by_name.get(name.casefold())
        return account if account is not None and account.member.name == name else None

    def refuse_alias(self, name: str) -> Refusal | None:
        """Return a refusal if this name for a new member is already an alias (case is ignored); otherwise `None`.

        A new member with that name would get messages that are meant for another member.
        """
        owner = next((own for alias, own in self.team.aliases.items() if alias.casefold() == name.casefold()), None)
        return None if owner is None else Refusal(Code.NAME_TAKEN, f"the name {name!r} is an alias of {owner!r}")

    def find_any_case(self, name: str) -> Account | None:
        """Return the member with this name, ignoring case; `None` if there is none."""
        return self._by_name.get(name.casefold())

    def find_managed(self, session: Session, permission: str, name: str) -> Account | Refusal:
        """Return the member with this name, or a refusal if there is none or the session lacks the permission."""
        return session.refuse_without(permission) or self.find(name) or self.unknown_member(name)

    def find_for(self, session: Session, permission: str, name: str) -> Account | Refusal:
        """Return the member with this name, or a refusal if the session may not act for the member.

        The session must belong to the member, or have the permission.
        """
        refusal = session.refuse_without(permission, itself=name)
        return refusal or self.find(name) or self.unknown_member(name)

    def unknown_member(self, name: str) -> Refusal:
        """Return the refusal for the name of an unknown member, with similar names as a hint."""
        near = self._near(name, (account.member.name for account in self.accounts.values()))
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        return Refusal(Code.UNKNOWN_MEMBER, f"no member is called {name!r}{hint}", near)

    def unknown_channel(self, name: str) -> Refusal:
        """Return the refusal for an unknown channel, with similar names as a hint."""
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
        """Add a new member, and return its row for the store. `since` is the log offset at which it is created."""
        row = MemberRow(self._next_number, member, since)
        self._next_number += 1
        self._enter(row).changed = True
        return row

    def remove(self, account: Account) -> None:
        """Remove a member and its tokens. The caller must have removed the member from its channels before."""
        del self.accounts[account.number]
        self.managers.pop(account.number, None)
        self.shared.discard(account.number)
        del self._by_name[account.member.name.casefold()]
        for row in self.tokens_of(account):
            self.drop_token(row)

    def update(self, account: Account, member: Member, words: tuple[str, ...]) -> None:
        """Replace the data of a member. Each of `words` is a permission, or the name of a preset (permission set)."""
        permissions, presets = self.team.permissions_of(words), self.team.presets_among(words)
        account.words = words
        account.member = replace(member, permissions=permissions, presets=presets)
        self.managers.pop(account.number, None)
        if MEMBERS_MANAGE in permissions:
            self.managers[account.number] = account

    def add_token(self, row: TokenRow) -> None:
        """Add a token, so that its member can open sessions with it."""
        self._tokens[row.digest] = row
        self._tokens_of.setdefault(row.number, {})[row.digest] = row
        if row.expires_at_ms is not None:
            heapq.heappush(self._expiring, (row.expires_at_ms, row.digest))

    def drop_token(self, row: TokenRow) -> None:
        """Remove a token, so that nobody can open a session with it any more."""
        del self._tokens[row.digest]
        self._used.pop(row.digest, None)
        rows = self._tokens_of[row.number]
        del rows[row.digest]
        if not rows:
            del self._tokens_of[row.number]

    def take_expired(self, now_ms: int) -> list[TokenRow]:
        """Return the tokens that have expired since the last call. They stay in the directory."""
        expired: list[TokenRow] = []
        while self._expiring and self._expiring[0][0] <= now_ms:
            row = self._tokens.get(heapq.heappop(self._expiring)[1])
            # The same token may have been issued again with a later expiry.
            if row is not None and row.expires_at_ms is not None and row.expires_at_ms <= now_ms:
                expired.append(row)
        return expired

    def tokens_of(self, account: Account) -> list[TokenRow]:
        """Return all tokens of a member."""
        return list(self._tokens_of.get(account.number, {}).values())

    def note_use(self, digest: bytes, now_ms: int) -> None:
        """Remember that the token with this hash opened a session now."""
        self._used[digest] = now_ms

    def last_use(self, digest: bytes) -> int | None:
        """Return the time when the token with this hash last opened a session; `None` if not since the hub started."""
        return self._used.get(digest)

    def owner_of(self, token: str, now_ms: int) -> Account | None:
        """Return the member that owns a token; `None` if the token is unknown or expired."""
        digest = token_digest(token)
        row = self._tokens.get(digest)
        if row is None or not hmac.compare_digest(row.digest, digest):
            return None
        if row.expires_at_ms is not None and row.expires_at_ms <= now_ms:
            return None
        return self.accounts.get(row.number)

    def has_token(self, account: Account) -> bool:
        """True if the member has a token."""
        return account.number in self._tokens_of

    def token_known(self, digest: bytes) -> bool:
        """True if some member has the token with this hash."""
        return digest in self._tokens

    def subscribers(self, channel: ChannelName) -> dict[int, Account] | None:
        """Return the members of a channel by number; `None` if there is no such channel."""
        if channel == GENERAL:
            return self.accounts
        if channel == USERS:
            humans = (account for account in self.accounts.values() if account.member.kind is MemberKind.HUMAN)
            return {account.number: account for account in humans}
        return self.channels.get(channel)

    def open(self, session: Session) -> None:
        """Add a session to the open sessions of the hub, and to the open sessions of the session's member."""
        self.sessions[session.id] = session
        if session.account is not None:
            session.account.sessions.append(session)

    def end(self, session: Session) -> None:
        """Remove a session from the open sessions of the hub, and from the open sessions of the session's member."""
        del self.sessions[session.id]
        if session.account is not None:
            session.account.sessions.remove(session)

    def carry_over(self, before: "Directory") -> None:
        """Copy the data that is only in memory from `before`, the directory before a rollback.

        These data are the open sessions, the times when members were last seen, the times until which they are busy,
        and the times when tokens were last used.
        """
        self._used = before._used
        for number, account in before.accounts.items():
            now = self.accounts.get(number)
            if now is not None:
                now.busy_until_ms, now.busy_since_ms = account.busy_until_ms, account.busy_since_ms
                now.evidence = account.evidence
                if account.last_seen_ms is not None and account.last_seen_ms != now.last_seen_ms:
                    now.touch(account.last_seen_ms)
        for session in before.sessions.values():
            if session.account is not None:
                session.account = self.accounts[session.account.number]
            self.open(session)

    def roster(self, name: str | None = None, now_ms: int = 0) -> tuple[Presence, ...]:
        """Return all members with their connections and backlog, sorted by name.

        With `name`, return only the member with this name, ignoring case. `now_ms` is the current time. A member is
        busy if its busy time ends after `now_ms`.
        """
        one = None if name is None else self.find_any_case(name)
        accounts = self.accounts.values() if name is None else [one] if one else []
        return tuple(
            Presence(
                member=account.member,
                sessions=tuple(session.protocol for session in account.sessions),
                backlog=account.inbox.backlog,
                last_seen_ms=account.last_seen_ms,
                busy=account.busy_until_ms > now_ms,
                busy_since_ms=account.busy_since_ms if account.busy_until_ms > now_ms else None,
                evidence=account.evidence,
                held=account.inbox.held,
                unoffered=account.inbox.unoffered,
            )
            for account in sorted(accounts, key=lambda account: account.member.name)
        )
