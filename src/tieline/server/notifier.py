"""The notifier: runs a configured command for each message that its recipient has apparently not seen.

Used by: the local hub, which passes such messages on after a commit. Uses: the operating system. A message is untrusted
text, so no part of it is in the command's arguments. The body is on stdin, and the rest is in environment variables.
The command may do anything with the message. A run of the command is no evidence that the recipient saw the message.
"""

import asyncio
import contextlib
import os
from collections.abc import Sequence

import structlog

from tieline.core.outcome import Unseen

RUNS_MAX = 4
"""Most notification commands that run at the same time. Each run is a process."""

WAITING_MAX = 256
"""Most messages for which a run of the notification command is queued or active. Further messages are dropped, with a
line in the program's log. The hub's event log still has the escalation of a dropped message."""

_RUN_SECONDS_MAX = 30.0  # a command that hangs must not keep the next one waiting

log = structlog.get_logger(__name__)


class Notifier:
    """Runs the configured notification command once for each message that its recipient has apparently not seen.

    Not thread-safe: use it only in the event loop.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)
        self._runs: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(RUNS_MAX)

    def notify(self, unseen: Unseen) -> None:
        """Queue a run of the notification command for an unseen message, and return at once."""
        if len(self._runs) >= WAITING_MAX:
            log.warning(
                "too many messages wait to be told of; one is dropped", member=unseen.member, message=unseen.message.id
            )
            return
        task = asyncio.get_running_loop().create_task(self._run(unseen))
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)

    async def stop(self) -> None:
        """End all running notification commands, and drop the queued runs."""
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
    # An environment variable cannot contain NUL.
    return {name: value.replace("\0", "") for name, value in values.items()}
