"""The directory: who is a member, who subscribes to what, which sessions are open, and whose token it is."""

import hmac
from collections.abc import Iterable
from difflib import get_close_matches
from hashlib import sha256

from tieline.contract.identifiers import GENERAL, ChannelName, SessionId
from tieline.contract.member import Member, Origin, Presence
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import ChannelView
from tieline.core.inbox import Inbox
from tieline.core.store import Foundation, MemberImage, MemberRow, TokenRow

_NEAR_MAX = 3
_NEAR_CANDIDATES_MAX = 256
"""Comparing names takes tens of microseconds each, on the thread that everybody waits for."""
_NEAR_LENGTH_MAX = 64


def token_digest(token: str) -> bytes:
    """Tokens are random and long, so one round of a fast hash keeps them as well as a slow one would."""
    return sha256(token.encode()).digest()


class Account:
    """A member as the broker works with it."""

    __slots__ = ("changed", "inbox", "last_seen_ms", "member", "name", "number", "sessions", "since", "streams")

    def __init__(self, row: MemberRow) -> None:
        self.number = row.number
        self.member = member = row.member
        # Log offset at which it was made.
        self.since = row.since
        self.name = member.name
        self.inbox = Inbox()
        # Last sequence by stream: `sender␟topic`.
        self.streams: dict[str, int] = {}
        self.sessions: list[Session] = []
        self.last_seen_ms: int | None = None
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

    __slots__ = ("account", "acknowledges", "by_token", "id", "operator", "protocol", "resume_id", "speaker")

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
        # Under which it can be taken up again, if it can.
        self.resume_id: str | None = None

    def may(self, permission: str) -> bool:
        """Whether the session has a permission."""
        return self.operator or (self.account is not None and permission in self.account.member.permissions)


class Directory:
    """Members, channels, tokens and sessions. Only the broker changes it."""

    def __init__(self, foundation: Foundation) -> None:
        self.sessions: dict[SessionId, Session] = {}
        self.accounts: dict[int, Account] = {}
        self.channels: dict[ChannelName, dict[int, Account]] = {}
        self._by_name: dict[str, Account] = {}
        self._tokens: dict[bytes, TokenRow] = {}
        self._token_of: dict[int, bytes] = {}
        self._next_number = foundation.next_number
        for row in foundation.members:
            self._enter(row)
        for image in foundation.images:
            account = self.accounts.get(image.number)
            if account is not None:
                account.inbox = Inbox.from_image(image.inbox)
                account.streams = dict(image.streams)
                account.last_seen_ms = image.last_seen_ms
        for token in foundation.tokens:
            self.set_token(token)
        for channel, number in foundation.subscriptions:
            self.channels.setdefault(channel, {})[number] = self.accounts[number]

    def _enter(self, row: MemberRow) -> Account:
        account = Account(row)
        self.accounts[row.number] = account
        self._by_name[row.member.name.casefold()] = account
        return account

    def find(self, name: str) -> Account | None:
        """The member with exactly this name."""
        account = self._by_name.get(name.casefold())
        return account if account is not None and account.member.name == name else None

    def find_any_case(self, name: str) -> Account | None:
        """The member whose name differs from this one in case at most."""
        return self._by_name.get(name.casefold())

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
        if len(name) > _NEAR_LENGTH_MAX:
            return ()
        some = [candidate for candidate, _ in zip(candidates, range(_NEAR_CANDIDATES_MAX), strict=False)]
        by_lower = {candidate.lower(): candidate for candidate in some}
        return tuple(by_lower[match] for match in get_close_matches(name.lower(), by_lower, _NEAR_MAX))

    def add(self, member: Member, since: int) -> MemberRow:
        """Enter a new member."""
        row = MemberRow(self._next_number, member, since)
        self._next_number += 1
        self._enter(row).changed = True
        return row

    def remove(self, account: Account) -> list[ChannelName]:
        """Strike a member out; returns the channels that lost their last subscriber by it."""
        del self.accounts[account.number]
        del self._by_name[account.member.name.casefold()]
        self._drop_token(account.number)
        return [name for name in list(self.channels) if self.unsubscribe(name, account)[1]]

    def set_token(self, row: TokenRow) -> None:
        """Make this the only token of its member."""
        self._drop_token(row.number)
        self._tokens[row.digest] = row
        self._token_of[row.number] = row.digest

    def _drop_token(self, number: int) -> None:
        digest = self._token_of.pop(number, None)
        if digest is not None:
            del self._tokens[digest]

    def owner_of(self, token: str, now_ms: int) -> Account | None:
        """The member that a token belongs to."""
        digest = token_digest(token)
        row = self._tokens.get(digest)
        if row is None or not hmac.compare_digest(row.digest, digest):
            return None
        if row.expires_at_ms is not None and row.expires_at_ms <= now_ms:
            return None
        return self.accounts.get(row.number)

    def token_known(self, digest: bytes) -> bool:
        """Whether any member has this token."""
        return digest in self._tokens

    def subscribe(self, channel: ChannelName, account: Account) -> tuple[bool, bool]:
        """Add a subscriber; says whether that was new, and whether the channel was."""
        subscribers = self.channels.get(channel)
        if subscribers is None:
            self.channels[channel] = {account.number: account}
            return True, True
        if account.number in subscribers:
            return False, False
        subscribers[account.number] = account
        return True, False

    def unsubscribe(self, channel: ChannelName, account: Account) -> tuple[bool, bool]:
        """Drop a subscriber; says whether there was one, and whether the channel ended with it."""
        subscribers = self.channels.get(channel)
        if subscribers is None or subscribers.pop(account.number, None) is None:
            return False, False
        if subscribers:
            return True, False
        del self.channels[channel]
        return True, True

    def channels_of(self, account: Account) -> list[ChannelName]:
        """Channels whose messages this member receives."""
        return [GENERAL, *(name for name, subscribers in self.channels.items() if account.number in subscribers)]

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

    def roster(self) -> tuple[Presence, ...]:
        """All members by name, with what is known of them."""
        return tuple(
            Presence(
                account.member,
                tuple(session.protocol for session in account.sessions),
                account.inbox.backlog,
                account.last_seen_ms,
            )
            for account in sorted(self.accounts.values(), key=lambda account: account.member.name)
        )

    def views(self) -> tuple[ChannelView, ...]:
        """All channels by name."""
        everybody = tuple(sorted(account.member.name for account in self.accounts.values()))
        named = {
            name: tuple(sorted(account.member.name for account in subscribers.values()))
            for name, subscribers in self.channels.items()
        }
        return tuple(ChannelView(name, members) for name, members in sorted({**named, GENERAL: everybody}.items()))
