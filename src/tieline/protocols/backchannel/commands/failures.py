"""Translates errors of a spool, a relay (backchannel's HTTP server) or `config.json` to a message and an exit code."""

from tieline.cli.failure import Exit, Failure
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.backchannel.client import RelayRefused, RelayUnreachable
from tieline.protocols.backchannel.identity import BadConfig
from tieline.protocols.backchannel.spool import SpoolBroken, SpoolRefused

_KNOWN_AFTER = "an agent is known after its first command: 'tieline inbox --as NAME'"


def without_hub(error: SpoolRefused, where: str) -> Failure:
    """Return the failure of a command that found no hub, and that the spool at `where` refused too.

    `error` is the refusal: for example, the spool does not have the named agent.
    """
    message = f"no hub runs here, so {where} was searched: {_unknown(error.refusal)}"
    hint = f"'tieline serve' starts a hub; without one, {_KNOWN_AFTER}"
    return Failure(Exit.REFUSED, message, hint, word=error.refusal.code.value)


def _unknown(refusal: Refusal) -> str:
    near = f"; did you mean {' or '.join(refusal.near)}?" if refusal.near else ""
    return f"{refusal.message.partition(' — ')[0]}{near}"


def failure_of(error: Exception) -> Failure | None:
    """Return the message and exit code of a command that fails with this error.

    Return `None` if the error does not come from a spool, a relay (backchannel's HTTP server) or `config.json`.
    """
    match error:
        case SpoolRefused(refusal=refusal) if refusal.code is Code.UNKNOWN_MEMBER:
            return Failure(Exit.REFUSED, _unknown(refusal), f"'tieline members' lists them; {_KNOWN_AFTER}")
        case SpoolRefused(refusal=refusal) if refusal.code is Code.NO_RECIPIENTS:
            return Failure(Exit.REFUSED, refusal.message, "'tieline channels' lists the channels and their members")
        case SpoolRefused() | RelayRefused():
            return Failure(Exit.REFUSED, str(error))
        case SpoolBroken() | BadConfig():
            return Failure(Exit.FAILED, str(error), "'tieline doctor' shows what is wrong there")
        case RelayUnreachable():
            return Failure(Exit.UNREACHABLE, str(error))
        case _:
            return None
