"""Resumption: tokens by which a member takes up a session that lost its connection.

A token is bound to one member and one session, expires, and is replaced at each use. Its predecessor stays good until
the first frame under the new one, because the answer that carried the new token may have been lost with the connection;
from then on the predecessor is a replay, and is refused.
"""

from collections.abc import Sequence

from tieline.contract.refusal import Code, Refusal
from tieline.core.store import Grant

_REFUSED = Refusal(Code.RESUME_REFUSED, "the resume token is unknown, expired, used before, or another member's")


class Resumption:
    """Who may resume what. Only the broker changes it."""

    def __init__(self, grants: Sequence[Grant]) -> None:
        self._by_id = {grant.id: grant for grant in grants}
        self._by_digest: dict[bytes, Grant] = {}
        for grant in grants:
            self._index(grant)

    def _index(self, grant: Grant) -> None:
        self._by_digest[grant.digest] = grant
        if grant.previous is not None:
            self._by_digest[grant.previous] = grant

    def of_token(self, digest: bytes, number: int, now_ms: int) -> Grant | Refusal:
        """The grant that a token stands for, if this member may use it now."""
        return self._usable(self._by_digest.get(digest), number, now_ms)

    def of_id(self, resume_id: str, number: int, now_ms: int) -> Grant | Refusal:
        """The grant with this id, which is known to its owner alone."""
        return self._usable(self._by_id.get(resume_id), number, now_ms)

    def _usable(self, grant: Grant | None, number: int, now_ms: int) -> Grant | Refusal:
        if grant is None or grant.number != number or grant.expires_at_ms <= now_ms:
            return _REFUSED
        return grant

    def issue(self, resume_id: str, number: int, digest: bytes, expires_at_ms: int) -> Grant:
        """Give a session its next token. The one before stays good until `confirm`."""
        before = self._by_id.get(resume_id)
        grant = Grant(resume_id, number, digest, before.digest if before else None, expires_at_ms)
        if before is not None and before.previous is not None:
            # Two answers were lost in a row: the client still holds the older token.
            grant = Grant(resume_id, number, digest, before.previous, expires_at_ms)
        self._replace(before, grant)
        return grant

    def confirm(self, resume_id: str) -> Grant | None:
        """The client has the new token: the one before is void. Returns the grant if that changed it."""
        before = self._by_id.get(resume_id)
        if before is None or before.previous is None:
            return None
        grant = Grant(resume_id, before.number, before.digest, None, before.expires_at_ms)
        self._replace(before, grant)
        return grant

    def keep(self, grant: Grant) -> None:
        """Have this grant in place of the one with its id."""
        self._replace(self._by_id.get(grant.id), grant)

    def _replace(self, before: Grant | None, grant: Grant) -> None:
        if before is not None:
            self._by_digest.pop(before.digest, None)
            if before.previous is not None:
                self._by_digest.pop(before.previous, None)
        self._by_id[grant.id] = grant
        self._index(grant)

    def drop_member(self, number: int) -> None:
        """A member is gone, and its sessions with it."""
        for grant in [grant for grant in self._by_id.values() if grant.number == number]:
            del self._by_id[grant.id]
            self._by_digest = {digest: other for digest, other in self._by_digest.items() if other is not grant}
