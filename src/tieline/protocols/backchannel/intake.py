"""The intake: sends the files that local programs put into the mailboxes of a spool to the hub, as messages.

Used by: the adoption, which says which mailboxes have new files. Uses: the mailboxes, and the interface
`contract.hub`. A program that sends a message writes one file for each recipient, all with the same id. So each file
is one delivery to the owner of its mailbox, and the hub adds no recipients. Files with the same id that are found
together become one message of the hub. The wire id of this message is the id of the files, so that a repetition creates
no duplicate. A file that is found later becomes a separate message, only to the owner of its mailbox.

A file in the mailbox of a remote member is claimed by a rename, sent to the hub, and removed after the commit. A file
in the mailbox of a local agent is sent to the hub too, but stays where it is.
"""

import asyncio
import heapq
from collections.abc import Callable, Mapping, Sequence

import structlog
from msgspec import Struct
from msgspec.structs import replace

from tieline.contract import command as c
from tieline.contract import message as m
from tieline.contract import reply as r
from tieline.contract.delivery import SETTLED
from tieline.contract.hub import Hub
from tieline.contract.identifiers import MemberName, MessageId, SessionId
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import Target, TargetKind, to_member
from tieline.protocols.backchannel.codec import NORMAL, URGENT, SpoolMessage, agent_of, is_channel
from tieline.protocols.backchannel.file_senders import FileSenders
from tieline.protocols.backchannel.local_inbox import PROTOCOL, LocalInbox
from tieline.protocols.backchannel.mailbox import Mailbox
from tieline.protocols.backchannel.message_ids import MessageIds, is_made_here
from tieline.protocols.backchannel.view import Draft, content_of, target_of
from tieline.wire.prefix_ids import from_prefix_id
from tieline.wire.sessions import ask_all

BATCH = 128
"""Most messages in one batch. This limits the memory, and the time that a new file waits for old files."""
_FAN_OUT_SECONDS = 0.03
"""Seconds by which a message to a channel is delayed.

During this time, the sender writes the files of all recipients, one by one.
"""
WHAT = "a file in a spool"
"""Text that describes a refused file in the hub's log."""

_LATER = frozenset(
    {
        Code.BACKLOG_FULL,
        Code.TOO_MANY_STREAMS,
        Code.LOOP_DETECTED,
        Code.THREAD_PAUSED,
        Code.STORE_FAILED,
        Code.INTERNAL_ERROR,
        Code.SHUTTING_DOWN,
        Code.UNKNOWN_SESSION,
        Code.UNAUTHORIZED,
        Code.UNKNOWN_MEMBER,
    }
)
"""Codes of temporary refusals. The sender of a file gets no answer, so the file stays and is sent again later."""
_LATER_SECONDS = 15.0
_TROUBLE = frozenset({Code.STORE_FAILED, Code.SHUTTING_DOWN, Code.UNKNOWN_SESSION})
"""Codes of refusals because of the state of the hub itself. This state ends soon, so the file is sent again soon."""
_TROUBLE_SECONDS = 1.0
_PERSONAL = frozenset({Code.BACKLOG_FULL, Code.TOO_MANY_STREAMS, Code.UNKNOWN_MEMBER})
"""Codes of refusals because of one recipient. The other recipients still get the message."""

log = structlog.get_logger(__name__)


class Found(Struct, frozen=True):
    """One message that was found in the spool.

    `owners` are the members whose mailboxes contain a file of the message.
    """

    message: SpoolMessage
    owners: tuple[str, ...]


class Submission(Struct, frozen=True):
    """One `Send` command to the hub, for a message that was found in the spool.

    `owners` are the recipients: some or all of the members whose mailboxes contain a file of the message.
    """

    found: Found
    owners: tuple[str, ...]
    wire_id: str
    content: m.Content


class Intake:
    """Queue of files in a spool that wait to be sent to the hub as messages, oldest first."""

    def __init__(
        self,
        hub: Hub,
        mailboxes: Mapping[str, Mailbox],
        inboxes: Mapping[str, LocalInbox],
        local_session: Callable[[str], SessionId | None],
        again: Callable[[str], None],
        ids: MessageIds,
    ) -> None:
        self._hub = hub
        self._ids = ids
        self._mailboxes = mailboxes
        # Inboxes of the owners that are local agents.
        self._inboxes = inboxes
        self._local_session = local_session
        # Callback: look into this mailbox again.
        self._again = again
        # Owners of the mailboxes that hold each message, by id. Then a heap of (timestamp, id), oldest first.
        self._owners: dict[str, dict[str, None]] = {}
        self._order: list[tuple[str, str]] = []
        # Time at which a channel's message stops waiting for its other copies, by the loop's clock.
        self._due: dict[str, float] = {}
        # Claimed files of this round that the hub has accepted.
        self._done: list[tuple[Mailbox, str]] = []

    def delay(self) -> float | None:
        """Return the seconds until the next file can be sent: 0 if it can be sent now, and `None` if no file waits."""
        if not self._order:
            return None
        now = asyncio.get_running_loop().time()
        return max(0.0, self._due.get(self._order[0][1], 0.0) - now)

    async def add(self, arrivals: Mapping[str, set[str]]) -> None:
        """Read new files of the spool and add them to the queue.

        `arrivals` has the ids of the new messages, by the name of the mailbox's owner.
        """
        fresh = [
            (owner, message_id)
            for owner, ids in arrivals.items()
            for message_id in ids
            if owner not in self._owners.get(message_id, {})
        ]
        for start in range(0, len(fresh), BATCH):
            for owner, message_id, found in await asyncio.to_thread(self._read, fresh[start : start + BATCH]):
                if isinstance(found, SpoolMessage):
                    if message_id not in self._owners:
                        heapq.heappush(self._order, (found.ts, message_id))
                        if is_channel(found.to):
                            self._due[message_id] = asyncio.get_running_loop().time() + _FAN_OUT_SECONDS
                    self._owners.setdefault(message_id, {})[owner] = None
                elif found is not None:
                    self._mailboxes[owner].passed.add(message_id)
                    log.warning("a file in the spool is passed over", member=owner, file=message_id, reason=found)

    def _read(self, fresh: Sequence[tuple[str, str]]) -> list[tuple[str, str, SpoolMessage | str | None]]:
        return [(owner, message_id, self._mailboxes[owner].read(message_id)) for owner, message_id in fresh]

    async def take_in(self, operator: SessionId) -> None:
        """Send the oldest messages of the queue to the hub, but not more than `BATCH`.

        `operator` is an operator's session.
        """
        batch: list[str] = []
        while len(batch) < BATCH and self.delay() == 0.0:
            batch.append(heapq.heappop(self._order)[1])
            self._due.pop(batch[-1], None)
        owners = {message_id: tuple(self._owners.pop(message_id)) for message_id in batch}
        found = await asyncio.to_thread(self._claim, owners)
        senders = FileSenders(self._hub, PROTOCOL, operator, self._local_session)
        try:
            found = await self._without_own(operator, found)
            submissions = await self._send(
                operator, senders, [submission for one in found for submission in _submissions(one)]
            )
            await self._send(operator, senders, submissions)
        finally:
            senders.close()
            done, self._done = self._done, []
            await asyncio.to_thread(_drop, done)

    def _claim(self, owners: Mapping[str, Sequence[str]]) -> list[Found]:
        """Read the files of these messages and return the messages. Move the files of remote members out of `new/`.

        `owners` has, for each message id, the members whose mailboxes contain a file of the message.
        """
        together: dict[SpoolMessage, list[str]] = {}
        for message_id, names in owners.items():
            for name in names:
                mailbox = self._mailboxes.get(name)
                message = mailbox.read(message_id) if mailbox is not None else None
                if mailbox is None or not isinstance(message, SpoolMessage):
                    continue
                if name in self._inboxes or mailbox.claim(message_id):
                    together.setdefault(message, []).append(name)
        return [Found(message, tuple(names)) for message, names in together.items()]

    async def _without_own(self, operator: SessionId, found: Sequence[Found]) -> list[Found]:
        """Return `found` without the messages that the hub itself wrote into the spool.

        The hub finds its own file if a reader took the file and put it back, or if the hub crashed before it could
        remove the file. `operator` is the session that asks for the receipts of such messages.
        """
        suspects = [one for one in found if is_made_here(one.message.id)]
        if not suspects:
            return list(found)
        asked = [
            c.ReadReceipts(operator, message_id=MessageId(from_prefix_id(one.message.id)), members=one.owners)
            for one in suspects
        ]
        known = dict(zip(suspects, await ask_all(self._hub, asked), strict=True))
        left = []
        for one in found:
            receipts = known.get(one)
            unknown = one.owners
            if isinstance(receipts, r.Receipts):
                unknown = await self._reconcile(one.message.id, one.owners, receipts)
            if unknown:
                left.append(Found(one.message, unknown))
        return left

    async def _reconcile(self, message_id: str, owners: Sequence[str], receipts: r.Receipts) -> tuple[str, ...]:
        """Mark the files of a message as handled, for each owner that already has the message as a delivery in the hub.

        `receipts` are the hub's receipts of the message. Return the owners without a receipt, because they still need
        the message.
        """
        steps = {receipt.member: receipt.steps for receipt in receipts.receipts}
        for owner in owners:
            if owner not in steps:
                continue
            last = steps[owner][-1]
            inbox = self._inboxes.get(owner)
            if inbox is None:
                self._done.append((self._mailboxes[owner], message_id))
            elif last.state in SETTLED and last.protocol != PROTOCOL:
                # The hub had reserved the file by a rename and settled the delivery. A power failure undid the rename.
                await asyncio.to_thread(inbox.withdraw, message_id)
            else:
                inbox.accept((message_id,))
        return tuple(owner for owner in owners if owner not in steps)

    async def _send(
        self, operator: SessionId, senders: FileSenders, submissions: Sequence[Submission]
    ) -> list[Submission]:
        """Send messages to the hub.

        Return new submissions (send commands) for recipients that did not get the message.
        """
        sends: list[tuple[Submission, c.Send]] = []
        for submission in submissions:
            session = await senders.session_of(submission.found.message.sender)
            if isinstance(session, Refusal):
                await self._refuse(submission, session, by_hub=False)
            else:
                only = tuple(map(MemberName, submission.owners))
                send = c.Send(
                    session,
                    content=submission.content,
                    wire_id=submission.wire_id,
                    shared_id=True,
                    only=only,
                    unverified=True,
                )
                sends.append((submission, send))
        if not sends:
            return []
        late: list[Submission] = []
        for (submission, _), reply in zip(sends, await ask_all(self._hub, [send for _, send in sends]), strict=True):
            match reply:
                case r.Accepted(message_id, duplicate=False):
                    self._ids.note(message_id, submission.wire_id)
                    self._accepted(submission)
                case r.Accepted(message_id):
                    late += await self._known(operator, submission, message_id)
                case Refusal():
                    if len(submission.owners) > 1 and reply.code in _PERSONAL:
                        late += [_alone(submission.found, owner) for owner in submission.owners]
                    else:
                        await self._refuse(submission, reply, by_hub=True)
                case _:
                    raise AssertionError(f"a send is answered by {reply}")
        return late

    def _accepted(self, submission: Submission) -> None:
        message_id = submission.found.message.id
        for owner in submission.owners:
            inbox = self._inboxes.get(owner)
            if inbox is not None:
                inbox.accept((message_id,))
            elif owner in self._mailboxes:
                self._done.append((self._mailboxes[owner], message_id))

    async def _known(self, operator: SessionId, submission: Submission, message_id: MessageId) -> list[Submission]:
        """Handle a message that the hub has accepted before, under the same wire id and with the same content.

        `message_id` is the id of the earlier message. Return a new submission (send command) for each owner that the
        earlier message did not reach.
        """
        receipts = await self._hub.ask(c.ReadReceipts(operator, message_id=message_id, members=submission.owners))
        if not isinstance(receipts, r.Receipts):
            assert isinstance(receipts, Refusal), "receipts are asked for"
            await self._refuse(submission, receipts, by_hub=True)
            return []
        missed = await self._reconcile(submission.found.message.id, submission.owners, receipts)
        return [_alone(submission.found, owner) for owner in missed]

    async def _refuse(self, submission: Submission, refusal: Refusal, *, by_hub: bool) -> None:
        """Handle a refused submission (send command to the hub).

        After a temporary refusal, put its files back, and retry later. Otherwise move the files to `refused/`, where a
        person can look at them. The files of local agents stay where they are. `by_hub` is true if the hub has already
        recorded the refusal.
        """
        message_id = submission.found.message.id
        later = refusal.code in _LATER
        if not later:
            fields = {"file": message_id, "sender": submission.found.message.sender, "code": refusal.code.value}
            log.warning("a file in the spool is refused", members=submission.owners, **fields)
            if not by_hub:
                self._hub.submit((c.RecordRefusal(protocol=PROTOCOL, code=refusal.code, what=WHAT),))
        for owner in submission.owners:
            mailbox = self._mailboxes.get(owner)
            if mailbox is None:
                continue
            if owner in self._inboxes:
                # The local agent can read the file in any case: only file permissions protect a local agent.
                mailbox.passed.add(message_id)
            elif later:
                mailbox.passed.add(message_id)
                await asyncio.to_thread(mailbox.give_back, message_id)
            else:
                await asyncio.to_thread(mailbox.refuse, message_id, refusal.code)
        if later:
            seconds = _TROUBLE_SECONDS if refusal.code in _TROUBLE else _LATER_SECONDS
            asyncio.get_running_loop().call_later(seconds, self._retry, submission.owners, message_id)

    def _retry(self, owners: Sequence[str], message_id: str) -> None:
        for owner in owners:
            if owner in self._mailboxes:
                self._mailboxes[owner].passed.discard(message_id)
                self._again(owner)


def _drop(done: Sequence[tuple[Mailbox, str]]) -> None:
    for mailbox, message_id in done:
        mailbox.drop(message_id)


def _submissions(found: Found) -> list[Submission]:
    """Return the submissions (send commands) for a message.

    A message to a channel needs one submission for all owners. Any other message needs one for each owner.
    """
    message = found.message
    target = target_of(message.to)
    if isinstance(target, Target) and target.kind is TargetKind.CHANNEL:
        return [Submission(found, found.owners, message.id, _content(message, target))]
    return [
        Submission(found, (owner,), message.id, _content(message, to_member(MemberName(owner))))
        if owner == agent_of(message.to)
        else _alone(found, owner)
        for owner in found.owners
    ]


def _alone(found: Found, owner: str) -> Submission:
    """Return the submission (send command) that sends a message only to the member `owner`.

    It contains a note with the original target of the message.
    """
    message = found.message
    content = _content(message, to_member(MemberName(owner)))
    notes = (*content.notes, f"addressed to {message.to[:200]}")
    return Submission(found, (owner,), f"{message.id}|{owner}", replace(content, notes=notes))


def _content(message: SpoolMessage, target: Target) -> m.Content:
    urgent = message.priority == URGENT
    draft = Draft(
        to=message.to,
        body=message.body,
        priority="urgent" if urgent else "normal",
        scope=message.scope,
        thread=message.thread,
        refs=message.refs,
    )
    content = content_of(draft, target)
    if urgent or message.priority == NORMAL:
        return content
    return replace(content, notes=(f"priority {message.priority[:200]}",))
