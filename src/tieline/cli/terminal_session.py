"""A terminal session: connects a program under `tieline run` with the hub, also through restarts of the hub.

Used by: `run`, which has the program in a terminal. Uses: a session with a hub, renewed when the hub restarts. This
module does not know the terminal. Instructions (messages that the program prints to be sent) come in by `say`. Messages
for the program go out by `incoming`, typed into the program or shown to the person. Lines for the person go out by
`status_lines`.

The program never waits for the hub. Its instructions go into an outbox, in order, each with a wire id. An instruction
leaves the outbox when the hub has answered. If the hub stops before that, the instruction is sent again, and the hub
accepts it only once. The outbox and the lines to show are bounded. If one of them is full, a line says what was left
out.

A delivery counts as shown when the terminal asks for the next one. A message that was printed for a person is `seen`,
with the evidence `shown`, and not acknowledged: the program may read its inbox by itself. A message that was typed into
the program is `seen`, with the evidence `typed`, and then acknowledged. A message that was printed, but not on a
terminal, is neither seen nor acknowledged.
"""

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tieline.cli.context import Context
from tieline.cli.failure import Failure
from tieline.cli.output import message_lines, neutral_line
from tieline.cli.reconnection import is_passing, reopen
from tieline.cli.session import Link
from tieline.client import Accepted, Client, Delivery, HubError, HubRefused, Item, Message
from tieline.contract.delivery import HELD
from tieline.contract.message import Kind, Priority
from tieline.contract.refusal import Code
from tieline.wire.extractor import Instruction
from tieline.wire.native.arrivals import DeliveredKeys, arrivals, unsettled

WINDOW = 1024
"""Maximum number of deliveries that the hub sends without an acknowledgement. Deliveries that are only shown count,
too."""

INSTRUCTIONS_MAX = 10_000
"""Maximum number of instructions (messages to be sent) in the outbox: more than any agent sends while a hub
restarts."""

INSTRUCTION_BYTES_MAX = 16 * 1024 * 1024
"""Maximum number of bytes of all instructions (messages to be sent) in the outbox."""

AWAIT_MS = 30_000
"""Default timeout, in milliseconds, of an instruction with `[await]`. The program waits so long for the acknowledgement
of the message."""

AWAITS_MAX = 256
"""Maximum number of messages for whose acknowledgement a program can wait at the same time. The hub reports the
progress of each of these messages."""

FINISH_SECONDS = 10.0
"""Longest wait, in seconds, for the hub after the program's end. A restarting hub needs less time. The user cannot use
the shell before."""

PRINTED_CHARS_MAX = 16_000
"""Maximum number of characters of one message on a screen, which is some pages. The whole message is in the inbox."""

TYPED_CHARS_MAX = 4_000
"""Maximum number of characters that are typed into a program, because programs accept no more on one line. The whole
message is in the history."""

_CLOSE_SECONDS = 1.0
"""Longest wait, in seconds, for closing a session. A working hub needs less, and a hub that hangs must not delay the
program's end."""

_BATCH = 256
_LINES_MAX = 50  # lines that wait to be shown; a screen has no more
_ANSWERS_MAX = 50  # answers that wait for a program that does not read
_EXCERPT_CHARS = 40
# Enough of an id to tell messages apart, and to name one to a command.
_ID_CHARS = 13

_STATUS_KINDS = frozenset({"state", "thinking"})


class StatusLines:
    """Queue of status lines for the user. When the queue is full, further lines are only counted."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._left_out = 0
        self._stirred = asyncio.Event()

    def add(self, text: str) -> None:
        """Add a status line to the queue. It is shown when it does not disturb the program's output."""
        if len(self._lines) < _LINES_MAX:
            self._lines.append(f"tieline: {text}")
        else:
            self._left_out += 1
        self._stirred.set()

    async def lines(self) -> AsyncIterator[str]:
        """Yield the status lines as they come. A line counts as shown when the caller asks for the next line."""
        while True:
            while line := self._first():
                yield line
                self._drop(line)
            self._stirred.clear()
            await self._stirred.wait()

    def rest(self) -> Iterator[str]:
        """Yield the lines that were not shown yet, when the program has ended, and remove them from the queue."""
        while line := self._first():
            self._drop(line)
            yield line

    def _first(self) -> str | None:
        if not self._lines and self._left_out:
            self._lines.append(f"tieline: and {self._left_out} more lines like these")
            self._left_out = 0
        return self._lines[0] if self._lines else None

    def _drop(self, line: str) -> None:
        assert self._lines[0] == line, "only one reader takes lines"
        self._lines.popleft()


@dataclass(frozen=True)
class Outgoing:
    """Entry of the outbox: an instruction (a message to be sent) of the program, which the hub has not answered yet."""

    instruction: Instruction
    size: int
    wire_id: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def target(self) -> str:
        """Target of the instruction (a message to be sent), in the hub's notation."""
        return full_target(self.instruction.to)


class Outbox:
    """Queue of the program's instructions (messages to be sent) that the hub has not answered yet."""

    def __init__(self) -> None:
        self._waiting: deque[Outgoing] = deque()
        self._size = 0
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, instruction: Instruction) -> bool:
        """Queue an instruction (a message to be sent). Return false if there is no room for it."""
        size = len(msgspec.json.encode(instruction))
        if len(self._waiting) >= INSTRUCTIONS_MAX or self._size + size > INSTRUCTION_BYTES_MAX:
            return False
        self._waiting.append(Outgoing(instruction, size))
        self._size += size
        self._filled.set()
        self._emptied.clear()
        return True

    async def wait_for_some(self) -> list[Outgoing]:
        """Wait until there are instructions (messages to be sent), and return the first few.

        They stay in the outbox.
        """
        await self._filled.wait()
        return [outgoing for outgoing, _ in zip(self._waiting, range(_BATCH), strict=False)]

    def drop_first(self) -> None:
        """Remove the first instruction (a message to be sent) from the outbox, because the hub has answered it."""
        self._size -= self._waiting.popleft().size
        if not self._waiting:
            self._filled.clear()
            self._emptied.set()

    async def wait_until_empty(self) -> None:
        """Wait until the hub has answered every instruction (a message to be sent)."""
        await self._emptied.wait()


@dataclass
class Await:
    """Record of a sent message for whose acknowledgement the program waits."""

    id: str
    target: str
    excerpt: str
    timeout_ms: int
    since: float
    state: str = "pending"
    timer: asyncio.TimerHandle | None = None


class TerminalSession:
    """Carries messages between the hub and one program that runs in a terminal (`tieline run`)."""

    def __init__(self, link: Link, speaker: str, *, inject: bool, match: str | None, on_screen: bool) -> None:
        self._link = link
        self._speaker = speaker
        self._inject = inject
        self._context = Context(match)
        # True if printed lines go to a terminal, where a person sees them.
        self._on_screen = on_screen
        self.status_lines = StatusLines()
        self._outbox = Outbox()
        # The open session, if there is one; and true once the hub has refused to go on.
        self._client: Client | None = None
        self._ended = False
        # Messages whose acknowledgement the program waits for, by id.
        self._awaits: dict[str, Await] = {}
        # Texts to show, each with its delivery if it has one. Deliveries are taken from the hub one at a time.
        self._incoming: asyncio.Queue[tuple[str, Delivery | Item | None]] = asyncio.Queue()
        # The text that is being shown.
        self._showing: tuple[str, Delivery | Item | None] | None = None
        self._room = asyncio.Semaphore(1)
        # Deliveries that were taken from the hub to be shown, and deliveries that were shown.
        self._taken = DeliveredKeys()
        self._shown = DeliveredKeys()
        # Number of deliveries that waited at the start and had been seen before; `None` once it was told.
        self._seen_before: int | None = 0
        self._declined: set[str] = set()
        self._last_answer = ""

    # Instructions from the program.

    def say(self, instruction: Instruction) -> None:
        """Queue an instruction (a message to be sent). If it cannot be sent, tell the program or the user."""
        target = full_target(instruction.to)
        problem = self._problem(instruction, target)
        if problem is None and not self._outbox.put(instruction):
            problem = f"{len(self._outbox):,} others wait for the hub already"
        if problem is not None:
            self._answer(f"not sent to {target}: {problem}")

    def decline(self, request: str) -> None:
        """Tell the program or the user that the program's `request` is not supported here.

        Do this once for each request.
        """
        if request not in self._declined:
            self._declined.add(request)
            self._answer(f"'{request}' is not offered here, and nothing was done")

    def _problem(self, instruction: Instruction, target: str) -> str | None:
        if self._ended:
            return "the hub ended the session"
        if instruction.project is not None:
            return f"there are no projects here, so nobody in {instruction.project!r}; name the member alone"
        if target == f"@{self._speaker}":
            return "that is this program itself"
        if instruction.awaits and not target.startswith("@"):
            return "[await] waits for one member"
        return None

    def _answer(self, text: str, *, to_person: bool = False) -> None:
        """Report the outcome of an instruction (a message to be sent) to the program or to the user.

        If `inject` is on, the text is typed into the program. Otherwise the user sees it. If the same text comes twice
        in a row, the user sees it, because the program might react to it forever. With `to_person`, the user sees it in
        any case.
        """
        if self._inject and not to_person and text != self._last_answer and self._incoming.qsize() < _ANSWERS_MAX:
            self._last_answer = text
            self._incoming.put_nowait((f"tieline: {text}", None))
        else:
            self.status_lines.add(text)

    # Output to the terminal.

    async def incoming(self) -> AsyncIterator[str]:
        """Yield the texts to print or to type into the program.

        A text counts as shown when the caller asks for the next one.
        """
        while True:
            self._showing = text, delivery = await self._incoming.get()
            yield text
            self._showing = None
            if delivery is not None:
                self._shown.add(delivery.key)
                self._room.release()
                if self._client is not None:
                    self._tell_shown(self._client, delivery)

    def _tell_shown(self, client: Client, delivery: Delivery | Item) -> None:
        if self._inject:
            client.see(delivery, evidence="typed")
            client.ack(delivery)
        elif self._on_screen:
            client.see(delivery, evidence="shown")

    # Sessions with the hub.

    async def keep(self, client: Client) -> None:
        """Carry messages between the hub and the program, and reconnect after restarts of the hub.

        `client` is the first session. This method returns only if the hub refuses to open a session.
        """
        while True:
            self._client = client
            try:
                error: Exception = await self._carry(client)
            finally:
                self._client = None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_CLOSE_SECONDS):
                        await client.close()
            if is_passing(error):
                try:
                    client = await reopen(self._link, receive=True, window=WINDOW, tell=self.status_lines.add)
                    continue
                except (Failure, HubError) as refused:
                    error = refused
            self._end(error)
            return

    def _end(self, error: BaseException) -> None:
        self._ended = True
        self.status_lines.add(f"the hub ended the session: {error}; nothing more is sent or shown")
        self._say_unsent()
        while self._outbox:
            self._outbox.drop_first()
        for waiting in list(self._awaits.values()):
            self._forget(waiting)

    @property
    def held_up(self) -> int:
        """Number of instructions (messages to be sent) that wait because the hub does not answer."""
        return 0 if self._client is not None else len(self._outbox)

    async def finish(self) -> None:
        """After the program's end, wait until the remaining instructions (messages) are sent, up to a timeout.

        Then report the number of instructions that were not sent. Cancelling ends the wait.
        """
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FINISH_SECONDS):
                    await self._outbox.wait_until_empty()
        finally:
            self._close()

    def _close(self) -> None:
        self._say_unsent()
        for waiting in list(self._awaits.values()):
            self._forget(waiting)
            self.status_lines.add(f"{waiting.target} had not acknowledged {waiting.excerpt} yet ({waiting.id})")
        unshown = [self._showing] if self._showing is not None else []
        while not self._incoming.empty():
            unshown.append(self._incoming.get_nowait())
        for text, delivery in unshown:
            if delivery is None:
                self.status_lines.add(text.removeprefix("tieline: "))

    def _say_unsent(self) -> None:
        if self._outbox:
            many = f"{len(self._outbox):,} of the last instructions"
            self.status_lines.add(f"not sent, because the hub is not there: {many}")

    async def _carry(self, client: Client) -> HubError:
        """Carry messages both ways until the session with the hub ends. Return the error that ended the session."""
        tasks = [asyncio.create_task(work(client)) for work in (self._send, self._receive, self._hear)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        errors = [task.exception() or AssertionError("each goes on until the session ends") for task in done]
        for error in errors:
            if not isinstance(error, HubError):
                self._end(error)  # a bug: loud at the end, and told at once
                raise error
        assert isinstance(errors[0], HubError), "any other was raised"
        return errors[0]

    async def _send(self, client: Client) -> None:
        for waiting in list(self._awaits.values()):
            await self._follow(client, waiting)
        while True:
            batch = await self._outbox.wait_for_some()
            sent = (client.send(outgoing.target, **_parts(outgoing)) for outgoing in batch)
            answers = await asyncio.gather(*sent, return_exceptions=True)
            for outgoing, answer in zip(batch, answers, strict=True):
                if isinstance(answer, BaseException):
                    self._refused(outgoing, answer)
                self._outbox.drop_first()
                if isinstance(answer, Accepted):
                    self._accepted(outgoing, answer)
                    if outgoing.instruction.awaits:
                        await self._await(client, outgoing, answer)

    def _accepted(self, outgoing: Outgoing, accepted: Accepted) -> None:
        """If the hub accepted a message but holds it (does not deliver it yet), tell the user.

        The program is not told, because it would continue the conversation that is held.
        """
        if accepted.held.startswith(HELD):
            self._answer(f"to {outgoing.target}, kept for later: {accepted.held}", to_person=True)

    def _refused(self, outgoing: Outgoing, error: BaseException) -> None:
        """Tell the program or the user that the hub refused a message.

        If `error` is no refusal of the message, but only ended the session, raise `error`. Then the message stays in
        the outbox and is sent again.
        """
        if not isinstance(error, HubRefused) or (is_passing(error) and error.code is not Code.STORE_FAILED):
            raise error
        self._answer(f"not sent to {outgoing.target}: {error.message}")

    # Waiting for acknowledgements.

    async def _await(self, client: Client, outgoing: Outgoing, accepted: Accepted) -> None:
        if len(self._awaits) >= AWAITS_MAX:
            self._answer(f"sent to {outgoing.target}, but not awaited: {AWAITS_MAX} others are")
            return
        loop = asyncio.get_running_loop()
        timeout_ms = outgoing.instruction.await_ms or AWAIT_MS
        excerpt = _excerpt(outgoing.instruction.body)
        waiting = Await(accepted.id, outgoing.target, excerpt, timeout_ms, loop.time())
        waiting.timer = loop.call_later(timeout_ms / 1000, self._time_out, waiting)
        self._awaits[waiting.id] = waiting
        await self._follow(client, waiting)

    async def _follow(self, client: Client, waiting: Await) -> None:
        try:
            receipts = await client.follow(waiting.id)
        except HubRefused as error:
            if is_passing(error):
                raise
            self._forget(waiting)
            self._answer(f"sent to {waiting.target}, but not awaited: {error.message}")
            return
        for receipt in receipts:
            self._step(waiting, receipt.state)

    async def _hear(self, client: Client) -> None:
        async for step in client.progress():
            waiting = self._awaits.get(step.id)
            if waiting is not None:
                self._step(waiting, step.state)

    def _step(self, waiting: Await, state: str) -> None:
        if waiting.id not in self._awaits:
            return
        waiting.state = state
        if state == "acked":
            seconds = asyncio.get_running_loop().time() - waiting.since
            self._forget(waiting)
            self._answer(f"{waiting.target} acknowledged {waiting.excerpt} after {seconds:.1f} s ({waiting.id})")
        elif state in ("expired", "dead"):
            self._forget(waiting)
            self._answer(f"{waiting.target} can no longer acknowledge {waiting.excerpt}: it is {state} ({waiting.id})")

    def _time_out(self, waiting: Await) -> None:
        self._forget(waiting)
        within = f"within {waiting.timeout_ms / 1000:g} s; it is {waiting.state}"
        self._answer(f"{waiting.target} did not acknowledge {waiting.excerpt} {within} ({waiting.id})")

    def _forget(self, waiting: Await) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
        self._awaits.pop(waiting.id, None)

    # Messages from the hub.

    async def _receive(self, client: Client) -> None:
        async for delivery in self._deliveries(client):
            message = delivery.message
            if message.sender == self._speaker or not await self._is_for_here(message):
                continue  # its own words, or for a session elsewhere: left in the inbox
            if delivery.key in self._shown:
                # The hub offers the delivery again, so the hub may not know yet that it was shown.
                self._tell_shown(client, delivery)
            elif delivery.key not in self._taken:
                if self._was_seen(delivery):
                    self._taken.add(delivery.key)
                    continue
                await self._room.acquire()
                self._taken.add(delivery.key)
                self._incoming.put_nowait((typed(message) if self._inject else printed(message), delivery))

    async def _deliveries(self, client: Client) -> AsyncIterator[Delivery | Item]:
        """Yield the deliveries to show: first those that wait in the inbox, with their states, then new ones."""
        given = DeliveredKeys()
        async for item in unsettled(client):
            given.add(item.key)
            yield item
        if self._seen_before:
            many = "message waits" if self._seen_before == 1 else "messages wait"
            seen = f"{self._seen_before:,} {many} that you have seen"
            self.status_lines.add(f"{seen}; 'tieline inbox' shows, 'drain' takes")
        self._seen_before = None
        async for delivery in arrivals(client, given):
            yield delivery

    async def _is_for_here(self, message: Message) -> bool:
        # The context may have to ask git, and the program must not wait for it.
        return not message.scope or await asyncio.to_thread(self._context.takes, message.scope)

    def _was_seen(self, delivery: Delivery | Item) -> bool:
        """Return true if a person saw the delivery before this program started, and count such deliveries.

        With `inject` the result is always false, because then a delivery is for the program, and the program has not
        seen it.
        """
        if self._inject or self._seen_before is None or not isinstance(delivery, Item) or delivery.state != "seen":
            return False
        self._seen_before += 1
        return True


def full_target(to: str) -> str:
    """Return the target of an instruction (a message to be sent) in the hub's notation: a name becomes `@name`."""
    return to if to == "*" or to.startswith("#") else f"@{to}"


def _parts(outgoing: Outgoing) -> dict[str, Any]:
    """Return an instruction (a message to be sent) as the arguments of the hub's `send`.

    The kind of an instruction goes into the data, because the hub has other kinds. If an instruction has no text, its
    data also become the text, because some protocols carry no data.
    """
    said = outgoing.instruction
    data = said.data
    if said.kind != "message":
        data = {"kind": said.kind, **(data or {})}
    thread = f"{said.thread_project}:{said.thread}" if said.thread_project else said.thread
    return {
        "body": said.body or msgspec.json.encode(said.data).decode(),
        "data": data,
        "kind": Kind.STATUS if said.kind in _STATUS_KINDS else Kind.CHAT,
        "thread": thread,
        "wire_id": outgoing.wire_id,
    }


def printed(message: Message) -> str:
    """Return a message as text for a person's screen: a header line, then the body."""
    head, *rest = (line for line, _ in message_lines(message))
    text = "\n".join(line.removeprefix("  ") for line in rest)
    return f"tieline: {head}\n{_shortened(text, PRINTED_CHARS_MAX, 'inbox')}"


def typed(message: Message) -> str:
    """Return a message as one text to type into a program, in the form that agent programs in a terminal recognise."""
    unverified = "" if message.verified else " (unverified)"
    marks = [f"[{message.id[:_ID_CHARS]}]"]
    if message.thread:
        marks.append(f"[thread:{message.thread}]")
    if message.priority is Priority.URGENT:
        marks.append("[!!]")
    if message.target.startswith("#"):
        marks.append(f"[{message.target}] (reply to {message.target}, not sender)")
    elif message.target == "*":
        marks.append("[to everybody]")
    said = [part for part in (message.title, message.body) if part]
    if message.data:
        said.append(f"data: {msgspec.json.encode(message.data).decode()}")
    head = neutral_line(f"Relay message from {message.sender}{unverified} {' '.join(marks)}")
    return f"{head}: {_shortened(' '.join(said), TYPED_CHARS_MAX, 'history')}"


def _shortened(text: str, chars_max: int, command: str) -> str:
    if len(text) <= chars_max:
        return text
    return f"{text[:chars_max]}… ({len(text) - chars_max:,} more characters: 'tieline {command}')"


def _excerpt(body: str) -> str:
    line = neutral_line(body)
    return f"'{line[:_EXCERPT_CHARS]}{'…' if len(line) > _EXCERPT_CHARS else ''}'"
