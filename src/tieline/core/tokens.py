"""Tokens: a member may have several, for example one per machine. Each token can be revoked separately."""

from tieline.contract import command as c
from tieline.contract.event import Registered
from tieline.contract.member import TokenView
from tieline.contract.permission import MEMBERS_MANAGE
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Done, Reply, TokenIssued, Tokens
from tieline.core.batch import Batch
from tieline.core.directory import Account, Directory, Session, token_digest
from tieline.core.rules import Rules, decides
from tieline.core.sessions import Sessions
from tieline.core.store import INTEGER_MAX, TokenRow

_EXCERPT = 140
"""Largest number of characters of a token's label that the log or a refusal shows."""
_CHARS_MIN = 16
"""Minimum length of a token that a person chooses. A shorter token could be guessed."""


class TokenRules(Rules):
    """Rules for the commands that issue, list and revoke tokens. With a token, a member opens sessions."""

    def __init__(self, batch: Batch, directory: Directory, sessions: Sessions) -> None:
        self._batch = batch
        self._store = batch.store
        self._limits = batch.limits
        self._directory = directory
        self._clock_and_ids = batch.clock_and_ids
        self._sessions = sessions

    def check_chosen(self, token: str | None) -> Refusal | None:
        """Return a refusal if a token that a person chose is too short or already in use; otherwise `None`."""
        if token is None:
            return None
        if len(token) < _CHARS_MIN:
            return Refusal(Code.INVALID_REQUEST, f"a token has at least {_CHARS_MIN} characters")
        if self._directory.token_known(token_digest(token)):
            return Refusal(Code.INVALID_REQUEST, "this token belongs to a member already")
        return None

    def add(self, account: Account, token: str, by: str, label: str = "", expires_at_ms: int | None = None) -> TokenRow:
        """Store a new token of a member, and return its row. Other tokens of the member stay valid.

        `by` is the sender name of the session that created the token.
        """
        made = self._clock_and_ids.message_id(self._batch.now_ms)
        row = TokenRow(
            digest=token_digest(token),
            number=account.number,
            created_at_ms=self._batch.now_ms,
            expires_at_ms=expires_at_ms,
            id=made,
            label=label,
            created_by=by,
        )
        self._directory.add_token(row)
        self._store.save_token(row)
        return row

    def drop(self, row: TokenRow) -> None:
        """Delete a token, in memory and in the store. The caller must end the sessions that this token opened."""
        self._directory.drop_token(row)
        self._store.drop_token(row.digest)
        self._batch.dirty = True

    @decides(c.IssueToken)
    def issue(self, session: Session, command: c.IssueToken) -> Reply:
        """Issue an additional token for a member, and reply with the token."""
        account = self._directory.find_for(session, MEMBERS_MANAGE, command.name)
        if isinstance(account, Refusal):
            return account
        refusal = self.check_chosen(command.token) or self._check(account, command)
        if refusal is not None:
            return refusal
        token = command.token or self._clock_and_ids.token()
        row = self.add(account, token, session.speaker, command.label, command.expires_at_ms)
        self._batch.record(Registered(account.name, session.speaker, _change("one more token", row)))
        return TokenIssued(account.name, token, self._view(row))

    def _check(self, account: Account, command: c.IssueToken) -> Refusal | None:
        if len(command.label) > self._limits.text_bytes_max:
            return Refusal(Code.INVALID_REQUEST, f"a label has at most {self._limits.text_bytes_max} characters")
        if command.expires_at_ms is not None and not self._batch.now_ms < command.expires_at_ms <= INTEGER_MAX:
            return Refusal(Code.INVALID_REQUEST, "the token would have expired already, or never would")
        for row in self._directory.tokens_of(account):
            if self._expired(row):
                self.drop(row)
        if len(self._directory.tokens_of(account)) >= self._limits.tokens_max:
            return Refusal(Code.TOO_MANY_TOKENS, f"{account.name} has {self._limits.tokens_max} tokens already")
        return None

    @decides(c.ListTokens)
    def select(self, session: Session, command: c.ListTokens) -> Reply:
        """Reply with details of a member's tokens that have not expired. The tokens themselves are not shown."""
        account = self._directory.find_for(session, MEMBERS_MANAGE, command.name)
        if isinstance(account, Refusal):
            return account
        rows = self._directory.tokens_of(account)
        good = sorted((row for row in rows if not self._expired(row)), key=lambda row: (row.created_at_ms, row.id))
        return Tokens(tuple(self._view(row) for row in good))

    @decides(c.RevokeToken)
    def revoke(self, session: Session, command: c.RevokeToken) -> Reply:
        """Delete one token of a member, and end the sessions that the token opened."""
        account = self._directory.find_for(session, MEMBERS_MANAGE, command.name)
        if isinstance(account, Refusal):
            return account
        row = next((row for row in self._directory.tokens_of(account) if row.id == command.token_id), None)
        if row is None:
            return Refusal(Code.UNKNOWN_TOKEN, f"{account.name} has no token {command.token_id[:_EXCERPT]!r}")
        self.drop(row)
        self._sessions.end_all(
            [other for other in account.sessions if other.token == row.digest],
            Refusal(Code.UNAUTHORIZED, f"the token of {account.name} was revoked"),
        )
        self._batch.record(Registered(account.name, session.speaker, _change("one token less", row)))
        return Done()

    def expire(self) -> None:
        """Delete expired tokens, and end the sessions that these tokens opened."""
        for row in self._directory.take_expired(self._batch.now_ms):
            account = self._directory.accounts[row.number]
            self.drop(row)
            self._sessions.end_all(
                [session for session in account.sessions if session.token == row.digest],
                Refusal(Code.UNAUTHORIZED, f"the token of {account.name} has expired"),
            )
            self._batch.record(Registered(account.name, "hub", _change("one token less", row)))

    def _expired(self, row: TokenRow) -> bool:
        return row.expires_at_ms is not None and row.expires_at_ms <= self._batch.now_ms

    def _view(self, row: TokenRow) -> TokenView:
        used = self._directory.last_use(row.digest)
        return TokenView(
            id=row.id,
            label=row.label,
            created_by=row.created_by,
            created_at_ms=row.created_at_ms,
            expires_at_ms=row.expires_at_ms,
            last_used_ms=used,
        )


def _change(what: str, row: TokenRow) -> str:
    """Return a text for the log about a change of a token. `what` is the change; the label shows which token it was."""
    return f"{what}: {row.label[:_EXCERPT]}" if row.label else what
