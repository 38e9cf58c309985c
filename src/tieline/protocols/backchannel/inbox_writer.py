"""The inbox writer: writes the hub's deliveries as files into the inboxes of local agents, in rounds of many files.

Used by: local agents. An agent requests a round when it has deliveries. Uses: the inboxes, on a thread. All files of a
round are written before the first file is synced, because one sync of the disk's journal then covers many files.
"""

import asyncio
import os
from collections.abc import Sequence
from typing import Protocol

import structlog

from tieline.protocols.backchannel.local_inbox import LocalInbox, Placement
from tieline.wire.session_pump import Parcel

_ROUND = 512
"""If a round (one step of writing) has this many deliveries, no further agent is added to the round.

The limit exists because each delivery is an open file. All deliveries of one agent are in the same round, so a round
can have more deliveries than this.
"""

log = structlog.get_logger(__name__)

Load = Sequence[Parcel]


class InboxOwner(Protocol):
    """Interface of a local agent (one that reads its own mailbox) for whose inbox the hub has deliveries."""

    inbox: LocalInbox

    def collect(self) -> Load:
        """Return the deliveries to write into the inbox now. The result may be empty."""

    def placed(self, parcels: Load, placement: Placement) -> None:
        """Handle the result of writing `parcels` to the inbox. `placement` has the result for each delivery."""

    def failed(self) -> None:
        """Handle an error: the deliveries were not written. The owner must call `InboxWriter.request` again later."""


class InboxWriter:
    """Writes deliveries as files into the inboxes of all local agents of one spool, in rounds.

    A round writes many files together, because that needs less work of the disk.
    """

    def __init__(self) -> None:
        # Owners that requested a round, in order.
        self._requests: dict[InboxOwner, None] = {}
        self._awake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        # The round that is being written.
        self._round: asyncio.Future[list[Placement | str]] | None = None

    def start(self) -> None:
        """Start the task that writes deliveries to the inboxes, in rounds."""
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Finish the current round and stop. The next hub will write the deliveries that are not in an inbox yet."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.wait_idle()

    async def wait_idle(self) -> None:
        """Wait until the current round (one step of writing files), if any, has ended."""
        if self._round is not None:
            await asyncio.wait((self._round,))

    def request(self, owner: InboxOwner) -> None:
        """Ask to write the deliveries of `owner` in one of the next rounds. This method returns at once."""
        self._requests[owner] = None
        self._awake.set()

    async def _work(self) -> None:
        while True:
            await self._awake.wait()
            loads: list[tuple[InboxOwner, Load]] = []
            count = 0
            while self._requests and count < _ROUND:
                owner = next(iter(self._requests))
                del self._requests[owner]
                load = owner.collect()
                if load:
                    loads.append((owner, load))
                    count += len(load)
            if not self._requests:
                self._awake.clear()
            rounds = [(owner.inbox, load) for owner, load in loads]
            # Shielded: a round that has begun is finished, so that no file stays half written.
            self._round = asyncio.ensure_future(asyncio.to_thread(_place, rounds))
            outcomes = await asyncio.shield(self._round)
            self._round = None
            for (owner, load), outcome in zip(loads, outcomes, strict=True):
                if isinstance(outcome, Placement):
                    owner.placed(load, outcome)
                else:
                    log.error("messages cannot be written to the spool", agent=owner.inbox.mailbox.name, error=outcome)
                    owner.failed()


def _place(loads: Sequence[tuple[LocalInbox, Load]]) -> list[Placement | str]:
    """Write deliveries into their inboxes. Return, for each inbox, the result or the text of the error."""
    outcomes: list[Placement | str] = []
    for inbox, load in loads:
        placement = Placement()
        try:
            inbox.stage(load, placement)
        except OSError as error:
            _abandon(placement)
            outcomes.append(str(error))
        else:
            outcomes.append(placement)
    for step in (LocalInbox.mark, LocalInbox.show):
        for index, (inbox, _) in enumerate(loads):
            outcome = outcomes[index]
            if isinstance(outcome, Placement) and outcome.copies:
                try:
                    step(inbox, outcome)
                except OSError as error:
                    _abandon(outcome)
                    outcomes[index] = str(error)
    return outcomes


def _abandon(placement: Placement) -> None:
    while placement.open:
        os.close(placement.open.pop())
