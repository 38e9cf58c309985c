"""The test of a connection: a test message goes through the commands in a program's settings.

Used by: `connect`. Uses: the commands themselves, read from the settings files, and started as the program starts them.
The test calls no model. So the test cannot prove that the program runs the commands, or that its model reads a message.
The printed result mentions this limit.

No running agent wakes for the message, because its scope matches only the command that is tested. The
message does not count as seen, and the test takes it out of the inbox at the end. If this process is killed, the
message expires, and the next test removes the sender.
"""

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from tieline.agents.hooks import FORMS, Program
from tieline.cli.canary import CONNECT_ANSWER, CONNECT_SENDER, CONNECT_TEXT
from tieline.cli.program_settings import SettingsFile
from tieline.client import Client, HubError
from tieline.client.connection import connect
from tieline.contract.member import MemberKind
from tieline.contract.message import Kind, Priority

if TYPE_CHECKING:
    from tieline.agents.connection import Connection, SettingsPart
    from tieline.agents.mcp_client import McpClient
    from tieline.cli.session import Link

NOT_PROVED = "that the program itself runs these commands, and that its model reads a message: its first turn shows it"

_SECONDS_MAX = 20.0
"""Longest time, in seconds, for one command or one answer. Each takes less than a second on a machine that is not
overloaded."""
_SAID_CHARS_MAX = 500
"""Maximum number of characters that are shown of a failed command's error output. The first lines contain the
reason."""
_NEWS_MS = 60_000  # nobody needs the canary's message later
_HANDED_ON = frozenset({"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"})
"""Environment variables that every agent program hands on to an MCP server."""


class _Problem(Exception):
    """Raised if a part of a tested connection does not work. The text is shown to the user."""


async def try_connection(
    link: "Link", connection: "Connection", parts: "Sequence[SettingsPart]"
) -> tuple[list[str], list[str]]:
    """Test the connection of an agent program: run the commands in its settings files `parts`.

    Return two lists of sentences: the facts that the test proved, and the problems.
    """
    proved: list[str] = []
    try:
        entry, hook = _commands(connection.program, parts)
        if link.way() == (None, None) and "--token-file" not in connection.where:
            async with _sender(link) as sender, _message(link, sender, connection.member) as (message_id, scope):
                proved.append(await _try_hook(link, connection, hook, message_id, scope))
                proved.append(await _try_server(connection, entry, sender, message_id))
        else:
            # Here nobody but the member itself can send, and a hook does not show a member its own messages.
            proved.append(await _try_hook(link, connection, hook, "", ""))
            proved.append(await _try_server(connection, entry, None, ""))
    except _Problem as problem:
        return proved, [str(problem)]
    except HubError as error:
        return proved, [f"the hub: {error}"]
    return proved, []


def _commands(program: Program, parts: "Sequence[SettingsPart]") -> tuple[Mapping[str, Any], str]:
    """Return the entry of Tieline's MCP server and the command of Tieline's hook, read from the settings files."""
    from tieline.agents.connection import server_of
    from tieline.agents.hooks import command_in
    from tieline.agents.settings import BadSettings

    servers, hooks = parts[0].path, parts[-1].path
    try:
        entry, hook = server_of(servers, SettingsFile(servers).text), command_in(SettingsFile(hooks).text, program)
    except (BadSettings, UnicodeDecodeError) as error:
        raise _Problem(f"the settings cannot be read any more: {error}") from error
    if entry is None or hook is None:
        raise _Problem(f"{servers if entry is None else hooks} has lost our entry: another program has written it")
    return entry, hook


# The message.


@contextlib.asynccontextmanager
async def _sender(link: "Link") -> AsyncIterator[Client]:
    """Yield a hub session of a temporary member, which sends the test message. The member is removed at the end."""
    from tieline.cli.session import Link as AnyLink

    async with await AnyLink(home=link.folder).open_operator() as operator:
        for member in await operator.members():
            left = CONNECT_SENDER.fullmatch(member.name)
            if left is not None and not _is_alive(int(left[1])):
                await operator.remove_member(member.name)
        issued = await operator.add_member(
            f"connect-canary-{os.getpid()}-{secrets.token_hex(4)}", kind=MemberKind.SCRIPT
        )
        try:
            async with await connect(home=link.folder, token=issued.token, receive=True) as sender:
                yield sender
        finally:
            await operator.remove_member(issued.member)


@contextlib.asynccontextmanager
async def _message(link: "Link", sender: Client, member: str) -> AsyncIterator[tuple[str, str]]:
    """Send the test message to `member`, and yield its id and its scope.

    At the end, claim the message for its recipient, so that it does not stay in the inbox.
    """
    scope = f"tieline-connect-{secrets.token_hex(8)}"
    sent = await sender.send(
        f"@{member}",
        CONNECT_TEXT,
        kind=Kind.STATUS,
        priority=Priority.URGENT,
        scope=scope,
        ttl_ms=_NEWS_MS,
    )
    try:
        yield sent.id, scope
    finally:
        async with await link.open() as own:
            await own.claim(sent.id)


def _is_alive(pid: int) -> bool:
    from tieline.agents.hook_record import process_of

    return process_of(pid) is not None


# The commands.


async def _try_hook(link: "Link", connection: "Connection", command: str, message_id: str, scope: str) -> str:
    """Run the command of the hook as the agent program does after a prompt.

    Return a sentence that says what this proves. The hook should show the test message. Without a `scope` there is no
    test message, and it is enough that the hook runs.
    """
    from tieline.agents.hook_record import FOLDER, FOLDER_VARIABLE, PUSHES_VARIABLE, forget
    from tieline.agents.run_folder import RUNS

    session = f"tieline-connect-{secrets.token_hex(8)}"
    # The transcript is empty, without an answer of a model. So nothing that the hook shows counts as seen.
    event = FORMS[connection.program].prompted
    question = {"hook_event_name": event, "session_id": session, "transcript_path": os.devnull}
    # This process may itself be in a run (`tieline run`). The tested program is not in that run.
    variables = {name: value for name, value in os.environ.items() if name not in (FOLDER_VARIABLE, PUSHES_VARIABLE)}
    if scope:
        # These variables make git report the scope as the remote of the folder.
        variables |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "remote.origin.url", "GIT_CONFIG_VALUE_0": scope}
    began = time.monotonic()
    try:
        code, printed, complained = await _run(command, question, variables)
    finally:
        forget(link.folder / RUNS / FOLDER, session)
    took = round((time.monotonic() - began) * 1000)
    if code != 0 or complained:
        raise _Problem(f"the hook ended with {code}: {complained.strip()[:_SAID_CHARS_MAX] or 'without a word'}")
    if not scope:
        return f"the hook runs and reaches the hub ({took} ms)"
    if message_id in printed:
        return f"the hook shows a message to {connection.member} ({took} ms)"
    if printed.strip():
        return f"the hook shows the messages that wait for {connection.member} ({took} ms)"
    raise _Problem("the hook printed nothing, although a message waits (is git installed?)")


async def _run(command: str, question: Mapping[str, str], variables: Mapping[str, str]) -> tuple[int, str, str]:
    import msgspec

    process = await asyncio.create_subprocess_shell(
        command,
        env=variables,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_SECONDS_MAX):
            out, err = await process.communicate(msgspec.json.encode(question))
    except TimeoutError as error:
        process.kill()
        raise _Problem(f"the hook did not end within {_SECONDS_MAX:g} s") from error
    return process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace")


async def _try_server(
    connection: "Connection", entry: Mapping[str, Any], sender: Client | None, message_id: str
) -> str:
    """Start the MCP server as the agent program does, and answer the test message by one of the server's tools.

    `entry` is the server's entry in the settings. Without a `sender` there is no test message, and a tool only lists
    the members. Return a sentence that says what this proves.
    """
    from tieline.agents.mcp_client import ServerFailed, open_server

    # Claude Code hands its whole environment on. The others hand on a few variables only.
    has_all = connection.program is Program.CLAUDE_CODE
    variables = {name: value for name, value in os.environ.items() if has_all or name in _HANDED_ON}
    command = [str(entry["command"]), *map(str, entry["args"])]
    began = time.monotonic()
    # A file without a name, so that nothing is left of it.
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        try:
            async with asyncio.timeout(_SECONDS_MAX), open_server(command, variables, said) as client:
                count = len(await client.list_tools())
                if sender is None:
                    await _call(client, "members", {})
                else:
                    arguments = {"to": f"@{_name_of(sender)}", "body": CONNECT_ANSWER, "reply_to": message_id}
                    await _call(client, "send", arguments)
                    await _answer_to(sender, message_id)
        except (ServerFailed, OSError) as error:
            said.seek(0)
            late = f"no answer within {_SECONDS_MAX:g} s" if isinstance(error, TimeoutError) else ""
            why = said.read(_SAID_CHARS_MAX).strip() or late or str(error)
            raise _Problem(f"the MCP server does not answer: {why}") from error
    took = round((time.monotonic() - began) * 1000)
    done = "answers the message" if sender is not None else "reaches the hub"
    return f"the MCP server starts with {count} tools and {done} as {connection.member} ({took} ms)"


async def _call(client: "McpClient", name: str, arguments: Mapping[str, Any]) -> None:
    result = await client.call_tool(name, arguments)
    if result.get("isError"):
        texts = [str(part.get("text", "")) for part in result.get("content", ())]
        raise _Problem(f"the tool {name} failed: {' '.join(texts)}")


async def _answer_to(sender: Client, message_id: str) -> None:
    """Wait until the sender gets the answer to the test message."""
    async for delivery in sender:
        sender.ack(delivery)
        if delivery.message.reply_to == message_id:
            return


def _name_of(client: Client) -> str:
    from tieline.cli.session import speaker_of

    return speaker_of(client)
