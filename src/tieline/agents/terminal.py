r"""The terminal: runs a program in a pty between the program and the person, and carries messages both ways.

Used by: `tieline run`. Uses: the extractor, which finds instructions to send in the program's output. This module does
not know the hub: instructions go to a callback, and messages come from an iterator.

The program runs as it would without Tieline. The program leads a session of its own, with the pty as its controlling
terminal. Keys, window sizes and signals reach the program. Its output reaches the screen byte for byte, except the
instructions that the extractor consumes. Its exit code becomes the exit code of this process. A SIGTERM ends the
program and its whole session: processes that ignore SIGTERM, as an interactive shell does, get SIGHUP and then SIGKILL.
The person's terminal is in raw mode meanwhile. The terminal is restored at the end, after every error, and while this
process is suspended (Ctrl-Z). If the standard input is no terminal, the program inherits it, because only the program's
output must pass through this process. If input or output is no terminal, the pty does not translate line ends.

Showing messages: a message waits until the program has printed nothing for `idle_ms` and the person has no unfinished
input. Then it is shown. Later messages wait behind it, because the next message is requested only after the last one
was shown. A message for the screen waits only until the person has pressed no key for `TYPING_SECONDS`, even if the
input is unfinished. While a program has printed nothing yet, it counts as busy for its first `START_SECONDS`.

By default a message is printed on the screen, for the person. The program's input gets nothing: no text, and above all
no Enter, which could approve an open dialog. While a program uses the alternate screen, nothing is printed. Status
lines are for the person: they are always printed, never typed, and wait by the same rules.

With `inject` a message is typed into the program instead, on one line. A separate Enter follows after a pause, unless
the person typed in between. **That is a risk**: nobody can tell from outside whether the program is at its prompt or
asks for a permission, and Enter means yes. Use `inject` only for programs that may do anything where they run.

The messages come from other members, often models, and are not trusted. Terminal control characters are made visible,
and so is a tab in typed text, where a tab would be a key. On the screen, lines after the first are indented, so that no
line of a message looks like a line of Tieline. In typed text, the marks of instructions are made invalid. The program
echoes the text, and the extractor must not take such an echo for an instruction of the program.
"""

import asyncio
import contextlib
import errno
import os
import re
import select
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial

from tieline.agents.pty import Pty, RawMode, session_of, signal_session
from tieline.agents.screen import Screen
from tieline.contract.text import neutral
from tieline.protocols import protocols
from tieline.wire.extractor import Declined, Extracted, Extractor, Instruction, Output, Passed

IDLE_MS = 400
"""Milliseconds without output after which a program counts as idle. A working program pauses for less, and a person
hardly notices the delay."""

START_SECONDS = 3.0
"""Seconds that a program without any output counts as starting, and so not as idle."""

TYPING_SECONDS = 10.0
"""Seconds for which unfinished input of the person delays messages on the screen. The time is limited, because not
every key belongs to a line that the person will finish."""

SUBMIT_SECONDS = 0.3
"""Seconds between a typed message and its Enter. Without a pause, programs take both for a paste, and the Enter for
text."""

DRAIN_SECONDS = 0.2
"""Seconds without output after which the output is over, once the program has ended. The program's leftover processes
may still print for a while."""

DRAIN_BYTES_MAX = 1024 * 1024
"""Maximum number of bytes of output that are read after the program has ended. The kernel buffers far less of the
program's own output."""

TERMINATE_SECONDS = 3.0
"""Seconds that a program has to end after SIGTERM, before SIGHUP is sent. In this time agents save their session."""

HANG_UP_SECONDS = 2.0
"""Seconds that a program has to end after SIGHUP, before SIGKILL is sent."""

_POLL_SECONDS = 0.02  # a person does not notice this delay, and the polling costs little processor time

_READ_BYTES = 65536  # more than a terminal's buffer holds

# Raw keys that finish or discard the line being typed: Enter, ^J, ^C, ^D, ^U.
_LINE_KEYS = b"\r\n\x03\x04\x15"
_ERASE_KEYS = b"\x7f\x08"
# Arrows, mouse, and the terminal's answers to queries of the program: escape sequences, not text.
_KEY_SEQUENCE = re.compile(rb"\x1b(?:\[[ -?]*+[@-~]?|O.?|[\]P][^\x07\x1b]*+(?:\x07|\x1b\\)?|.?)", re.DOTALL)
_FIRST_PRINTABLE = 0x20
# The first two bits of a byte that continues a character of UTF-8.
_CONTINUATION_MASK, _CONTINUATION = 0xC0, 0x80

# A terminal sends the first two to its foreground process group, so they go there. The others go to the program itself.
_FOREGROUND_SIGNALS = (signal.SIGINT, signal.SIGQUIT)
_PROGRAM_SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class NotStarted(OSError):
    """Raised if the command cannot be started in a terminal. The person's terminal is unchanged."""


async def run_in_terminal(  # noqa: PLR0913 - what the program says, what it is told, and where
    command: Sequence[str],
    *,
    on_instruction: Callable[[Instruction], None],
    on_declined: Callable[[str], None] | None = None,
    incoming: AsyncIterator[str] | None = None,
    status_lines: AsyncIterator[str] | None = None,
    inject: bool = False,
    idle_ms: int = IDLE_MS,
    environment: Mapping[str, str] | None = None,
    stdin: int = 0,
    stdout: int = 1,
    screen: int | None = None,
) -> int:
    """Run a command in a pty (pseudo terminal) until it ends. Return its exit code: 128 + n if signal n ended it.

    `on_instruction` is called for each instruction (a message to send) that the program prints, in order. `on_declined`
    is called with each request of the program that is not supported here. An exception from one of these callbacks ends
    the program. `incoming` yields the messages to show. `status_lines` yields lines that are always printed, also with
    `inject`. Each iterator is asked for the next text only after the last one was shown. An exception from an iterator
    ends its messages, not the program, and is raised after the program's end. With `inject`, messages are typed into
    the program. Otherwise they are printed to `screen`, by default the standard output. A command that cannot be
    started raises `NotStarted`.
    """
    with contextlib.ExitStack() as stack:
        both = os.isatty(stdin) and os.isatty(stdout)
        pty = stack.enter_context(Pty(stdin, stdout, translate=both))
        inherits_stdin = not os.isatty(stdin) and not inject
        given = os.environ if environment is None else environment
        try:
            pid = pty.start(command, given, stdin if inherits_stdin else None)
        except OSError as error:
            raise NotStarted(error.errno, error.strerror, command[0]) from error
        where = stdout if screen is None else screen
        raw_screen = os.isatty(stdin) and os.isatty(where)
        printer = Screen(stdout, where, line_end="\r\n" if raw_screen else "\n")
        run = _Run(pty, pid, printer, on_instruction, on_declined, idle_seconds=idle_ms / 1000)
        exited = asyncio.create_task(asyncio.to_thread(os.waitpid, pid, 0))
        told = asyncio.Event()
        try:
            raw = stack.enter_context(RawMode(stdin))
            stack.enter_context(_signals(pty, pid, raw, told))
            tasks = [asyncio.create_task(_end_when_told(pid, told, exited))]
            tasks += [] if inherits_stdin else [asyncio.create_task(run.pass_input(stdin))]
            showing = [
                asyncio.create_task(run.show_messages(texts, inject=typed))
                for texts, typed in ((incoming, inject), (status_lines, False))
                if texts is not None
            ]
            try:
                await run.pass_output(exited)
            finally:
                await _cancel(*tasks, *showing)
        finally:
            await _hang_up(pid, exited)
            if told.is_set():
                await _end_session(pid)
            _, status = await exited
        for shown in showing:
            if not shown.cancelled() and (failure := shown.exception()) is not None:
                raise failure
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


class _Keyboard:
    """Reads the person's keys from the standard input, in a thread, not by the event loop.

    An event loop may make a watched file non-blocking. This would disturb the standard error of this process, the shell
    and later programs, because they all share the terminal.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._wake, self._waker = os.pipe()

    def __enter__(self) -> "_Keyboard":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._wake)
        os.close(self._waker)

    async def wait_for_keys(self) -> bytes:
        """Wait for the next keys that the person presses, and return them as bytes.

        No bytes mean the end of the input.
        """
        while True:
            ready = asyncio.get_running_loop().run_in_executor(None, self._block)
            try:
                await asyncio.shield(ready)
            except asyncio.CancelledError:
                os.write(self._waker, b"\0")
                await ready
                raise
            with contextlib.suppress(BlockingIOError):
                return _read(self._fd)

    def _block(self) -> None:
        select.select([self._fd, self._wake], [], [])


@contextlib.contextmanager
def _signals(pty: Pty, pid: int, raw: RawMode, told: asyncio.Event) -> Iterator[None]:
    """Until exit, pass signals of this process on to the program with the process id `pid`.

    SIGTERM also sets the event `told`. Only the main thread can handle signals. In another thread this function
    installs no handlers. Signals that were ignored before stay ignored.
    """
    loop = asyncio.get_running_loop()

    def forward(number: int) -> None:
        group = pty.foreground() if number in _FOREGROUND_SIGNALS else None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number) if group is None else os.killpg(group, number)
        if number == signal.SIGTERM:
            told.set()

    def stop() -> None:
        raw.leave()
        os.kill(os.getpid(), signal.SIGSTOP)

    def go_on() -> None:
        raw.enter()
        pty.copy_size()

    handlers: dict[signal.Signals, Callable[[], None]] = {
        signal.SIGWINCH: pty.copy_size,
        signal.SIGTSTP: stop,
        signal.SIGCONT: go_on,
    }
    for number in (*_FOREGROUND_SIGNALS, *_PROGRAM_SIGNALS):
        handlers[number] = partial(forward, number)
    previous = {number: signal.getsignal(number) for number in handlers}
    installed: list[signal.Signals] = []
    try:
        with contextlib.suppress(ValueError, RuntimeError):
            for number, handler in handlers.items():
                if previous[number] is not signal.SIG_IGN:
                    loop.add_signal_handler(number, handler)
                    installed.append(number)
        yield
    finally:
        for number in installed:
            loop.remove_signal_handler(number)
            signal.signal(number, previous[number] or signal.SIG_DFL)


def _extractor() -> Extractor:
    """Return an extractor, which finds instructions (messages to send) in the program's output.

    A protocol declares the extractor. If several protocols declare one, the first by name is used. If none declares
    one, the extractor finds nothing.
    """
    declared = next((protocol.extractor for protocol in protocols() if protocol.extractor is not None), None)
    return Extractor() if declared is None else declared()()


class _Run:
    """One program in its pty (pseudo terminal): passes its output and input on, and shows messages while it is idle."""

    def __init__(
        self,
        pty: Pty,
        pid: int,
        screen: Screen,
        on_instruction: Callable[[Instruction], None],
        on_declined: Callable[[str], None] | None,
        *,
        idle_seconds: float,
    ) -> None:
        self._pty = pty
        self._pid = pid
        self._screen = screen
        self._on_instruction = on_instruction
        self._on_declined = on_declined
        self._idle_seconds = idle_seconds
        self._loop = asyncio.get_running_loop()
        self._extractor = _extractor()
        self._input_lock = asyncio.Lock()
        # Time of the program's last output, and the number of all bytes of output.
        self._printed_at = self._loop.time() + max(0.0, START_SECONDS - idle_seconds)
        self._printed_bytes = 0
        # Characters typed and not yet entered; number of reads from the keyboard; time of the last read.
        self._typed = 0
        self._keys = 0
        self._keyed_at = 0.0
        self._stirred = asyncio.Event()

    # The program's output

    async def pass_output(self, exited: "asyncio.Task[tuple[int, int]]") -> None:
        """Pass the program's output on to the screen, until the program has ended and prints no more.

        Also end if the screen is closed. `exited` is the task that waits for the program's end.
        """
        printing = asyncio.create_task(self._pass_output())
        try:
            await asyncio.wait({printing, exited}, return_when=asyncio.FIRST_COMPLETED)
            self._pty.close_slave()
            limit = self._printed_bytes + DRAIN_BYTES_MAX
            before = -1
            while not printing.done() and (self._screen.busy or before < self._printed_bytes < limit):
                before = self._printed_bytes
                await asyncio.wait({printing}, timeout=DRAIN_SECONDS)
            if printing.done():
                await printing
            else:
                await _cancel(printing)
                await self._deliver(self._extractor.receive_eof())
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
        finally:
            await _cancel(printing)
            self._screen.close()

    async def _pass_output(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._extractor.next_timeout()):
                    data = await _wait_for_output(self._pty.master)
            except TimeoutError:
                await self._deliver(self._extractor.flush())
                continue
            if not data:
                await self._deliver(self._extractor.receive_eof())
                return
            self._printed_at = self._loop.time()
            self._printed_bytes += len(data)
            was_alternate = self._extractor.alternate_screen
            outputs = self._extractor.receive_data(data)
            if was_alternate and not self._extractor.alternate_screen:
                self._typed = 0  # unfinished input on the alternate screen went away with that screen
            await self._deliver(outputs)
            self._stirred.set()

    async def _deliver(self, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case Passed(data=data):
                    await self._screen.pass_on(data)
                case Extracted(instruction=instruction, redrawn=redrawn):
                    if not redrawn:
                        self._on_instruction(instruction)
                case Declined(request=request):
                    if self._on_declined is not None:
                        self._on_declined(request)

    # The program's input

    async def pass_input(self, stdin: int) -> None:
        """Pass the person's keys on to the program, until the input ends.

        If this input is a terminal, send SIGHUP to the program then.
        """
        with _Keyboard(stdin) as keyboard:
            while data := await keyboard.wait_for_keys():
                self._note_keys(data)
                await self._give(data)
        if os.isatty(stdin):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGHUP)

    def _note_keys(self, data: bytes) -> None:
        """Count the characters that the person has typed since the last Enter, because they delay messages."""
        self._keys += 1
        self._keyed_at = self._loop.time()
        for byte in _KEY_SEQUENCE.sub(b"", data):
            if byte in _LINE_KEYS:
                self._typed = 0
            elif byte in _ERASE_KEYS:
                self._typed = max(0, self._typed - 1)
            elif byte >= _FIRST_PRINTABLE and byte & _CONTINUATION_MASK != _CONTINUATION:
                self._typed += 1
        self._stirred.set()

    async def _give(self, data: bytes) -> None:
        """Write data to the program's input, as fast as the program reads it.

        If the program has ended, drop the data.
        """
        async with self._input_lock:
            while data:
                try:
                    data = data[os.write(self._pty.master, data) :]
                except BlockingIOError:
                    await _wait_for(self._loop.add_writer, self._loop.remove_writer, self._pty.master)
                except OSError as error:
                    if error.errno != errno.EIO:
                        raise
                    return

    # Messages

    async def show_messages(self, incoming: AsyncIterator[str], *, inject: bool) -> None:
        """Show each message when the program and the person are idle; with `inject`, type it into the program.

        `incoming` yields the messages.
        """
        async for text in incoming:
            await self._wait_until_idle(any_screen=inject)
            if inject:
                await self._type(text)
                continue
            try:
                await self._screen.show(text)
            except OSError:
                return  # the screen is gone

    async def _wait_until_idle(self, *, any_screen: bool) -> None:
        while True:
            timeout = None
            # A message on the screen stands beside unfinished input. A typed message would land inside the input.
            held_back = self._typed and any_screen
            if not held_back and (any_screen or not self._extractor.alternate_screen):
                idle_at = self._printed_at + self._idle_seconds
                if self._typed:
                    idle_at = max(idle_at, self._keyed_at + TYPING_SECONDS)
                timeout = idle_at - self._loop.time()
                if timeout <= 0:
                    return
            self._stirred.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._stirred.wait()

    async def _type(self, text: str) -> None:
        """Type a text into the program. Then type Enter separately, unless the person typed in between."""
        keys = self._keys
        line = neutral(text).replace("\n", " ").replace("\t", "\\t")
        await self._give(self._extractor.disarm(line).encode())
        await asyncio.sleep(SUBMIT_SECONDS)
        if keys == self._keys:
            await self._give(b"\r")
            self._printed_at = self._loop.time()


async def _wait_for_output(master: int) -> bytes:
    """Wait for the next bytes that a program prints, and return them. `master` is the master end of its pty.

    No bytes mean the end of the output, because no process has the slave end open.
    """
    loop = asyncio.get_running_loop()
    while True:
        await _wait_for(loop.add_reader, loop.remove_reader, master)
        with contextlib.suppress(BlockingIOError):
            return _read(master)


def _read(fd: int) -> bytes:
    """Return the bytes that a file descriptor has ready.

    Return no bytes at the end, also if a terminal reports the end as an error.
    """
    try:
        return os.read(fd, _READ_BYTES)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return b""


async def _wait_for(watch: Callable[..., object], unwatch: Callable[[int], object], fd: int) -> None:
    """Wait until a file descriptor is ready.

    `watch` and `unwatch` are the event loop's methods to register and unregister it.
    """
    ready = asyncio.get_running_loop().create_future()

    def settle() -> None:
        if not ready.done():
            ready.set_result(None)

    watch(fd, settle)
    try:
        await ready
    finally:
        unwatch(fd)


async def _cancel(*tasks: "asyncio.Task[None]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _end_when_told(pid: int, told: asyncio.Event, exited: "asyncio.Task[tuple[int, int]]") -> None:
    """Wait for SIGTERM (the event `told`).

    Then end a program that does not end by itself, such as an interactive shell, by SIGHUP or SIGKILL. `exited` is the
    task that waits for the program's end.
    """
    await told.wait()
    await asyncio.wait({exited}, timeout=TERMINATE_SECONDS)
    await _hang_up(pid, exited)


async def _hang_up(pid: int, exited: "asyncio.Task[tuple[int, int]]") -> None:
    """If a program still runs, send SIGHUP to its process session, as a closed terminal does.

    If the program still does not end, send SIGKILL. `exited` is the task that waits for the program's end.
    """
    for number, seconds in ((signal.SIGHUP, HANG_UP_SECONDS), (signal.SIGKILL, None)):
        if exited.done():
            return
        signal_session(pid, number)
        await asyncio.wait({exited}, timeout=seconds)


async def _end_session(pid: int) -> None:
    """End the processes that an ended program left running in its process session, because they belong to this run."""
    signal_session(pid, signal.SIGHUP)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HANG_UP_SECONDS):
            while session_of(pid):  # noqa: ASYNC110 - processes that are not our children set no event
                await asyncio.sleep(_POLL_SECONDS)
    signal_session(pid, signal.SIGKILL)
