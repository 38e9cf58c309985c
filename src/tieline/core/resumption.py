"""Resumption: tokens that let a member resume a session that lost its connection.

A token belongs to one member and one session. It expires, and each use replaces it with a new token. The reply with the
new token may be lost with the connection. So the old token stays valid until the client sends its first frame after
that reply. From then on, the old token is refused.
"""

from collections.abc import Sequence

from tieline.contract.refusal import Code, Refusal
from tieline.core.store import Grant

_REFUSED = Refusal(Code.RESUME_REFUSED, "the resume token is unknown, expired, used before, or another member's")


class Resumption:
    """All grants, in memory. Only the broker changes this object.

    A grant is the right of a member to resume a lost session by a token.
    """

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
        """Return the grant (the right to resume a session) of the token with this hash.

        Return a refusal if the member with this `number` may not use it now.
        """
        return self._usable(self._by_digest.get(digest), number, now_ms)

    def of_id(self, resume_id: str, number: int, now_ms: int) -> Grant | Refusal:
        """Return the grant (the right to resume a session) for the session with this id.

        Return a refusal if the member with this `number` may not use it now.
        """
        return self._usable(self._by_id.get(resume_id), number, now_ms)

    def _usable(self, grant: Grant | None, number: int, now_ms: int) -> Grant | Refusal:
        if grant is None or grant.number != number or grant.expires_at_ms <= now_ms:
            return _REFUSED
        return grant

    def issue(self, resume_id: str, number: int, digest: bytes, expires_at_ms: int) -> Grant:
        """Add and return a new grant (the right to resume a session), with the hash `digest` of its next resume token.

        The previous token stays valid until `confirm`.
        """
        before = self._by_id.get(resume_id)
        grant = Grant(resume_id, number, digest, before.digest if before else None, expires_at_ms)
        if before is not None and before.previous is not None:
            # Two replies in a row were lost, so the client still has the older token.
            grant = Grant(resume_id, number, digest, before.previous, expires_at_ms)
        self._replace(before, grant)
        return grant

    def confirm(self, resume_id: str) -> Grant | None:
        """Make the previous resume token of a session invalid, because the client has the new one.

        Return the changed grant (the right to resume the session), or `None` if nothing changed.
        """
        before = self._by_id.get(resume_id)
        if before is None or before.previous is None:
            return None
        grant = Grant(resume_id, before.number, before.digest, None, before.expires_at_ms)
        self._replace(before, grant)
        return grant

    def keep(self, grant: Grant) -> None:
        """Put a grant (the right to resume a session) into memory. It replaces the grant with the same id."""
        self._replace(self._by_id.get(grant.id), grant)

    def _replace(self, before: Grant | None, grant: Grant) -> None:
        if before is not None:
            self._by_digest.pop(before.digest, None)
            if before.previous is not None:
                self._by_digest.pop(before.previous, None)
        self._by_id[grant.id] = grant
        self._index(grant)

    def drop_member(self, number: int) -> None:
        """Delete all grants (rights to resume a session) of the removed member with this number."""
        for grant in [grant for grant in self._by_id.values() if grant.number == number]:
            del self._by_id[grant.id]
            self._by_digest = {digest: other for digest, other in self._by_digest.items() if other is not grant}
