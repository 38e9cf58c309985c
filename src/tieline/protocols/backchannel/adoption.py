"""The adoption of a spool: connects the agents that use a spool folder with the members of a hub, both ways.

Used by: the package `server`. Uses: the interface `contract.hub`, and the folder. Each member has a mailbox in the
spool. There are two kinds of members. A *local agent* reads its own mailbox, and its unread files are its deliveries. A
*remote* member reads its messages elsewhere, and the hub takes the files out of its mailbox. The kind is decided once,
and stored in the mailbox: an agent is local if the hub did not write its record and its name was made without a token.

One task, the worker, makes all changes to members and mailboxes, one after another, and sends new files to the hub.
After any error, the worker starts over: it reads the state of the hub and of the folder again. Only threads touch
files, never the event loop.
"""

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import structlog

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.hub import Hub, Interest, MemberAppeared, MemberVanished, MessageRedacted, Notice
from tieline.contract.identifiers import MemberName, SessionId, parse_member_name
from tieline.contract.member import Credential, Member, Origin
from tieline.contract.message import Message
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.backchannel import disk
from tieline.protocols.backchannel.agent_records import AgentRecords
from tieline.protocols.backchannel.channels import Channels
from tieline.protocols.backchannel.copies import Redactions
from tieline.protocols.backchannel.folder_watch import FolderWatch
from tieline.protocols.backchannel.inbox_writer import InboxWriter
from tieline.protocols.backchannel.intake import Intake
from tieline.protocols.backchannel.local_agent import LocalAgent
from tieline.protocols.backchannel.local_inbox import PROTOCOL, LocalInbox
from tieline.protocols.backchannel.mailbox import Mailbox, MailboxInfo
from tieline.protocols.backchannel.message_ids import MessageIds
from tieline.protocols.backchannel.record import AgentRecord
from tieline.protocols.backchannel.spool import Spool
from tieline.wire.folder import own_folder
from tieline.wire.sessions import ask_all

RESCAN_SECONDS = 2.0
"""Shortest interval of the check of the whole spool, which finds changes that the folder watch did not report."""
_TROUBLE_SECONDS = 1.0
"""Pause of the worker (the task that makes all changes) after an error."""
_REFRESH_SECONDS = 0.1
"""Shortest interval between two requests for all channels. With many members, such a request takes long."""
_CATCH_UP_SECONDS = 0.02
"""Delay before the next check of a mailbox whose local agent has just joined."""
_REST, _RESCAN_REST = 4.0, 30.0
"""Pause after a check of a mailbox or of the agent records, and of the whole spool, in units of its own time."""
_TOGETHER_MAX = 256
"""Most new members that get their mailboxes in one batch."""
_LOCK = ".tieline.lock"

log = structlog.get_logger(__name__)


class SpoolAdopted(OSError):
    """Exception: another hub already uses this spool (folder of messages). `Adoption.start` raises it."""

    hint = "stop that hub, or name another spool with --spool DIR"


class _Interrupted(Exception):
    """Exception: the hub refused a request that a working hub never refuses. The worker task then starts over."""


class Adoption:
    """Connects one spool (folder of messages) to a hub, from `start` to `stop`. It uses an operator's session."""

    def __init__(
        self, hub: Hub, operator: Credential, root: Path, ids: MessageIds, *, rescan_seconds: float = RESCAN_SECONDS
    ) -> None:
        self.root = root
        self._ids = ids
        self._hub = hub
        self._credential = operator
        self._operator: SessionId | None = None
        self._rescan_seconds = rescan_seconds
        self._spool = Spool(root)
        self._agent_records = AgentRecords(self._spool)
        self._lock: int | None = None
        # By name: all mailboxes; and the inboxes and sessions of local agents.
        self._mailboxes: dict[str, Mailbox] = {}
        self._inboxes: dict[str, LocalInbox] = {}
        self._local_agents: dict[str, LocalAgent] = {}
        # Names of records that cannot become names of members. Each is logged once.
        self._rejected: set[str] = set()
        self._channels = Channels(hub, self._agent_records)
        self._refreshed_at = 0.0
        self._inbox_writer = InboxWriter()
        # One thread, because requests to external inboxes have an order. It runs until the hub makes no more requests.
        self._spool_thread = ThreadPoolExecutor(1, "spool")
        self._redactions = Redactions(root, ids, self._inbox_writer.wait_idle, self._spool_thread)
        self._folder_watch = FolderWatch(root, mailbox=self._mark_dirty, records=self._mark_records_dirty)
        self._intake = Intake(hub, self._mailboxes, self._inboxes, self._session_of, self._mark_dirty, self._ids)
        # Work that waits for the worker.
        self._awake = asyncio.Event()
        self._start_over = False
        self._changes: deque[MemberAppeared | MemberVanished] = deque()
        self._ended: dict[str, Refusal] = {}
        self._dirty: set[str] = set()
        self._records_dirty = True
        self._records_rest_until = 0.0
        self._unswept: set[str] = set()
        self._worker: asyncio.Task[None] | None = None
        self._unwatch: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()

    # Lifecycle.

    async def start(self) -> None:
        """Lock the spool, so that no other hub uses it, and make a mailbox for every member."""
        self._lock = await asyncio.to_thread(self._seize)
        everything = Interest(members=True, channels=True, subscriptions=True, redactions=True)
        self._unwatch = self._hub.watch(everything, self._changed)
        self._inbox_writer.start()
        self._folder_watch.start()
        try:
            await self._take_stock()
        except BaseException:
            for agent in self._local_agents.values():
                agent.detach_inbox()
            raise

    def follow(self) -> None:
        """Start the worker: the task that handles all further changes in the hub and in the spool's folder."""
        self._worker = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Stop the worker, end the sessions and unlock the spool. The files stay, so that the next hub can continue."""
        if self._unwatch is not None:
            self._unwatch()
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        await self._folder_watch.stop()
        await self._inbox_writer.stop()
        await self._redactions.finish()
        for agent in self._local_agents.values():
            agent.close()
        operator, self._operator = self._operator, None
        if operator is not None:
            self._hub.forget(operator)
            self._hub.submit((c.Detach(operator),))
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def _seize(self) -> int:
        """Make the folders and lock the spool. Return the lock file's descriptor, or raise `SpoolAdopted`."""
        own_folder(self.root)
        for name in ("agents", "spool"):
            disk.make_folder(self.root / name)
        descriptor = os.open(self.root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, disk.FILE_MODE)
        if disk.try_lock(descriptor):
            return descriptor
        os.close(descriptor)
        raise SpoolAdopted(f"another hub has adopted the spool in {self.root}")

    # Called by the hub: its notices, and the Listener port.

    def _changed(self, change: Notice) -> None:
        """Queue a notice of the hub (about a member, a channel or a subscription), and wake the worker task."""
        if isinstance(change, MemberAppeared | MemberVanished):
            self._changes.append(change)
        elif isinstance(change, MessageRedacted):
            self._redactions.begin(change.message)
        else:
            self._channels.stale = True
        self._awake.set()

    def offer(self, message: Message, key: int, stream_seq: int) -> None:
        """Do nothing. The hub never calls this, because an operator's session gets no deliveries."""

    def released(self, keys: Sequence[int]) -> None:
        """Do nothing. The hub never calls this, because an operator's session has no deliveries."""

    def progress(self, step: r.Progress) -> None:
        """Do nothing. The hub never calls this, because the session does not ask for the progress of sent messages."""

    def end(self, why: Refusal) -> None:
        """Tell the worker task to start over, because the hub ended the operator's session."""
        self._operator = None
        self._start_over = True
        self._awake.set()

    # Called to wake the worker.

    def _mark_dirty(self, name: str) -> None:
        self._dirty.add(name)
        self._awake.set()

    def _mark_records_dirty(self) -> None:
        self._records_dirty = True
        self._awake.set()

    def _mark_unswept(self, name: str) -> None:
        self._unswept.add(name)
        self._awake.set()

    def _agent_ended(self, name: str, why: Refusal) -> None:
        self._ended[name] = why
        self._awake.set()

    def _session_of(self, name: str) -> SessionId | None:
        agent = self._local_agents.get(name)
        return agent.session if agent is not None else None

    # The worker.

    async def _work(self) -> None:
        look_again = self._loop.time()
        while True:
            try:
                if (began := self._loop.time()) >= look_again:
                    self._records_dirty = True
                    changed, lost = await asyncio.to_thread(self._survey)
                    look_again = began + max(self._rescan_seconds, _RESCAN_REST * (self._loop.time() - began))
                    self._dirty |= changed
                    await self._restore(lost)
                await self._turn()
            except _Interrupted as interruption:
                log.info("the adoption of the spool starts over", reason=str(interruption))
                await self._rest()
            except OSError as error:
                log.error("the spool cannot be used", spool=str(self.root), error=str(error))
                await self._rest()
            except Exception as error:
                log.exception("the adoption of the spool starts over", error=str(error))
                await self._rest()
            pause = max(0.0, look_again - self._loop.time())
            delay = self._intake.delay()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause if delay is None else min(pause, delay)):
                    await self._awake.wait()

    async def _rest(self) -> None:
        self._start_over = True
        await asyncio.sleep(_TROUBLE_SECONDS)
        self._awake.set()

    def _survey(self) -> tuple[set[str], set[str]]:
        """Return two sets of members: those whose mailbox may have changed, and those whose mailbox is gone.

        If the spool itself is gone, no mailbox counts as gone. Also call `sweep` for all inboxes, which retries file
        operations that failed before.
        """
        _each([inbox.sweep for inbox in list(self._inboxes.values())])
        mailboxes = list(self._mailboxes.items())
        lost = {name for name, mailbox in mailboxes if not mailbox.is_there()}
        changed = {name for name, mailbox in mailboxes if name not in lost and mailbox.has_changed()}
        return changed, lost if (self.root / _LOCK).exists() else set()

    async def _restore(self, lost: set[str]) -> None:
        """Make the deleted mailboxes of these members again. Write the unread files of local agents again too."""
        for name in lost:
            agent = self._local_agents.get(name)
            if agent is None:
                if (member := await self._member(name)) is not None:
                    await self._keep_remote([(self._mailboxes[name], MailboxInfo(member=member.created_at_ms))])
            else:
                agent.close()
                await self._join_local(agent.inbox.mailbox, None)

    async def _turn(self) -> None:
        self._awake.clear()
        if self._start_over:
            self._start_over = False
            await self._take_stock()
        while self._changes:
            await self._follow()
        while self._ended:
            await self._return(*self._ended.popitem())
        if self._records_dirty:
            await self._look_at_records()
        if self._channels.stale:
            await self._refresh_channels()
        if self._channels.unsettled:
            await self._channels.reconcile(await self._operator_session())
        if self._unswept:
            inboxes = [self._inboxes[name] for name in self._unswept if name in self._inboxes]
            self._unswept.clear()
            await asyncio.to_thread(_each, [inbox.sweep for inbox in inboxes])
        await self._look()
        if self._intake.delay() == 0.0:
            await self._intake.take_in(await self._operator_session())

    async def _look_at_records(self) -> None:
        """Read the agent records that have changed, and apply them. If the last check was just now, do it later."""
        now = self._loop.time()
        if now < self._records_rest_until:
            self._loop.call_at(self._records_rest_until, self._awake.set)
            return
        self._records_dirty = False
        changed = await asyncio.to_thread(self._agent_records.changed)
        ended = self._loop.time()
        self._records_rest_until = ended + _REST * (ended - now)
        await self._read_records(changed)

    async def _refresh_channels(self) -> None:
        """Ask the hub for all channels. If the last request was less than `_REFRESH_SECONDS` ago, ask later."""
        now = self._loop.time()
        if now < self._refreshed_at + _REFRESH_SECONDS:
            self._loop.call_at(self._refreshed_at + _REFRESH_SECONDS, self._awake.set)
            return
        self._refreshed_at = now
        await self._channels.refresh(await self._operator_session())

    async def _look(self) -> None:
        """Check the changed mailboxes: queue new files, and acknowledge deliveries whose file a reader took."""
        dirty, self._dirty = self._dirty, set()
        ready = []
        for name in dirty:
            self._folder_watch.watch(name)
            mailbox, agent = self._mailboxes.get(name), self._local_agents.get(name)
            if mailbox is None or (agent is not None and agent.session is None):
                continue
            if agent is not None and not agent.caught_up:
                # The agent does not know yet which of its files are deliveries.
                self._loop.call_later(_CATCH_UP_SECONDS, self._mark_dirty, name)
            elif self._loop.time() < mailbox.rests_until:
                self._loop.call_at(mailbox.rests_until, self._mark_dirty, name)
            else:
                ready.append(name)
        if not ready:
            return
        fresh, gone = await asyncio.to_thread(self._look_into, ready)
        for name, ids in gone.items():
            if name in self._local_agents:
                self._local_agents[name].taken(ids)
        await self._intake.add(fresh)

    def _look_into(self, names: Iterable[str]) -> tuple[dict[str, set[str]], dict[str, list[str]]]:
        fresh: dict[str, set[str]] = {}
        gone: dict[str, list[str]] = {}
        for name in names:
            mailbox, inbox = self._mailboxes[name], self._inboxes.get(name)
            began = self._loop.time()
            if inbox is None:
                ids = (mailbox.waiting() - mailbox.passed) | set(mailbox.claimed())
            else:
                ids, taken = inbox.look()
                if taken:
                    gone[name] = taken
            if ids:
                fresh[name] = ids
            # The duration of a look grows with the number of files, so a large mailbox is looked at less often.
            ended = self._loop.time()
            mailbox.rests_until = ended + _REST * (ended - began)
        return fresh, gone

    # The operator.

    async def _operator_session(self) -> SessionId:
        """Return the operator's session, in which the adoption sends its requests. Open the session if needed."""
        if self._operator is None:
            reply = await self._hub.ask(c.Attach(protocol=PROTOCOL, credential=self._credential))
            if not isinstance(reply, r.Attached):
                raise _Interrupted(str(reply))
            self._operator = reply.session
            self._hub.listen(reply.session, self)
        return self._operator

    async def _member(self, name: str) -> Member | None:
        """Return the member with this name, without regard to upper and lower case; `None` if there is none."""
        roster = await self._hub.ask(c.ListMembers(await self._operator_session(), name=MemberName(name)))
        if not isinstance(roster, r.Roster):
            raise _Interrupted(str(roster))
        return roster.members[0].member if roster.members else None

    # Members and their mailboxes.

    async def _take_stock(self) -> None:
        """Make the mailboxes and agent records of the spool match the members of the hub, however much they differ."""
        operator = await self._operator_session()
        self._channels.stale = False
        roster, channels = await ask_all(self._hub, (c.ListMembers(operator), c.ListChannels(operator)))
        if not isinstance(roster, r.Roster) or not isinstance(channels, r.Channels):
            raise _Interrupted(f"{roster} {channels}")
        self._channels.note(channels.channels)
        self._agent_records.forget()
        changed = await asyncio.to_thread(self._agent_records.changed)
        members = {presence.member.name: presence.member for presence in roster.members}
        for name in [name for name in self._mailboxes if name not in members]:
            await self._remove(name)
        await self._admit([member for name, member in members.items() if name not in self._mailboxes])
        for name, agent in self._local_agents.items():
            if agent.session is None:
                self._ended.setdefault(name, Refusal(Code.UNKNOWN_SESSION, "the session has ended"))
        await self._read_records(changed)
        await self._channels.reconcile(operator)
        self._dirty.update(self._mailboxes)

    async def _follow(self) -> None:
        """Handle the next queued notice: a new or a removed member. New members are handled together."""
        if isinstance(self._changes[0], MemberVanished):
            await self._remove(self._changes.popleft().name)
            return
        names: list[MemberName] = []
        while self._changes and len(names) < _TOGETHER_MAX:
            change = self._changes[0]
            if not isinstance(change, MemberAppeared):
                break
            self._changes.popleft()
            if change.name not in self._mailboxes:
                names.append(change.name)
        operator = await self._operator_session()
        found = []
        for name, roster in zip(
            names, await ask_all(self._hub, [c.ListMembers(operator, name=name) for name in names]), strict=True
        ):
            if not isinstance(roster, r.Roster):
                raise _Interrupted(str(roster))
            found += [presence.member for presence in roster.members if presence.member.name == name]
        await self._admit(found)

    async def _admit(self, members: Sequence[Member]) -> None:
        """Make a mailbox for each member: as a local agent (reads its own mailbox) or as a remote member."""
        mailboxes = [Mailbox(self._spool.folder(member.name)) for member in members]
        infos = await asyncio.to_thread(lambda: [mailbox.info() for mailbox in mailboxes])
        remote: list[tuple[Mailbox, MailboxInfo]] = []
        local: list[tuple[Mailbox, MailboxInfo | None]] = []
        for member, mailbox, info in zip(members, mailboxes, infos, strict=True):
            here = info.local if info is not None else member.name in self._agent_records
            if member.origin is Origin.LOCAL and here:
                local.append((mailbox, info))
            elif info is not None and info.local:
                await self._make_local_agent(mailbox, info)
                self._ended[member.name] = Refusal(Code.NAME_TAKEN, "the name belongs to a token now")
            else:
                remote.append((mailbox, MailboxInfo(member=member.created_at_ms)))
        await self._keep_remote(remote)
        await _together(self._join_local(mailbox, info) for mailbox, info in local)

    async def _keep_remote(self, remote: Sequence[tuple[Mailbox, MailboxInfo]]) -> None:
        """Make the mailboxes of remote members (members that do not read the spool), and watch these mailboxes."""

        def make() -> None:
            for mailbox, info in remote:
                if not mailbox.is_up_to_date(info):
                    mailbox.make(durably=False)
                    mailbox.write_info(info, durably=False)

        await asyncio.to_thread(make)
        for mailbox, _ in remote:
            self._mailboxes[mailbox.name] = mailbox
            self._channels.add_remote(mailbox.name)
            self._folder_watch.watch(mailbox.name)
            self._dirty.add(mailbox.name)

    async def _make_local_agent(self, mailbox: Mailbox, info: MailboxInfo) -> LocalAgent:
        """Return a new `LocalAgent` for the owner of this mailbox. It has no session yet."""
        name = MemberName(mailbox.name)

        def sweep() -> None:
            self._loop.call_soon_threadsafe(self._mark_unswept, name)

        make = partial(LocalInbox, mailbox, info, sweep, self._ids, self._redactions.messages)
        inbox = self._inboxes[name] = await asyncio.to_thread(make)
        self._mailboxes[name] = mailbox
        self._folder_watch.watch(name)
        ended = partial(self._agent_ended, name)
        agent = LocalAgent(self._hub, name, inbox, self._inbox_writer, self._spool_thread, ended)
        self._local_agents[name] = agent
        return agent

    async def _join_local(self, mailbox: Mailbox, info: MailboxInfo | None) -> None:
        """Make the owner of this mailbox a member of the hub, as a local agent, and open the agent's session."""
        await asyncio.to_thread(mailbox.make, durably=True)
        agent = self._local_agents.get(mailbox.name) or await self._make_local_agent(mailbox, info or MailboxInfo())
        # The agent may already have a session again.
        agent.close()
        reply = await agent.attach()
        if isinstance(reply, Refusal):
            self._attach_failed(mailbox.name, reply)
            return
        member = await self._member(mailbox.name)
        if member is None:
            raise _Interrupted(f"{mailbox.name} was removed")
        anew = info is None or not info.local or info.member != member.created_at_ms
        if anew or info is None:
            info = MailboxInfo(local=True, member=member.created_at_ms, since=reply.next_key)
        self._channels.add_local(agent.inbox.mailbox, info)
        refusal = await agent.receive(info, anew=anew)
        if refusal is not None:
            self._loop.call_later(_TROUBLE_SECONDS, self._agent_ended, mailbox.name, refusal)
            return
        self._dirty.add(mailbox.name)
        self._records_dirty = True

    def _attach_failed(self, name: str, refusal: Refusal) -> None:
        """Handle the hub's refusal to open the session of the local agent `name`.

        If the name of a known agent belongs to a token now, make the agent remote. Otherwise raise `_Interrupted`.
        """
        if name not in self._channels:
            self._forget(name)
        elif refusal.code is Code.NAME_TAKEN:
            self._ended[name] = refusal
            return
        raise _Interrupted(f"{name}: {refusal.message}")

    async def _return(self, name: str, why: Refusal) -> None:
        """Open the session of the local agent `name` again, because the last session ended for the reason `why`.

        If the agent's name belongs to a token now, make the agent a remote member instead.
        """
        if (agent := self._local_agents.get(name)) is None:
            return
        if why.code is not Code.NAME_TAKEN:
            member = await self._member(name)
            if member is None:
                # The member was removed. A notice has said so, or will say so.
                return
            if member.origin is Origin.LOCAL:
                await self._join_local(agent.inbox.mailbox, await asyncio.to_thread(agent.inbox.mailbox.info))
                return
        if not await agent.retire():
            raise _Interrupted(f"{name} cannot be retired yet")
        member = await self._member(name)
        mailbox = agent.inbox.mailbox
        info = MailboxInfo(member=member.created_at_ms if member is not None else 0)
        await asyncio.to_thread(mailbox.write_info, info, durably=True)
        await asyncio.to_thread(agent.inbox.clear)
        self._forget(name)
        await self._keep_remote([(mailbox, info)])

    async def _remove(self, name: str) -> None:
        """Remove the agent record and the mailbox of a former member from the spool. Messages in the mailbox stay."""
        mailbox = self._mailboxes.get(name)
        inbox = self._inboxes.get(name)
        self._forget(name)
        if inbox is not None:
            await asyncio.to_thread(inbox.sweep)
        if mailbox is not None:
            await asyncio.to_thread(self._agent_records.remove, name)
            await asyncio.to_thread(mailbox.remove)
        if self._rejected:
            # A record may have been rejected because of this name, so read all records again.
            self._rejected.clear()
            self._agent_records.forget()
            self._records_dirty = True

    def _forget(self, name: str) -> None:
        if (agent := self._local_agents.pop(name, None)) is not None:
            agent.detach_inbox()
            agent.close()
        self._inboxes.pop(name, None)
        self._mailboxes.pop(name, None)
        self._folder_watch.forget(name)
        self._channels.forget(name)
        self._ended.pop(name, None)

    async def _read_records(self, changed: dict[str, AgentRecord | None]) -> None:
        """Apply changed agent records (`None` for a deleted record). An agent with a new record becomes a member."""
        self._rejected -= {name for name, record in changed.items() if record is None}
        known = self._mailboxes.keys() | self._rejected
        new = [name for name, record in changed.items() if record is not None and name not in known]
        await _together(map(self._meet, new))
        self._channels.read(changed)

    async def _meet(self, name: str) -> None:
        """Handle a record without a mailbox: make the agent a member, or reject the name, or remove the record."""
        refusal = parse_member_name(name)
        member = await self._member(name)
        if isinstance(refusal, Refusal) or (member is not None and member.name != name):
            reason = refusal.message if isinstance(refusal, Refusal) else "it differs from a member's in case only"
            log.warning("an agent of the spool cannot be a member", member=name, reason=reason)
            self._rejected.add(name)
            return
        if member is not None:
            await self._admit([member])
            return
        mailbox = Mailbox(self._spool.folder(name))
        info = await asyncio.to_thread(mailbox.info)
        if info is None or info.local:
            await self._join_local(mailbox, info)
        else:
            # These are the remains of a member that was removed while no hub watched the spool.
            await asyncio.to_thread(self._agent_records.remove, name)
            await asyncio.to_thread(mailbox.remove)


async def _together(works: Iterable[Awaitable[None]]) -> None:
    """Run all these awaitables concurrently. When all have ended, raise the first error, if there was one."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


def _each(works: Sequence[Callable[[], None]]) -> None:
    for work in works:
        work()
