"""The notifier: runs the configured command for messages that nothing shows to have been seen.

Above: the local hub, which hands them over after a commit. Below: the operating system. A message is a stranger's
words: the command is a list of words that no message is part of, the body is on its stdin and the rest in variables.
What it does with it is its own business; that it ran is no evidence that the recipient saw anything.
"""

import asyncio
import contextlib
import os
from collections.abc import Sequence

import structlog

from tieline.core.outcome import Unseen

RUNS_MAX = 4
"""Commands at once: each is a process."""

WAITING_MAX = 256
"""Messages that wait for their turn; past that they are dropped, which the log says. The fall itself is recorded."""

_RUN_SECONDS_MAX = 30.0  # a command that hangs must not keep the next one waiting

log = structlog.get_logger(__name__)


class Notifier:
    """A command, run once for each unseen. Belongs to the event loop."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)
        self._runs: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(RUNS_MAX)

    def notify(self, unseen: Unseen) -> None:
        """Run the command for a message, soon; returns at once."""
        if len(self._runs) >= WAITING_MAX:
            log.warning(
                "too many messages wait to be told of; one is dropped", member=unseen.member, message=unseen.message.id
            )
            return
        task = asyncio.get_running_loop().create_task(self._run(unseen))
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)

    async def stop(self) -> None:
        """End what runs."""
        runs = list(self._runs)
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)

    async def _run(self, unseen: Unseen) -> None:
        async with self._turns:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                    env={**os.environ, **_variables(unseen)},
                )
            except OSError as error:
                log.warning("the notify command cannot be started", error=str(error))
                return
            try:
                async with asyncio.timeout(_RUN_SECONDS_MAX):
                    await process.communicate(unseen.message.content.body.encode(errors="replace"))
            except TimeoutError:
                log.warning("the notify command took too long and is ended", message=unseen.message.id)
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
                    await process.wait()
            if process.returncode:
                log.warning("the notify command failed", code=process.returncode, message=unseen.message.id)


def _variables(unseen: Unseen) -> dict[str, str]:
    said = unseen.message.content
    values = {
        "TIELINE_TO": unseen.member,
        "TIELINE_FROM": unseen.message.sender,
        "TIELINE_ID": unseen.message.id,
        "TIELINE_PRIORITY": said.priority.value,
        "TIELINE_TITLE": said.title or "",
        "TIELINE_THREAD": said.thread or "",
    }
    # A variable ends at its first NUL, so there is none in it.
    return {name: value.replace("\0", "") for name, value in values.items()}
