"""Shared tokens: tokens in the configuration that several members share. Decides which shared token owns a name.

A name belongs to the shared token with which it was created, even while no client is connected. If this token is
removed from the configuration, no client can use the name any more: the name is *orphaned*. If exactly one token is
configured, the hub assumes that it replaced the old one. Then the token takes over an orphaned name when a client
connects with this name. If several tokens are configured, an operator decides (`Retoken`).

**Abuse.** A client that knows the only configured token may take over every orphaned name, with the messages that wait
for it. So some orphaned names are protected, and only an operator can give them to a token: a name with permissions, a
name with a token of its own, and the name of the person who runs the hub. As long as a token is configured, no other
token can take over its names. Each change of owner is a row of the audit chain.
"""

import hmac

from tieline.contract import command as c
from tieline.contract.event import Registered
from tieline.contract.permission import MEMBERS_MANAGE
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Done, Reply
from tieline.core.batch import Batch
from tieline.core.directory import Account, Directory, Session, token_digest
from tieline.core.rules import Rules, decides
from tieline.core.sessions import Sessions, refuse_wrong_case


class SharedTokens(Rules):
    """Rules about shared tokens (tokens in the configuration that several members use).

    They say with which shared token a client may use a member's name.
    """

    def __init__(
        self, batch: Batch, directory: Directory, sessions: Sessions, configured: frozenset[bytes] = frozenset()
    ) -> None:
        self._batch = batch
        self._directory = directory
        self._sessions = sessions
        # Digests of the configured tokens. If it is empty, no token takes over an orphaned name.
        self._configured = configured

    def orphans(self) -> list[str]:
        """Return the names of members whose shared token is no longer in the configuration.

        A shared token is a token that several members use.
        """
        owned = (account for account in self._directory.accounts.values() if account.owner is not None)
        return [account.name for account in owned if account.owner not in self._configured]

    def refuse(self, account: Account, name: str, digest: bytes) -> Refusal | None:
        """Return a refusal if the token with the hash `digest` may not open a session for this member as `name`.

        Return `None` if the token owns the member, or may take it over.
        """
        if account.owner is None or not (hmac.compare_digest(account.owner, digest) or self._may_take(account, digest)):
            replaced = account.owner is not None and bool(self._configured) and account.owner not in self._configured
            why = "a token that is configured no more; an operator must decide" if replaced else "another token"
            return Refusal(Code.NAME_TAKEN, f"the name {name!r} belongs to {why}")
        return refuse_wrong_case(name, account) if account.name != name else None

    def _may_take(self, account: Account, digest: bytes) -> bool:
        """True if the token with the hash `digest` may take over the member's name.

        The token must be the only configured token. The member must have no permissions and no token of its own, and
        its name must not be the name of the person who runs the hub.
        """
        if len(self._configured) != 1 or not all(hmac.compare_digest(one, digest) for one in self._configured):
            return False
        protected = account.member.permissions or self._directory.has_token(account)
        return not protected and self._sessions.refuse_kept(account.name) is None

    def note_opened(self, account: Account, digest: bytes, protocol: str) -> None:
        """Note that a shared token opens a session for a member. From now on, the token owns the member's name.

        A shared token is a token that several members use. `digest` is its hash.
        """
        if account.owner != digest:
            self._give(account, digest, protocol)

    def _give(self, account: Account, digest: bytes, by: str) -> None:
        self._batch.changed = True
        account.owner = digest
        self._batch.store.save_owner(account.number, digest)
        self._batch.record(Registered(account.name, by, "another shared token"))

    @decides(c.Retoken)
    def retoken(self, session: Session, command: c.Retoken) -> Reply:
        """Let another configured shared token (a token that several members use) own a member's name.

        End the sessions that the old token opened.
        """
        refusal = session.refuse_without(MEMBERS_MANAGE)
        if refusal is not None:
            return refusal
        account = self._directory.find(command.name)
        if account is None:
            return self._directory.unknown_member(command.name)
        before, digest = account.owner, token_digest(command.token)
        if before is None:
            return Refusal(Code.INVALID_REQUEST, f"{account.name} was not made by a token that names share")
        if digest not in self._configured:
            return Refusal(Code.INVALID_REQUEST, "names share no such token: it must be one that this hub is given")
        if before != digest:
            self._give(account, digest, session.speaker)
            why = Refusal(Code.NAME_TAKEN, f"the name {account.name!r} belongs to another token now")
            self._sessions.end_all([other for other in account.sessions if other.token == before], why)
        return Done()
