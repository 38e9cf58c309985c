"""Names: finds out that a member, channel or objective does not exist, and which names are similar.

Used by: commands whose request the hub does not refuse if a name is unknown, such as `history`. Uses: a session with a
hub. The error message is the same as the hub's own.
"""

from typing import TYPE_CHECKING

from tieline.cli.failure import Exit, Failure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tieline.client import Client

_NEAR_MAX = 3
"""Number of near names that are offered: as many as the hub offers."""
_THREAD = "obj:"
_NAMED_THREAD = "thread:"


async def check_names(client: "Client", *targets: str) -> None:
    """Raise `Failure` if one of the targets names a member, channel or objective that does not exist.

    A target is `@member`, `#channel`, `obj:ID` or `thread:ID`. Anything else is not checked.
    """
    for target in targets:
        failure = await _find_unknown(client, target)
        if failure is not None:
            raise failure


async def check_place(client: "Client", place: str) -> None:
    """Raise `Failure` if `place` does not exist, or if it is the name of a member or channel without its `@` or `#`.

    Without this check, the hub takes such a name for the name of a thread, and finds no messages in it.
    """
    await check_names(client, place)
    members = [f"@{member.name}" for member in await client.members()]
    channels = [f"#{channel.name}" for channel in await client.channels()]
    meant = [one for one in (*members, *channels) if one[1:].casefold() == place.casefold()]
    if meant:
        raise Failure(Exit.REFUSED, f"nothing was found in a thread {place!r}{_offer(meant)}", word="unknown_thread")


async def warn_of_unknown(client: "Client", *targets: str) -> None:
    """Print a warning for each target that does not exist.

    This is for targets that may be created later, so that an unknown one is no error.
    """
    from tieline.cli.output import neutral_line, warn

    for target in targets:
        failure = await _find_unknown(client, target)
        if failure is not None:
            text = failure.message
            warn(neutral_line(f"{text[0].upper()}{text[1:]}{'' if text.endswith('?') else '.'}"))


async def _find_unknown(client: "Client", target: str) -> Failure | None:
    """Return the failure to raise if a target does not exist; `None` if it exists or cannot be checked."""
    name = target[1:]
    match target[:1]:
        case "@":
            known = [member.name for member in await client.members()]
            return None if name in known else await _unknown_member(client, name, known)
        case "#":
            channels = [channel.name for channel in await client.channels()]
            return None if name in channels else _unknown_channel(name, channels)
        case _ if target.startswith(_THREAD):
            return await _unknown_objective(client, target.removeprefix(_THREAD))
        case _ if target.startswith(_NAMED_THREAD):
            return await _unknown_thread(client, target.removeprefix(_NAMED_THREAD))
        case _:
            return None


async def _unknown_member(client: "Client", name: str, known: "Iterable[str]") -> Failure:
    aliases = (await client.team()).aliases
    channels = [channel.name for channel in await client.channels()]
    if name in aliases:
        near = [aliases[name]]
    elif name in channels:
        # A person has left out the # of a channel.
        near = [f"#{name}"]
    else:
        near = _near(name, known)
    hint = "'tieline members' lists them; 'tieline member add' creates one"
    return Failure(Exit.REFUSED, f"no member is called {name!r}{_offer(near)}", hint, word="unknown_member")


def _unknown_channel(name: str, known: "Iterable[str]") -> Failure:
    near = [f"#{one}" for one in _near(name, known)]
    hint = "'tieline channels' lists them; 'tieline sub' creates one"
    return Failure(Exit.REFUSED, f"there is no channel #{name}{_offer(near)}", hint, word="unknown_channel")


async def _unknown_objective(client: "Client", id: str) -> Failure | None:
    from tieline.client import HubRefused

    try:
        await client.objective(id)
    except HubRefused as error:
        hint = "'tieline objectives list' lists those that you may see"
        return Failure(Exit.REFUSED, error.message, hint, word=error.code.value)
    return None


async def _unknown_thread(client: "Client", name: str) -> Failure | None:
    from tieline.cli.short_ids import recent_threads

    if name in await recent_threads(client):
        return None
    return Failure(Exit.REFUSED, f"no recent message is in a thread {name!r}", word="unknown_thread")


def _near(name: str, known: "Iterable[str]") -> list[str]:
    from difflib import get_close_matches

    by_lower = {one.lower(): one for one in known}
    return [by_lower[one] for one in get_close_matches(name.lower(), by_lower, _NEAR_MAX)]


def _offer(near: list[str]) -> str:
    return f"; did you mean {' or '.join(near)}?" if near else ""
