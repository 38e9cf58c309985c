"""Passes: what a login gives. The id in the cookie is a token of the member, which the hub knows like any other.

Above: the routes of `/session`, and whoever asks by cookie. Below: `login`, which knows codes and how long a session
lasts, the file that it is kept in, and the hub. So a login may what its member may, and ends when the member goes, when
its tokens are replaced, or when somebody revokes that one in the list of tokens. A pass lasts seven days after its last
use, and thirty at most, because the hub's tokens do not slide.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.ac7.login import INVALID_CODE, Denied, Logins, LoginSession, SignedIn, digest_of
from tieline.protocols.ac7.operator import Operator
from tieline.wire.home import write_private

LOGINS_FILE = "logins.json"

_PASS_MS = 30 * 24 * 3600 * 1000
_LABEL = "login "
_LABEL_DIGITS = 12


class UnreadableLogins(ValueError):
    """The file of logins is damaged; the text says how."""


class Passes:
    """Who can log in, and who is."""

    def __init__(
        self,
        operator: Operator,
        folder: Path | None,
        now_ms: Callable[[], int],
        randomness: Callable[[int], bytes],
    ) -> None:
        self._operator = operator
        # None beside a store that forgets.
        self._path = folder / LOGINS_FILE if folder is not None else None
        self._now_ms = now_ms
        self._logins = _load(self._path, randomness)
        self._saving = asyncio.Lock()

    async def enrol(self, member: MemberName) -> str:
        """Give a member a new secret for its app; its old one and its passes end."""
        secret = self._logins.enrol(member, self._now_ms())
        await self._save()
        await self._tidy(member)
        return secret

    async def sign_in(self, code: str, member: str | None, attempt: str | None = None) -> SignedIn | Denied:
        """Give a pass to whom the code is right for."""
        result = self._logins.sign_in(code, member, self._now_ms(), attempt)
        if isinstance(result, Denied):
            return result
        # Before anybody is let in: a code is good once, whatever happens next.
        await self._save()
        name = MemberName(result.session.member)
        await self._tidy(name)
        replies = await self._operator.ask(lambda session: (self._issue(session, name, result.id),))
        match replies[0]:
            case r.TokenIssued():
                return result
            case Refusal(Code.TOO_MANY_TOKENS) as refusal:
                await self.drop(result.id)
                return Denied(409, refusal.message)
            case _:
                # The member was removed in this moment.
                await self.drop(result.id)
                return Denied(401, INVALID_CODE)

    def _issue(self, session: SessionId, name: MemberName, token: str) -> c.IssueToken:
        return c.IssueToken(session, name, _label(digest_of(token)), self._now_ms() + _PASS_MS, token)

    async def find(self, session_id: str) -> LoginSession | None:
        """The session of a cookie, if it is still good; using it prolongs it."""
        session, changed = self._logins.find(session_id, self._now_ms())
        if changed:
            await self._save()
        return session

    async def drop(self, session_id: str) -> None:
        """The hub does not know it any more."""
        if self._logins.sign_out(session_id):
            await self._save()

    async def sign_out(self, session_id: str, member: MemberName) -> None:
        """End a pass."""
        await self.drop(session_id)
        await self._tidy(member)

    async def forget(self, member: str) -> None:
        """A member is gone."""
        if self._logins.forget(member):
            await self._save()

    async def reconcile(self, since_ms: Mapping[str, int]) -> None:
        """Forget whoever was removed while nobody looked: these are the members, and since when each is one."""
        if self._logins.reconcile(since_ms):
            await self._save()

    async def _tidy(self, member: MemberName) -> None:
        """Revoke the tokens of passes that have ended, for whatever reason."""
        good = {_label(digest) for digest in self._logins.digests_of(member)}
        replies = await self._operator.ask(lambda session: (c.ListTokens(session, member),))
        match replies:
            case (r.Tokens(tokens),):
                over = [token.id for token in tokens if token.label.startswith(_LABEL) and token.label not in good]
            case _:
                over = []
        if over:
            await self._operator.ask(lambda session: [c.RevokeToken(session, member, one) for one in over])

    async def _save(self) -> None:
        """Have on disk what is known now; in the order in which it came to be."""
        if self._path is None:
            return
        async with self._saving:
            await asyncio.to_thread(write_private, self._path, self._logins.encode())


def _load(path: Path | None, randomness: Callable[[int], bytes]) -> Logins:
    if path is None or not path.exists():
        return Logins(randomness)
    try:
        return Logins(randomness, path.read_bytes())
    except msgspec.MsgspecError as error:
        raise UnreadableLogins(f"{path}: {error}") from error


def _label(digest: str) -> str:
    return _LABEL + digest[:_LABEL_DIGITS]
