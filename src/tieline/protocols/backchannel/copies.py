"""Copies of a message in a spool: the files of its deliveries, which are rewritten when the message is redacted.

Used by: the adoption. Uses: the disk. A copy may be unread, claimed, or refused. Only files in the spool itself are
found: a program that has moved a file elsewhere keeps its content. A delivery that is not written yet may still have
the old content. `RedactedMessages` has the note that is then written instead.
"""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from glob import escape
from pathlib import Path

import msgspec
import structlog

from tieline.contract.message import Message
from tieline.protocols.backchannel.message_ids import MessageIds
from tieline.protocols.backchannel.view import received

log = structlog.get_logger(__name__)

_MESSAGES_MAX = 1000
"""Most redacted messages that are remembered. A delivery of an older one has long been written."""
_LOOKS_MAX = 5
"""Most looks for the files of a message. A look finds nothing new unless a file is moved at the same moment."""


class RedactedMessages:
    """The messages that were redacted since the start, with the notes in the place of their content.

    It is safe for threads: one thread notes messages, and others read.
    """

    def __init__(self) -> None:
        self._messages: OrderedDict[str, Message] = OrderedDict()

    def note(self, message: Message) -> None:
        """Remember a redacted message."""
        self._messages[message.id] = message
        if len(self._messages) > _MESSAGES_MAX:
            self._messages.popitem(last=False)

    def current(self, message: Message) -> Message:
        """Return the message as it is now: with a note if it was redacted, otherwise unchanged."""
        return self._messages.get(message.id, message)


class Redactions:
    """All running redactions in one spool. A redaction ends when no file has the redacted content any more.

    `wait_idle` waits for the files that are being written, which may have the old content. `spool_thread` makes all
    changes.
    """

    def __init__(
        self, root: Path, ids: MessageIds, wait_idle: Callable[[], Awaitable[None]], spool_thread: Executor
    ) -> None:
        self._root = root
        self._ids = ids
        self._wait_idle = wait_idle
        self._spool_thread = spool_thread
        self._tasks: set[asyncio.Task[None]] = set()
        # For the inboxes: a delivery that waits has the old content.
        self.messages = RedactedMessages()

    def begin(self, message: Message) -> None:
        """Begin to write the note of a redacted message into its files. This method returns at once."""
        self.messages.note(message)
        task = asyncio.get_running_loop().create_task(self._redact(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Wait until all redactions that have begun are done."""
        await asyncio.gather(*self._tasks)

    async def _redact(self, message: Message) -> None:
        await self._wait_idle()
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._spool_thread, redact_copies, self._root, message, self._ids)
        except OSError as error:
            log.error("the files of a redacted message cannot be found", spool=str(self._root), reason=str(error))


def redact_copies(root: Path, message: Message, ids: MessageIds) -> None:
    """Write the note of a redacted message into all files of the message in the spool `root`. Call this on a thread.

    The files are written in place and keep their names, so that a reader who takes one meanwhile gets the note too. A
    search may miss a file that is moved meanwhile, so the function searches again until no file has the old content.
    """
    name = ids.of(message)
    document = msgspec.json.encode(received(message, ids) | {"id": name})
    for _ in range(_LOOKS_MAX):
        paths = list(root.glob(f"spool/*/*/{escape(name)}*"))
        if not [path for path in paths if _rewrite(path, document)]:
            return


def _rewrite(path: Path, document: bytes) -> bool:
    """Write `document` into a file. Return false if the file has this content already, or cannot be written."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            before = file.read()
            if before == document:
                return False
            file.seek(0)
            # One write covers all of the old content, so that a reader never finds an empty file or half a document.
            file.write(document.ljust(len(before)))
            file.truncate(len(document))
            os.fsync(file.fileno())
    except FileNotFoundError:
        return True
    except OSError as error:
        log.error("a file of a redacted message could not be rewritten", file=str(path), reason=str(error))
        return False
    return True
