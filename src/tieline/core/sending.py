"""Sending: decides if a message is accepted, who receives it, and if it is held.

The broker calls this rule. The rule uses `core.routing` to find the recipients, `core.pacing` to slow or hold messages
of agents that answer each other too often, and `core.posting` to store the accepted message.
"""

from collections.abc import Collection

from tieline.contract import command as c
from tieline.contract.limits import Limits
from tieline.contract.message import check_content
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Reply
from tieline.core import ledger, streams
from tieline.core.directory import Account, Session
from tieline.core.evidence import EvidenceRules
from tieline.core.pacing import Pacing
from tieline.core.posting import Posting
from tieline.core.routing import Routing
from tieline.core.rules import Rules, decides
from tieline.core.signing import Signing
from tieline.core.staleness import StalenessRules
from tieline.core.store import DeliveryRoute
from tieline.core.wire_ids import WireIds


class SendingRules(Rules):
    """Rule for the command `Send`: accepts a message, or refuses it."""

    __slots__ = (
        "_evidence",
        "_limits",
        "_pacing",
        "_posting",
        "_routing",
        "_signing",
        "_staleness",
        "_wire_ids",
    )

    def __init__(
        self,
        limits: Limits,
        *,
        evidence: EvidenceRules,
        pacing: Pacing,
        posting: Posting,
        routing: Routing,
        signing: Signing,
        staleness: StalenessRules,
        wire_ids: WireIds,
    ) -> None:
        self._limits = limits
        self._evidence = evidence
        self._pacing = pacing
        self._posting = posting
        self._routing = routing
        self._signing = signing
        self._staleness = staleness
        self._wire_ids = wire_ids

    @decides(c.Send)
    def send(self, session: Session, command: c.Send) -> Reply:
        """Accept a message or refuse it.

        A message that is repeated with the same wire id (the sender's own id of the message) is not stored again.
        """
        if session.operator and session.account is None:
            return Refusal(Code.FORBIDDEN, "the operator cannot send: name a member (--as NAME)")
        limits = self._limits
        command = self._routing.by_own_name(command)
        content = command.content
        sender = session.speaker
        refusal = check_content(content, limits)
        if refusal is not None:
            return refusal
        try:
            encoded = ledger.encode_content(content)
        except (UnicodeEncodeError, TypeError, RecursionError) as error:
            return Refusal(Code.INVALID_MESSAGE, f"the data cannot be written down: {error}")
        if len(encoded) > limits.message_bytes_max:
            return Refusal(Code.MESSAGE_TOO_LARGE, f"the message is larger than {limits.message_bytes_max} bytes")
        if command.wire_id is not None:
            owner = "" if command.shared_id else sender
            known = self._wire_ids.known(owner, session.protocol, command.wire_id, encoded)
            if known is not None:
                return known
        superseded: DeliveryRoute | None = None
        if content.supersedes is not None:
            route = self._staleness.find_superseded(content.supersedes, session)
            if isinstance(route, Refusal):
                return route
            superseded = route
        found = self._routing.recipients(command, session.account)
        if isinstance(found, Refusal):
            return found
        refusal = self._signing.refuse(command, found)
        if refusal is not None:
            return refusal
        stream = streams.stream_name(sender, content.topic)
        backlog = 0
        for account in found:
            if account.inbox.backlog > backlog:  # noqa: PLR1730 - a call for each recipient takes longer
                backlog = account.inbox.backlog
        refusal = self._check_room(found, backlog, stream if content.topic else None)
        if refusal is not None:
            return refusal
        judgement, verdict = self._pacing.judge(session, content, found)
        post, held = self._posting.accept(command, session, encoded, stream, found, judgement, verdict)
        if superseded is not None:
            self._staleness.supersede(superseded, post)
        if content.reply_to is not None:
            self._evidence.reply(session, content.reply_to)
        return Accepted(
            message_id=post.message.id,
            offset=post.message.offset,
            recipients=len(post.keys),
            backlog=backlog,
            held=held,
        )

    def _check_room(self, accounts: Collection[Account], backlog: int, stream: str | None) -> Refusal | None:
        """Return a refusal if the inbox of a recipient is full or has too many streams; otherwise `None`.

        `backlog` is the number of messages that wait for the recipient for whom most wait. `stream` is the name of the
        message's stream; `None` if the message has no topic.
        """
        if backlog >= self._limits.backlog_max:
            name = next(account.name for account in accounts if account.inbox.backlog == backlog)
            return Refusal(Code.BACKLOG_FULL, f"{name} has {backlog} messages waiting")
        return None if stream is None else streams.refuse_more(accounts, stream, self._limits)
