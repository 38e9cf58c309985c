"""Failures: the message and the exit code of a command that cannot do its work.

Used by: every command. Uses: the SDK's errors. A failure prints one sentence and at most one hint on stderr. An error
that a user can cause never prints a traceback.
"""

from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tieline.cli.documents import Failed


class Exit(IntEnum):
    """The exit codes of every command; scripts depend on them."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    UNREACHABLE = 4
    TIMED_OUT = 5
    MISSED = 6
    INTERRUPTED = 130


class Failure(Exception):
    """Raised to end a command, with a sentence for a person and an exit code for a script."""

    def __init__(self, code: Exit, message: str, hint: str = "", word: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        """Advice for the user."""
        self.word = word
        """Code of the failure in the JSON output. It is not needed for a refusal of the hub, which has its own code."""


class NobodyNamed(Failure):
    """Raised if a command needs a member, and no option, environment variable or stored name says which member."""

    def __init__(self, hint: str) -> None:
        super().__init__(Exit.USAGE, "this command needs a member", hint)


def document_of(failure: Failure, error: Exception) -> "Failed":
    """Return a failure as a JSON document: message, hint, exit code, and the code of the hub's refusal, if any.

    `error` is the exception that caused the failure.
    """
    from tieline.cli.documents import Failed, Problem
    from tieline.contract.refusal import Code

    code = getattr(getattr(error, "refusal", error), "code", None)
    refusal = code.value if isinstance(code, Code) else failure.word
    return Failed(Problem(failure.code, refusal, failure.message, failure.hint))


def failure_of(error: Exception) -> Failure | None:
    """Return the failure (message and exit code) for an error of the SDK, the store or a protocol.

    Return `None` if the error is a bug.
    """
    if isinstance(error, Failure):
        return error
    return _of_protocol(error) or _of_disk(error) or _of_hub(error)


def _of_protocol(error: Exception) -> Failure | None:
    from tieline.cli.extension import extensions

    return next((failure for each in extensions() if (failure := each.failure(error)) is not None), None)


def _of_disk(error: Exception) -> Failure | None:
    from tieline.server.home import HalfRestored
    from tieline.wire.folder import NotOurs

    match error:
        case NotOurs() | HalfRestored():
            return Failure(Exit.FAILED, str(error))
        case OSError(filename=str(name)) | OSError(filename=Path() as name):
            return Failure(Exit.FAILED, f"{name}: {error.strerror or error}")
        case _:
            return None


def _of_hub(error: Exception) -> Failure | None:
    from tieline.client import Disconnected, HubRefused, HubUnreachable
    from tieline.core.store import StoreError
    from tieline.wire.address import BadPin

    match error:
        case BadPin():
            return Failure(Exit.USAGE, str(error), "'tieline status' on the hub's machine shows the whole address")
        case HubRefused():
            return _refused(error)
        case HubUnreachable():
            return Failure(Exit.UNREACHABLE, str(error))
        case Disconnected():
            return Failure(Exit.UNREACHABLE, f"the connection to the hub ended: {error}")
        case StoreError():
            return Failure(Exit.FAILED, str(error), error.hint)
        case _:
            return None


def _refused(error: Exception) -> Failure:
    from tieline.client import HubRefused
    from tieline.contract.refusal import Code

    assert isinstance(error, HubRefused), "asked for no other"
    match error.code:
        case Code.SHUTTING_DOWN:
            return Failure(Exit.UNREACHABLE, error.message)
        case Code.STORE_FAILED:
            return Failure(Exit.FAILED, error.message, "run 'tieline doctor' on the hub's machine")
        case Code.INTERNAL_ERROR:
            return Failure(Exit.FAILED, error.message)
        case Code.UNAUTHORIZED:
            hint = (
                "check --token and TIELINE_TOKEN; on the hub's machine, --home and --as NAME are enough. If you joined "
                "with an invitation, your membership may have ended: ask whoever runs the hub"
            )
            return Failure(Exit.REFUSED, error.message, hint)
        case Code.UNKNOWN_MEMBER:
            return Failure(
                Exit.REFUSED, error.message, "'tieline members' lists them; 'tieline member add' creates one"
            )
        case Code.UNKNOWN_OBJECTIVE:
            return Failure(Exit.REFUSED, error.message, "'tieline objectives list' lists those that you may see")
        case Code.UNKNOWN_CHANNEL:
            return Failure(Exit.REFUSED, error.message, "'tieline channels' lists them; 'tieline sub' creates one")
        case _:
            return Failure(Exit.REFUSED, error.message)
