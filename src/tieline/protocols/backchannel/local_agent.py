"""A local agent (one that reads its own mailbox in a spool), as a member of the hub.

Used by: the adoption. Uses: the interface `contract.hub` through a pump, and the agent's local inbox. The agent's
session lasts as long as the hub uses the spool, so that the agent counts as present. The agent's deliveries become
files in the inbox, where the agent's own programs find them. If a file is gone from the inbox, a program took it. The
delivery is then acknowledged.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor

import structlog

from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.hub import Hub, Question
from tieline.contract.identifiers import MemberName, MessageId, SessionId
from tieline.contract.keys import join_keys
from tieline.contract.member import ByPlace, ByUser, Credential
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Attached, Fetched, Progress
from tieline.protocols.backchannel.inbox_writer import InboxWriter
from tieline.protocols.backchannel.local_inbox import PROTOCOL, Fate, LocalInbox, Placement
from tieline.protocols.backchannel.mailbox import MailboxInfo
from tieline.wire.prefix_ids import from_prefix_id
from tieline.wire.session_pump import Parcel, SessionPump

TAKEN = "taken from the spool"
TOO_LARGE = "too_large"

_RETRY_SECONDS = 2.0
"""Seconds before a retry, if the disk is full or the folder cannot be written to."""
_PAGE = 256

log = structlog.get_logger(__name__)


class LocalAgent:
    """One local agent (an agent that reads its own mailbox in a spool).

    Receives the agent's deliveries from the hub, and writes them as files into the agent's inbox.
    """

    def __init__(
        self,
        hub: Hub,
        name: MemberName,
        inbox: LocalInbox,
        inbox_writer: InboxWriter,
        spool_thread: Executor,
        ended: Callable[[Refusal], None],
    ) -> None:
        self.name = name
        self.inbox = inbox
        self._hub = hub
        self._inbox_writer = inbox_writer
        # Runs the hub's requests to the external inbox, in their order.
        self._spool_thread = spool_thread
        self._loop = asyncio.get_running_loop()
        # Callback: the hub has ended the session.
        self._ended = ended
        self._pump: SessionPump | None = None
        # Deliveries that are not in the inbox yet.
        self._parcels: list[Parcel] = []
        # True once all deliveries that waited when the session began are in the inbox.
        self._caught_up = False
        self._hub.set_external_inbox(name, inbox.session, self)

    @property
    def session(self) -> SessionId | None:
        """The agent's session; `None` if no session is open."""
        return self._pump.session if self._pump is not None else None

    @property
    def caught_up(self) -> bool:
        """True if all deliveries that waited when the session began are now files in the inbox."""
        pump = self._pump
        if not self._caught_up and pump is not None:
            self._caught_up = pump.caught_up and not self._parcels
        return self._caught_up

    async def attach(self, credential: Credential | None = None) -> Attached | Refusal:
        """Open the agent's session with the hub. If no member has the agent's name yet, the hub makes the member.

        Without `credential`, the session has the rights of a local program of the hub's own user.
        """
        pump = self._pump = SessionPump(self._hub, self)
        attached: asyncio.Future[Attached | Refusal] = asyncio.get_running_loop().create_future()
        attach = c.Attach(protocol=PROTOCOL, credential=credential or ByUser(), member=self.name)

        def opened(reply: Attached | Refusal) -> None:
            # The caller may have stopped waiting.
            if not attached.done():
                attached.set_result(reply)

        pump.open(attach, opened)
        reply = await attached
        if isinstance(reply, Refusal):
            self._pump = None
        else:
            self.inbox.session = pump.session
            self._hub.set_external_inbox(self.name, pump.session, self)
        return reply

    def detach_inbox(self) -> None:
        """Tell the hub that this agent is no longer the member's external inbox.

        From now on, the hub settles deliveries without asking this agent.
        """
        self._hub.set_external_inbox(self.name, self.inbox.session, None)

    async def receive(self, info: MailboxInfo, *, anew: bool) -> Refusal | None:
        """Handle the files that an earlier hub left in the inbox. Then start to write waiting deliveries to the inbox.

        `info` describes the owner of the mailbox. `anew` is true if the inbox belonged to no member, or to another
        member, before. The inbox then forgets all earlier deliveries first. If the hub refuses to list the waiting
        deliveries, end the session and return the refusal.
        """
        pump = self._pump
        assert pump is not None, "attached before"
        await self._put_down()
        await asyncio.to_thread(self.inbox.begin, info, anew=anew)
        if anew:
            # Not before the inbox is empty: its marked files belong to another member.
            await asyncio.to_thread(self.inbox.mailbox.write_info, info, durably=True)
        for leftover in await asyncio.to_thread(self.inbox.leftovers):
            fetch = c.Fetch(pump.session, after=leftover.key - 1, limit=1)
            reply = await self._hub.ask(fetch)
            if isinstance(reply, Refusal):
                self.close()
                return reply
            assert isinstance(reply, Fetched), "a fetch is answered by these"
            unsettled = any(delivery.key == leftover.key for delivery in reply.deliveries)
            with contextlib.suppress(FileNotFoundError):
                await asyncio.to_thread(self.inbox.recover, leftover, unsettled=unsettled)
        if self._pump is pump:
            pump.receive(window=None)
        return None

    async def _put_down(self) -> None:
        """Drop the queued deliveries.

        Then wait until no delivery is being written, because the caller changes the inbox.
        """
        self._parcels = []
        self._caught_up = False
        await self._inbox_writer.wait_idle()

    def close(self) -> None:
        """End the agent's session."""
        if self._pump is not None:
            self._pump.close()
            self._pump = None

    async def retire(self) -> bool:
        """Remove all deliveries of this agent from the spool, because the agent no longer reads its mailbox itself.

        Return false if the hub refused. The caller must then try again later.
        """
        await self._put_down()
        attached = await self.attach(ByPlace())
        if isinstance(attached, Refusal):
            return False
        try:
            return await self._recall(attached.session)
        finally:
            self.close()

    async def _recall(self, session: SessionId) -> bool:
        after, complete = 0, False
        while not complete:
            reply = await self._hub.ask(c.Fetch(session, after=after, limit=_PAGE))
            if not isinstance(reply, Fetched):
                return False
            after, complete = reply.through, reply.complete
            taken = [
                delivery.key
                for delivery in reply.deliveries
                if await asyncio.to_thread(self.inbox.recall, delivery.message, delivery.key) is Fate.TAKEN
            ]
            if taken:
                await self._hub.ask(
                    c.Advance(session, ranges=join_keys(sorted(taken)), state=State.ACKED, evidence=TAKEN)
                )
        return True

    # Called by the hub: the ExternalInbox port.

    def asked(self, question: Question) -> None:
        """Reserve the files of the deliveries in `question` for the hub, so that no reader can take the files.

        The hub calls this before it settles the deliveries. This agent reports the result to the hub. The hub settles
        only deliveries whose files were reserved.
        """
        self._spool_thread.submit(self._reserve, question)

    def _reserve(self, question: Question) -> None:
        reserved: list[int] = []
        taken: list[int] = []
        try:
            for key, message in question.deliveries:
                outcome = self.inbox.reserve(message, key)
                if outcome is not None:
                    (reserved if outcome else taken).append(key)
        finally:
            self._loop.call_soon_threadsafe(self._hub.resolve, question.number, reserved, taken)

    def finish(self, keys: Sequence[int]) -> None:
        """Remove the reserved files of these deliveries, because the hub has settled the deliveries."""
        self._spool_thread.submit(self.inbox.finish, keys)

    def give_back(self, keys: Sequence[int]) -> None:
        """Put the reserved files of these deliveries back into the inbox. The hub did not settle these deliveries."""
        self._spool_thread.submit(self._give_back, keys)

    def _give_back(self, keys: Sequence[int]) -> None:
        try:
            self.inbox.give_back(keys)
        except OSError as error:
            # The inbox retries. If that fails too, the next hub finds the file and shows it again.
            log.error("a message could not be put back into the spool", agent=self.name, error=str(error))

    # Called when the spool has changed.

    def taken(self, names: Iterable[str]) -> None:
        """Tell the hub that readers took the files with these message ids. The deliveries become acknowledged."""
        ids = tuple(names)
        own = tuple(f"{each}|{self.name}" for each in ids)
        message_ids = tuple(MessageId(from_prefix_id(each)) for each in ids)
        self._hub.submit(
            (c.AcknowledgeIds(self.inbox.session, wire_ids=(*ids, *own), message_ids=message_ids, evidence=TAKEN),)
        )

    # Called by the inbox writer.

    def collect(self) -> Sequence[Parcel]:
        """Return the queued deliveries, which are not in the inbox yet. The queue does not change."""
        return self._parcels

    def placed(self, parcels: Sequence[Parcel], placement: Placement) -> None:
        """Report to the hub the outcome of each delivery: it is in the inbox, a reader took it, or it is too large."""
        pump = self._pump
        if pump is None or parcels is not self._parcels:
            # Another session has begun, and it starts from the beginning.
            return
        self._parcels = []
        session = pump.session
        commands: list[c.Command] = [
            c.Offered(session, first=first, last=last) for first, last in join_keys(sorted(placement.shown))
        ]
        if placement.taken:
            commands.append(
                c.Advance(session, ranges=join_keys(sorted(placement.taken)), state=State.ACKED, evidence=TAKEN)
            )
        if placement.too_large:
            commands.append(
                c.Advance(session, ranges=join_keys(sorted(placement.too_large)), state=State.DEAD, evidence=TOO_LARGE)
            )
        if commands:
            self._hub.submit(commands)
        pump.resume_writing()

    def failed(self) -> None:
        """Ask the inbox writer again later, because the deliveries could not be written."""
        asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._request_again)

    def _request_again(self) -> None:
        if self._parcels:
            self._inbox_writer.request(self)

    # Called by the session pump: the Wire port.

    def write_deliveries(self, parcels: Sequence[Parcel]) -> Sequence[Parcel]:
        """Queue deliveries for the inbox, and ask the inbox writer to write them.

        Return an empty tuple, because no delivery is in the inbox yet.
        """
        self._parcels = [*self._parcels, *parcels]
        if self._pump is not None:
            # Until then, new deliveries wait in the hub.
            self._pump.pause_writing()
        self._inbox_writer.request(self)
        return ()

    def write_progress(self, step: Progress) -> None:
        """Do nothing.

        This is never called, because the agent's session does not ask for the progress of sent messages.
        """

    def end(self, why: Refusal) -> None:
        """Close the session, because the hub ended it, and pass the reason to the callback `ended`."""
        self.close()
        self._ended(why)

    def pause_reading(self) -> None:
        """Do nothing, because the hub reads nothing from a local agent's session."""

    def resume_reading(self) -> None:
        """Do nothing, because the hub reads nothing from a local agent's session, so reading was never paused."""
