"""A hook of an agent's program: shows the agent its unread messages, or waits for one and wakes the agent.

Used by: `tieline drain --hook`, which agent programs run. Uses: `agents.unread`, which makes the answer; the record of
the program's session; and a session with the hub. An error in a hook goes to stderr, and the agent's turn continues.

A message is `seen` when the program's transcript has an answer of the model after the message. This proves that the
model has received the message. Until then the record keeps the id of the message, so that no hook shows the message
again. Codex and Gemini CLI may write no transcript. Then the proof is the model's answer that the program passes to a
later hook at the end of a turn. Only if the program names no session, a message counts as seen when it is shown.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tieline.agents.hook_record import FOLDER_VARIABLE, PUSHES_VARIABLE, READY
from tieline.agents.hooks import FORMS, SESSION_START, Program, way
from tieline.cli.failure import Exit, Failure, failure_of
from tieline.cli.output import complain, say

if TYPE_CHECKING:
    from tieline.agents.hook_record import Record
    from tieline.agents.unread import Asked, Shown
    from tieline.cli.context import Context
    from tieline.cli.session import Link
    from tieline.client import Client, Item, Message

_SECONDS_MAX = 4.0
"""Timeout of a hook in seconds. A working hub answers in milliseconds, and a broken hub must not delay an agent's turn
longer."""
_INPUT_BYTES_MAX = 64 * 1024 * 1024
"""Maximum size of a hook's input in bytes. The input may include the output of a tool."""
_UNREAD_MAX = 1000
"""Maximum number of unread messages that one hook reads from the hub. The next hook reads further messages."""

_WAKE_EXIT = 2
"""Exit code by which a waiting hook makes the agent's program begin a turn."""
_TOGETHER_SECONDS = 0.2
"""Seconds that a waiting hook waits for further messages after the first one. All these messages wake the agent
together."""
_PUSH_SECONDS = 0.5
"""Seconds in which an agent's program can show a pushed message by itself. After that time a hook shows the message."""
_READY_SECONDS = 10.0
"""Longest wait, in seconds, until an agent's program has loaded the hub's tools at its start. An agent without its
tools cannot answer."""
_UNKNOWN_SECONDS = 2.0
"""Seconds that a hook waits for the hub's tools, if no file shows that the agent's program has loaded them."""
_LOOK_SECONDS = 1.0
"""Interval, in seconds, at which a waiting hook checks that the agent's program still runs. The hook must not outlive
the program."""

_READY_LOOKS = 200

_INTERACTIVE_VARIABLE, _INTERACTIVE = "CLAUDE_CODE_ENTRYPOINT", "cli"
"""Environment variable in which Claude Code tells hooks its mode, and the value for the interactive mode. In other
modes the program ends after a turn, and a waiting hook would delay that end."""


class HookOptions:
    """The options of one hook: the reader's context, the maximum number of tokens, and `tools`.

    `tools` is true if the agent has the hub's tools. In a run (`tieline run`), environment variables contain two more
    options: the folder of the run, and true if the runner pushes messages.
    """

    def __init__(self, context: "Context", tokens_max: int, *, tools: bool = False) -> None:
        self.context = context
        self.tokens_max = tokens_max
        # The folder of the run that started the program.
        self.run_folder = os.environ.get(FOLDER_VARIABLE)
        # In a run the agent has our tools.
        self.tools = tools or self.run_folder is not None
        # True if the runner also pushes messages to the program.
        self.pushed = bool(os.environ.get(PUSHES_VARIABLE))


async def show_unread(link: "Link", program: Program, options: HookOptions) -> None:
    """Print the hook's answer with the unread messages, which the agent's program shows to its model.

    Print no answer if there are no unread messages, or after an error.
    """
    from tieline.agents import unread

    try:
        question = unread.asked(program, _read_input())
        async with asyncio.timeout(_SECONDS_MAX):
            mailbox = link.mailbox()
            if mailbox is not None:
                mailbox.show_unread(options.context, program, question, options.tokens_max)
            else:
                await _show_from_hub(link, program, question, options)
    except Exception as error:  # noqa: BLE001 - said on stderr, whatever it is
        # The exit code stays 0: any other would stop the turn, or show a warning that does not concern the agent.
        _complain(error)


async def wait_for_unread(link: "Link", program: Program, options: HookOptions) -> None:
    """Wait for a message, print it for the model, and end with the exit code that makes the program begin a turn.

    Only one hook of a program's session waits. A second hook returns at once. The wait also ends when the program has
    ended.
    """
    from tieline.agents import unread

    try:
        question = unread.asked(program, _read_input())
        if not question.session_id or os.environ.get(_INTERACTIVE_VARIABLE, _INTERACTIVE) != _INTERACTIVE:
            return
        if not _begins_to_wait(link, question):
            return
        waiting = asyncio.create_task(_wait(link, program, question, options))
        watching = asyncio.create_task(_until_over(link, question))
        await asyncio.wait((waiting, watching), return_when=asyncio.FIRST_COMPLETED)
        for task in (waiting, watching):
            task.cancel()
        text = waiting.result() if waiting.done() and not waiting.cancelled() else ""
    except Exception as error:  # noqa: BLE001 - said on stderr, whatever it is
        _complain(error)
        return
    if text:
        print(text, file=sys.stderr, flush=True)
        raise typer.Exit(_WAKE_EXIT)


async def _show_from_hub(link: "Link", program: Program, question: "Asked", options: HookOptions) -> None:
    from tieline.agents import unread

    async with await link.open_member() as client:
        with _record(link, question) as record:
            items, more = await _unread(client, options)
            new, proved = _sorted(program, question, record, items, options, leave_young=_pushed(options, record))
            await _report(client, program, proved)
            shown = _shown(client, new, options, more=more)
            is_shown = unread.may_speak(program, question, shown, set(record.named) if record is not None else None)
            await _report_turn(client, program, question.hook_event_name, goes_on=is_shown)
            note = _note(program, record, options, is_shown=is_shown)
            if not is_shown and not note:
                return
            _print(unread.answer(program, question, shown.text if is_shown else "", note=note))
            if record is None:
                # Reported after printing: before that, the messages are not seen.
                client.see(*shown.items, evidence=f"hook {question.hook_event_name} of {program}")
            elif is_shown:
                record.show(_ids(shown.items), _ids(shown.rest))


async def _report_turn(client: "Client", program: Program, event: str, *, goes_on: bool) -> None:
    """Tell the hub that the agent is busy or, at the end of its turn, that it is not busy any more.

    At the start of a session, tell the hub nothing, because no turn has begun. With `goes_on`, the hook at the end of a
    turn asks for another turn.
    """
    if event in FORMS[program].events and event != SESSION_START:
        await client.set_busy(goes_on or event != FORMS[program].stopped)


async def _wait(link: "Link", program: Program, question: "Asked", options: HookOptions) -> str:
    """Wait for messages that no hook has shown yet, and return their text. `question` is the hook's input."""
    from tieline.cli.reconnection import is_passing
    from tieline.client import HubError
    from tieline.wire.backoff import SESSION_BACKOFF

    if question.hook_event_name == SESSION_START:
        await _tools_loaded(options.run_folder)
    while True:
        client = await SESSION_BACKOFF.retry(lambda: _open(link), is_passing)
        looks = _looks(client, question)
        try:
            async for arrived in looks:
                with _record(link, question) as record:
                    if not arrived and not (record is not None and record.shown):
                        # The new lines of the transcript prove nothing: no message waits for proof.
                        continue
                    pause = _PUSH_SECONDS if _pushed(options, record) else _TOGETHER_SECONDS
                await asyncio.sleep(pause)
                if text := await _take_new(link, client, program, question, options):
                    # The text begins a turn. It counts as shown now, so no error may lose it.
                    with contextlib.suppress(HubError):
                        await client.set_busy()
                    return text
        except HubError as error:
            if not is_passing(error):
                raise
        finally:
            await looks.aclose()
            await client.close()


async def _looks(client: "Client", question: "Asked") -> "AsyncGenerator[bool, None]":
    """Yield true when a new delivery comes, and false when the program's transcript has new lines.

    A program may write an answer of the model into its transcript after the hook that searches for this answer has
    ended. So the waiting hook searches too.
    """
    from tieline.wire.native.arrivals import DeliveredKeys, arrivals

    deliveries = arrivals(client, DeliveredKeys())
    delivery = asyncio.ensure_future(anext(deliveries))
    size = _size(question.transcript_path)
    try:
        while True:
            await asyncio.wait((delivery,), timeout=_LOOK_SECONDS)
            if delivery.done():
                delivery.result()
                delivery = asyncio.ensure_future(anext(deliveries))
                yield True
            elif size != (size := _size(question.transcript_path)):
                yield False
    finally:
        delivery.cancel()
        await asyncio.gather(delivery, return_exceptions=True)
        await deliveries.aclose()


async def _open(link: "Link") -> "Client":
    """Open a hub session that receives deliveries.

    If no hub runs, raise an error after which the caller tries again.
    """
    if link.mailbox() is not None:
        raise Failure(Exit.UNREACHABLE, "no hub runs here")
    return await link.open_member(receive=True)


async def _tools_loaded(run_folder: str | None) -> None:
    """Wait until the agent's program has loaded the hub's tools.

    In a run (`tieline run`), a file in `run_folder` shows that the tools are loaded. Without a run, wait for a fixed
    time.
    """
    if run_folder is None:
        await asyncio.sleep(_UNKNOWN_SECONDS)
        return
    for _ in range(_READY_LOOKS):
        if (Path(run_folder) / READY).exists():
            return
        await asyncio.sleep(_READY_SECONDS / _READY_LOOKS)


async def _take_new(link: "Link", client: "Client", program: Program, question: "Asked", options: HookOptions) -> str:
    """Return the hook's answer with the unread messages, and record which messages it shows or only names.

    Messages that a hook has shown are left out. A message that is too long to show is named by its id. If the answer
    would only name messages that were named before, the result is empty.
    """
    with _record(link, question) as record:
        # Read under the lock. Otherwise another hook could record a message that is not in `items`, and `_sorted` would
        # remove it from the record.
        items, more = await _unread(client, options)
        # The waiting hook has already given a push the time to show the message.
        new, proved = _sorted(program, question, record, items, options, leave_young=False)
        await _report(client, program, proved)
        shown = _shown(client, new, options, more=more)
        if record is None:
            return shown.text
        # A message that is too long to show wakes the agent too, once.
        is_news = bool(shown.items) or any(one not in record.named for one in _ids(shown.rest))
        record.show(_ids(shown.items), _ids(shown.rest))
        return shown.text if is_news else ""


def _ids(items: "tuple[Item, ...]") -> list[str]:
    return [item.message.id for item in items]


async def _unread(client: "Client", options: HookOptions) -> "tuple[list[Item], bool]":
    """Return the unread messages whose scope fits this hook, and true if the inbox has further unread messages."""
    from tieline.cli.session import speaker_of
    from tieline.protocols.mcp.echo import should_suppress_self_echo

    page = await client.inbox(limit=_UNREAD_MAX, unseen=True)
    member = speaker_of(client)
    items = [
        item
        for item in page.items
        if options.context.takes(item.message.scope) and not should_suppress_self_echo(item.message, member=member)
    ]
    return items, not page.complete


async def _report(client: "Client", program: Program, proved: "tuple[Item, ...]") -> None:
    """Tell the hub that the model has read the messages `proved`, and wait until the hub has processed this.

    The record of the program's session no longer has these messages. So the next hook can learn only from the hub that
    they were read.
    """
    if proved:
        client.see(*proved, evidence=f"answer of the model in {program}")
        # The hub answers one session's requests in order.
        await client.inbox(limit=1)


def _sorted(
    program: Program,
    question: "Asked",
    record: "Record | None",
    items: "list[Item]",
    options: HookOptions,
    *,
    leave_young: bool,
) -> "tuple[tuple[Item, ...], tuple[Item, ...]]":
    """Return two groups of `items`: messages to show now, and messages that the model has received.

    The transcript, or the model's answer in the hook's input, proves that the model has received the second group.
    These messages are removed from `record`. With `leave_young`, very new messages are in neither group, because a push
    may still show them.
    """
    from tieline.agents.transcript import answered_ids, framed_ids
    from tieline.agents.unread import sort_items

    if record is None:
        return tuple(items), ()
    form, shown, tail = FORMS[program], set(record.shown), _tail(question.transcript_path)
    # A tool may print the frame of a message that was never shown. So a frame in the transcript counts if a hook has
    # shown its message, or if it came as a push.
    found = answered_ids(tail, form.answer_mark, escapes=form.escapes)
    transcript = {one: answered for one, answered in found.items() if one in shown}
    if options.pushed:
        pushed = answered_ids(tail, form.answer_mark, skip=form.tool_mark)
        transcript = {**dict.fromkeys(framed_ids(question.prompt), False), **pushed, **transcript}
    if form.transcript_optional and not question.transcript_path and question.has_answer:
        transcript = dict.fromkeys(shown, True)
    by_proof = sort_items(items, shown, transcript)
    # A message that is no longer unread need not be remembered. But a full page may leave out unread messages.
    unread = {item.message.id for item in items} if len(items) < _UNREAD_MAX else {*shown, *record.named}
    read = {item.message.id for item in by_proof.read}
    record.shown = [one for one in record.shown if one in unread - read]
    record.named = [one for one in record.named if one in unread - read]
    new = by_proof.new
    if leave_young:
        # The program may be about to show a pushed message by itself.
        new = tuple(item for item in new if not 0 <= _now_ms() - item.message.sent_at_ms < _PUSH_SECONDS * 1000)
    return new, by_proof.read


def _pushed(options: HookOptions, record: "Record | None") -> bool:
    """Return true if `tieline run` pushes messages, and the agent's program may show them.

    In this case a hook waits for a short time, in which the program can show a pushed message. The result is false once
    the user was told that the program shows no pushed messages.
    """
    return options.pushed and not (record is not None and record.told)


def _shown(client: "Client", items: "tuple[Item, ...]", options: HookOptions, *, more: bool) -> "Shown":
    from tieline.agents import unread
    from tieline.cli.session import speaker_of

    return unread.show(
        items,
        member=speaker_of(client),
        now_ms=_now_ms(),
        tokens_max=options.tokens_max,
        more=more,
        tools=options.tools,
    )


def _note(program: Program, record: "Record | None", options: HookOptions, *, is_shown: bool) -> str:
    """Return a line that tells the user of a run (`tieline run`) that the program shows no pushed messages.

    The line is shown once. Return an empty text if the line was shown before, or if this is not known yet. `is_shown`
    is true if this hook shows messages.
    """
    if record is None or record.told or not options.pushed or not (is_shown or record.has_shown):
        return ""
    record.told = True
    return f"tieline: pushes are off in this program; {way(program, wake=record.waiter is not None)}"


# The record of the program's session.


@contextlib.contextmanager
def _record(link: "Link", question: "Asked") -> "Iterator[Record | None]":
    """Lock and yield the record of the program's session, which has the messages that hooks have shown.

    Yield `None` if the program names no session.
    """
    from tieline.agents.hook_record import locked_record, sweep

    if not question.session_id:
        yield None
        return
    folder = _folder(link)
    sweep(folder)
    with locked_record(folder, question.session_id) as record:
        yield record


def _folder(link: "Link") -> Path:
    from tieline.agents.hook_record import FOLDER
    from tieline.agents.run_folder import RUNS

    given = os.environ.get(FOLDER_VARIABLE)
    return Path(given) / FOLDER if given else link.folder / RUNS / FOLDER


def _begins_to_wait(link: "Link", question: "Asked") -> bool:
    """Write into the record of the program's session that this process is its waiting hook. Return true.

    Return false if another hook already waits, or if the program has ended.
    """
    from tieline.agents.hook_record import locked_record, process_of, program

    with locked_record(_folder(link), question.session_id) as record:
        if record.program is None or record.program != program():
            return False
        if record.waiter is not None and record.waiter.is_alive:
            return False
        record.waiter = process_of(os.getpid())
        return True


async def _until_over(link: "Link", question: "Asked") -> None:
    """Wait until the agent's program has ended, and remove the record of its session."""
    from tieline.agents.hook_record import program, sweep

    parent = program()
    while parent is not None and parent.is_alive and program() == parent:  # noqa: ASYNC110 - nobody tells us
        await asyncio.sleep(_LOOK_SECONDS)
    sweep(_folder(link))


def _tail(path: str | None) -> str:
    """Return the end of the program's transcript at `path`; empty if there is none."""
    from tieline.agents.transcript import TAIL_BYTES

    if not path:
        return ""
    try:
        with Path(path).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            return file.read(TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _size(path: str | None) -> int:
    """Return the size of the program's transcript at `path` in bytes; 0 if there is none."""
    try:
        return Path(path).stat().st_size if path else 0
    except OSError:
        return 0


# Printing.


def print_framed(messages: "Iterable[Message]", member: str) -> None:
    """Print messages for the agent `member`, each in full and in its frame (the tags `<channel …>` around it)."""
    from tieline.protocols.mcp.framing import channel_text

    for message in messages:
        say(channel_text(message, member=member, now_ms=_now_ms(), whole=True))


def say_shown(program: Program, question: "Asked", shown: "Shown") -> bool:
    """Print the hook's answer for the agent's program, and return true.

    If there is nothing to show, print nothing and return false.
    """
    from tieline.agents import unread

    if not unread.may_speak(program, question, shown):
        return False
    _print(unread.answer(program, question, shown.text))
    return True


def _print(answer: dict[str, object]) -> None:
    import msgspec

    print(msgspec.json.encode(answer).decode(), flush=True)


def _complain(error: Exception) -> None:
    failure = failure_of(error)
    complain(failure.message if failure else f"{type(error).__name__}: {error}")


def _read_input() -> bytes:
    """Return the hook's input, which the agent's program writes to stdin.

    Return no bytes if stdin is a terminal, because then a person tries the hook.
    """
    return b"" if sys.stdin.isatty() else sys.stdin.buffer.read(_INPUT_BYTES_MAX)


def _now_ms() -> int:
    import time

    return time.time_ns() // 1_000_000
