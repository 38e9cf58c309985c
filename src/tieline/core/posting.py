"""Posting: gives an accepted message its id, sender and time, and stores it with its deliveries.

`core.sending` uses this module for messages of members. Rules that send messages in the name of the hub use it too.
This module writes to the log and the inboxes. It informs the parts that track a new delivery: holds, deadlines,
escalation, and the loop rule.
"""

import heapq
from collections.abc import Collection

from tieline.contract import chain
from tieline.contract import command as c
from tieline.contract.event import Sent
from tieline.contract.identifiers import MemberName
from tieline.contract.message import Content, Message, Priority
from tieline.core import ledger
from tieline.core.batch import Batch
from tieline.core.directory import Account, Session
from tieline.core.escalation import Escalation
from tieline.core.expiry import Deadline
from tieline.core.holds import Holds, Verdict
from tieline.core.loops import INNOCENT, Judgement, Loops
from tieline.core.outcome import Post
from tieline.core.signing import Signing
from tieline.core.store import pack_route
from tieline.core.streams import stream_name


class Posting:
    """Writes accepted messages to the log and the inboxes."""

    __slots__ = ("_batch", "_clock_and_ids", "_deadlines", "_escalation", "_holds", "_loops", "_signing", "_store")

    def __init__(
        self,
        batch: Batch,
        deadlines: list[Deadline],
        escalation: Escalation,
        holds: Holds,
        loops: Loops,
        signing: Signing,
    ) -> None:
        self._batch = batch
        self._store = batch.store
        self._clock_and_ids = batch.clock_and_ids
        self._deadlines = deadlines
        self._escalation = escalation
        self._holds = holds
        self._loops = loops
        self._signing = signing

    def post(self, session: Session, content: Content, accounts: Collection[Account]) -> Post:
        """Send these members a message that the hub itself wrote. Return the message with its deliveries.

        The message gets the sender name of `session`.
        """
        encoded, stream = ledger.encode_content(content), stream_name(session.speaker, content.topic)
        return self.accept(c.Send(session.id, content=content), session, encoded, stream, accounts, INNOCENT)[0]

    def accept(
        self,
        command: c.Send,
        session: Session,
        encoded: bytes,
        stream: str,
        found: Collection[Account],
        judgement: Judgement,
        verdict: Verdict | None = None,
    ) -> tuple[Post, str]:
        """Store a message with its deliveries. Return them as a `Post`, and the reason why a delivery is held.

        The reason is empty if no delivery is held. `encoded` is the content as it is stored, `stream` is the name of
        the message's stream, and `found` are the recipients. `judgement` has the message that this one answers, and the
        hops: how many answers of agents in a row led to it. With a `verdict`, the message is held: stored, but not
        delivered yet.
        """
        batch, holds = self._batch, self._holds
        now_ms, outcome = batch.now_ms, batch.outcome
        batch.changed = batch.dirty = outcome.urgent = True
        content, sender = command.content, session.speaker
        post = self._deliver(command, session, stream, found, judgement)
        message = post.message
        route = pack_route(post.numbers, post.keys, post.stream_seqs)
        seal = chain.seal_message(message, encoded, route)
        event = Sent(
            id=message.id,
            sender=sender,
            target=str(content.target),
            recipients=len(post.keys),
            digest=seal,
            thread=content.thread or "",
            reply_to=content.reply_to or "",
            hops=message.hops,
        )
        row = batch.ledger.append(event, now_ms)
        self._store.accept(row, message, encoded, route, command.shared_id)
        held = ""
        if verdict is not None or holds.any:
            held = holds.keep(post, stream, verdict)
        if content.ttl_ms is not None:
            deadline_ms = now_ms + content.ttl_ms
            for number, key in zip(post.numbers, post.keys, strict=True):
                heapq.heappush(self._deadlines, (deadline_ms, number, key))
        if self._escalation.reaches:
            self._escalation.expect(post, urgent=content.priority is Priority.URGENT)
        self._loops.note(message.id, message.offset, content, sender, judgement, now_ms)
        outcome.posts.append(post)
        self._signing.give_up(command, found)
        return post, held

    def _deliver(
        self, command: c.Send, session: Session, stream: str, accounts: Collection[Account], judgement: Judgement
    ) -> Post:
        """Make the message, and put a delivery of it into the inbox of each account."""
        batch = self._batch
        offset = batch.ledger.end
        message = Message(
            id=self._clock_and_ids.message_id(batch.now_ms),
            offset=offset,
            sender=session.speaker,
            protocol=session.protocol,
            sent_at_ms=batch.now_ms,
            content=command.content,
            wire_id=command.wire_id,
            verified=session.account is not None and not command.unverified,
            hops=judgement.hops,
            cause=judgement.cause,
            signature=command.signature,
        )
        names: list[MemberName] = []
        numbers: list[int] = []
        keys: list[int] = []
        stream_seqs: list[int] = []
        for account in accounts:
            counts = account.streams
            stream_seq = counts[stream] = counts.get(stream, 0) + 1
            names.append(account.name)
            numbers.append(account.number)
            keys.append(account.inbox.append(offset, stream_seq))
            stream_seqs.append(stream_seq)
            account.changed = True
        return Post(message, session.id, names, numbers, keys, stream_seqs)
