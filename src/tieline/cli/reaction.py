"""The reaction: the command that `watch --exec` runs for a message.

Above: `watch`, with a hub and without. Below: the shell. A message is a stranger's words, so no part of it becomes
part of the command: it is on stdin and in variables, and `{{body}}` in the command stands for such a variable, which
the shell does not read as code. Within quotes that hold more than the template, its value might become code for
another shell (`sh -c "echo {{body}}"`), so that is refused.
"""

import contextlib
import os
import re
import signal
import sys
from typing import TYPE_CHECKING

from tieline.cli.failure import Exit, Failure

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from tieline.client import Message

_BODY_BYTES_MAX = 100_000
"""A variable of the environment holds less than 128 KiB on Linux; the whole message is on stdin."""

_TEMPLATE = re.compile(r"\{\{(id|from|to|body|priority|scope|thread)\}\}")
_PREFIXES = ("TIELINE_", "BCH_")
"""The second is for commands that were written for `bch`."""


class Reaction:
    """A command for messages, checked once."""

    def __init__(self, command: str) -> None:
        self._script = script_of(command)

    async def run(self, message: "Message", environment: dict[str, str]) -> int:
        """Run it for a message; returns its exit code. An interrupted watch ends it, with all that it started."""
        from tieline.client.client import to_json

        sys.stdout.flush()
        process = await self._start({**environment, **variables(message)})
        try:
            await process.communicate(to_json(message) + b"\n")
        finally:
            _end(process)
        return process.returncode or 0

    async def _start(self, environment: dict[str, str]) -> "Process":
        import asyncio

        # In a group of its own, so that it can be ended as a whole.
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_shell(
                self._script, stdin=asyncio.subprocess.PIPE, env=environment, process_group=0
            )
        )
        try:
            # Being interrupted while it starts would make asyncio wait for ever.
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            _end(await starting)
            raise


def _end(process: "Process") -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


def variables(message: "Message") -> dict[str, str]:
    """A message as variables of the environment."""
    said = {
        "ID": message.id,
        "FROM": message.sender,
        "TO": message.target,
        "BODY": message.body.encode()[:_BODY_BYTES_MAX].decode(errors="ignore"),
        "PRIORITY": message.priority.value,
        "SCOPE": message.scope or "",
        "THREAD": message.thread or "",
    }
    # A variable ends at its first NUL, so there is none in it; stdin has the text as it is.
    return {f"{prefix}{name}": value.replace("\0", "") for prefix in _PREFIXES for name, value in said.items()}


def script_of(command: str) -> str:
    """A command with its templates as quoted variables.

    Only the quoting around a template is understood here. Where it is misunderstood, the value is split into words or
    stands between quotes; it is never read as code, because the shell does not read what a variable holds.
    """
    parts: list[str] = []
    position = 0
    quote = ""
    while position < len(command):
        template = _TEMPLATE.match(command, position)
        char = command[position]
        if template:
            if quote and not _alone(command, template, quote):
                message = f"{template[0]} stands inside quotes with other text, where another shell might read it"
                raise Failure(Exit.USAGE, message, f"write {template[0]} outside of quotes: it is quoted for you")
            variable = f"${{TIELINE_{template[1].upper()}}}"
            parts.append({"": f'"{variable}"', '"': variable, "'": f"'\"{variable}\"'"}[quote])
            position = template.end()
            continue
        if char == "\\" and quote != "'":
            parts.append(command[position : position + 2])
            position += 2
            continue
        if char in "'\"" and quote in ("", char):
            quote = "" if quote else char
        parts.append(char)
        position += 1
    return "".join(parts)


def _alone(command: str, template: "re.Match[str]", quote: str) -> bool:
    return command[template.start() - 1] == quote and command[template.end() : template.end() + 1] == quote
