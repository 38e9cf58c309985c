r"""The terminal: runs a program in a pty between it and the person, and carries messages both ways.

Above: `tieline run`. Below: the extractor, which finds in the program's output what it wants sent. It refuses to know
the hub: instructions go to a callback, messages come from an iterator.

The program runs as it would without us. It leads a session of its own with the pty as its controlling terminal; keys,
window sizes and signals reach it; what it prints reaches the screen byte for byte, but for what the grammar consumes;
its exit code is ours. A SIGTERM ends it with its whole session: what stays after it, as an interactive shell does, is
hung up and then killed. The person's terminal is raw meanwhile, and is put back on every way out, also when we are
stopped and continued. Only a program's output must be ours, so a standard input that is no terminal is handed to the
program as it is. And where the screen is not ours to format (a pipe, or no raw terminal), the pty does not translate
line ends either.

Showing messages
----------------
A message is shown when the program has printed nothing for `idle_ms` and the person has typed nothing that is not yet
entered (on the screen: not lately); until then it waits, and so do those behind it: the next one is asked for only when
the last was shown. A program that has printed nothing at all is still starting, for a while.

By default it is printed on the screen, for the person. The program's input gets nothing: no text, and above all no
Enter, which could approve whatever dialog is open. While a program has the alternate screen, nothing is printed.
Status lines, which are for the person, are always printed, by the same rules.

With `inject` it is typed into the program instead, on one line, and entered by a separate key after a pause, unless the
person typed in between. **That is a risk**: nobody can tell from outside whether the program is at its prompt or asks
for a permission, and Enter means yes. Only for programs that run where they may do whatever they like.

Messages are other people's words, often a model's. What a terminal would obey is made visible instead (and so is the
tab where it would be a key); lines after the first are indented, so that none can pass for a line of ours; and what
is typed has its instruction marks broken, because the program echoes it, and an echo that wraps must not be taken for
an instruction of its own.
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
"""Longer than a working program pauses between two writes, shorter than a person waits for news."""

START_SECONDS = 3.0
"""How long a program that has printed nothing yet counts as starting, and is not idle."""

TYPING_SECONDS = 10.0
"""How long what a person typed and did not enter keeps messages from the screen: not every key is half a line."""

SUBMIT_SECONDS = 0.3
"""Between typed text and its Enter: programs take what comes at once for a paste, and an Enter within it for text."""

DRAIN_SECONDS = 0.2
"""After the program has ended, how long something it left behind may be silent before its output is over."""

DRAIN_BYTES_MAX = 1024 * 1024
"""And how much it may still print: far more than the kernel keeps of what the program itself printed."""

TERMINATE_SECONDS = 3.0
"""Time for a program to end after SIGTERM before it is hung up: agents save their session then."""

HANG_UP_SECONDS = 2.0
"""Time for a program to end after a hang-up before it is killed."""

_POLL_SECONDS = 0.02  # a person does not notice it, and the processor hardly

_READ_BYTES = 65536  # more than a terminal's buffer holds

# Raw keys that finish or discard the line being typed: Enter, ^J, ^C, ^D, ^U.
_LINE_KEYS = b"\r\n\x03\x04\x15"
_ERASE_KEYS = b"\x7f\x08"
# Arrows, mouse, and a terminal's answers to a program's questions: not text, whoever sent them.
_KEY_SEQUENCE = re.compile(rb"\x1b(?:\[[ -?]*+[@-~]?|O.?|[\]P][^\x07\x1b]*+(?:\x07|\x1b\\)?|.?)", re.DOTALL)
_FIRST_PRINTABLE = 0x20
# The first two bits of a byte that continues a character of UTF-8.
_CONTINUATION_MASK, _CONTINUATION = 0xC0, 0x80

# What a person's terminal turns into these goes to whoever is in its foreground; the rest to the program itself.
_FOREGROUND_SIGNALS = (signal.SIGINT, signal.SIGQUIT)
_PROGRAM_SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class NotStarted(OSError):
    """The command cannot be started; nothing was done to the terminal."""


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
    """Run a command in a pty until it ends, and give its exit code: 128 + n where signal n ended it.

    `on_instruction` is called for what the program wants sent, in order, and `on_declined` with what it asks for that
    is not offered; an exception from them hangs the program up. `incoming` gives the messages to show, `status_lines`
    those that are printed even with `inject`; each is asked for the next only when the last was shown. An exception
    from them ends the showing, not the program, and is raised after the program's end. What is printed goes to `screen`
    where that is not the standard output. A command that cannot be started raises `NotStarted`.
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
    """The standard input, read in a thread.

    An event loop may make what it watches non-blocking, and a terminal is shared: with our own standard error, with the
    shell, and with whatever runs next.
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
        """Give what is typed next; none at the end."""
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
    """Pass signals on to the program, if this thread may handle signals. Those we were told to ignore stay so.

    `told` is set by the one that asks for an end.
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
    """The one that a protocol declares, the first by name if several do; else one that finds nothing."""
    declared = next((protocol.extractor for protocol in protocols() if protocol.extractor is not None), None)
    return Extractor() if declared is None else declared()()


class _Run:
    """One program: what it prints, what it is given, and when it is idle."""

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
        # When the program last printed, and how much it printed in all.
        self._printed_at = self._loop.time() + max(0.0, START_SECONDS - idle_seconds)
        self._printed_bytes = 0
        # Characters typed and not yet entered, reads from the keyboard in all, and when the last one was.
        self._typed = 0
        self._keys = 0
        self._keyed_at = 0.0
        self._stirred = asyncio.Event()

    # What the program prints

    async def pass_output(self, exited: "asyncio.Task[tuple[int, int]]") -> None:
        """Pass on what the program prints, until it has ended and no more comes. A screen that is gone ends it too."""
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
                self._typed = 0  # what was typed on that screen was for that screen
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
                case Declined(word=word):
                    if self._on_declined is not None:
                        self._on_declined(word)

    # What the program is given

    async def pass_input(self, stdin: int) -> None:
        """Pass on what the person types. The end of a terminal is a hang-up; of anything else, only the end."""
        with _Keyboard(stdin) as keyboard:
            while data := await keyboard.wait_for_keys():
                self._note_keys(data)
                await self._give(data)
        if os.isatty(stdin):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGHUP)

    def _note_keys(self, data: bytes) -> None:
        """Count what is typed and not yet entered."""
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
        """Write to the program's input, as fast as it reads. A program that is gone reads nothing."""
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
        """Show each message when it disturbs nothing."""
        async for text in incoming:
            await self._wait_until_idle(any_screen=inject)
            if inject:
                await self._type(text)
                continue
            try:
                await self._screen.show(text)
            except OSError:
                return  # nobody is there to be shown anything

    async def _wait_until_idle(self, *, any_screen: bool) -> None:
        while True:
            timeout = None
            # On the screen a message is beside what is being typed; typed, it would be in the middle of it.
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
        """Type text into the program and enter it by a separate key, unless the person began to type."""
        keys = self._keys
        line = neutral(text).replace("\n", " ").replace("\t", "\\t")
        await self._give(self._extractor.disarm(line).encode())
        await asyncio.sleep(SUBMIT_SECONDS)
        if keys == self._keys:
            await self._give(b"\r")
            self._printed_at = self._loop.time()


async def _wait_for_output(master: int) -> bytes:
    """Wait for the next bytes of a pty; none when nobody has its other side open."""
    loop = asyncio.get_running_loop()
    while True:
        await _wait_for(loop.add_reader, loop.remove_reader, master)
        with contextlib.suppress(BlockingIOError):
            return _read(master)


def _read(fd: int) -> bytes:
    """Read what is there; none at the end, which a terminal may report as an error."""
    try:
        return os.read(fd, _READ_BYTES)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return b""


async def _wait_for(watch: Callable[..., object], unwatch: Callable[[int], object], fd: int) -> None:
    """Wait until a descriptor is ready."""
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
    """Once it was told to end, end a program that does not: an interactive shell ignores SIGTERM, for one."""
    await told.wait()
    await asyncio.wait({exited}, timeout=TERMINATE_SECONDS)
    await _hang_up(pid, exited)


async def _hang_up(pid: int, exited: "asyncio.Task[tuple[int, int]]") -> None:
    """End a program that still runs, with its session, as a terminal does that goes away; kill what stays."""
    for number, seconds in ((signal.SIGHUP, HANG_UP_SECONDS), (signal.SIGKILL, None)):
        if exited.done():
            return
        signal_session(pid, number)
        await asyncio.wait({exited}, timeout=seconds)


async def _end_session(pid: int) -> None:
    """End what a program left running in its session: it was started for this run, and that shall end."""
    signal_session(pid, signal.SIGHUP)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HANG_UP_SECONDS):
            while session_of(pid):  # noqa: ASYNC110 - processes that are not our children set no event
                await asyncio.sleep(_POLL_SECONDS)
    signal_session(pid, signal.SIGKILL)
