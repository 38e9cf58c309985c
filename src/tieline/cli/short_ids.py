"""Short ids: the names of messages, threads and objectives that a person can type.

Used by: every command that prints or takes an id. Uses: a session with a hub. A message's short id is its number: its
offset in the hub's log, which no other message has. An objective's short id is the end of its id: a number too, with
the digits 0 to 9 and a to z. Every command also takes the whole id, and the beginning of an id in the hub's spelling or
as a prefix id (`wire.prefix_ids`). A thread whose name is an id is shown and named by the beginning of that id. JSON
has whole ids.

A number is found by one lookup, however old the message is. A beginning is looked for in the inbox and among the newest
messages only, so that no command reads the whole history.
"""

import contextlib
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tieline.cli.failure import Exit, Failure
from tieline.wire.prefix_ids import from_prefix_id, to_prefix_id

if TYPE_CHECKING:
    from tieline.client import Accepted, Client, Message

_CHARS = 8
"""Number of characters that are shown of an id without a number. They are random, so two hardly ever agree."""
_ID_CHARS = 36
"""Number of characters of a whole message id."""
_DIGITS_MAX = 15
"""Number of digits of the largest number that is looked up. Larger numbers do not fit the hub's integers."""
_PAGE = 500
"""Number of deliveries that are read at once."""
_PAGES_MAX = 20
"""Number of pages of an inbox in which a message is looked for: more messages than a person looks through."""
_RECENT = 1000
"""Number of newest messages, and of newest objectives, in which an id is looked for: one page of the hub."""
_ANSWERED = 200
"""Number of newest messages in which an answered message is looked for. Most are answered soon."""
_NAMED_MAX = 5
"""Number of candidates that are named if a text fits several ids: enough to see how the ids differ."""

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.IGNORECASE)
_BEGINNING = re.compile(r"[0-9A-Fa-f-]+\Z")
_OBJECTIVE = "obj-"
_THREAD = "obj:"
_NAMED_THREAD = "thread:"


def short_message(message: "Message | Accepted") -> str:
    """Return the short id of a message: its number, or the beginning of its id if it has no number (in a spool)."""
    return str(message.offset) if message.offset else short_id(message.id)


def short_id(message_id: str) -> str:
    """Return the beginning of a message's id as a prefix id, for a message whose number is not known.

    Return text unchanged if it is no id.
    """
    return to_prefix_id(message_id)[:_CHARS] if _UUID.match(message_id) else message_id


def short_objective(objective_id: str) -> str:
    """Return the short id of an objective. Return an id that the hub did not make unchanged."""
    parts = objective_id.split("-")
    made_here = len(parts) == 3 and objective_id.startswith(_OBJECTIVE)  # noqa: PLR2004 - obj, time and number
    return parts[-1] if made_here else objective_id


def short_target(target: str) -> str:
    """Return the target of a message, with a short id if it is the thread of an objective."""
    return f"{_THREAD}{short_objective(target.removeprefix(_THREAD))}" if target.startswith(_THREAD) else target


async def find_message_id(client: "Client", text: str) -> str:
    """Return the hub's id of the message that a person named. Raise `Failure` if none or several fit.

    A whole id is not looked up: the command that uses it tells if there is no such message.
    """
    if len(text) >= _ID_CHARS:
        return from_prefix_id(text)
    return (await find_message(client, text)).id


async def find_reference(client: "Client", text: str) -> str:
    """Return the hub's id of the message that a field of another message names, such as the message that it answers.

    Text that cannot be an id of the hub is returned unchanged: the ids of other systems may stand there.
    """
    return await find_message_id(client, text) if _BEGINNING.match(text) else text


async def find_message(client: "Client", text: str) -> "Message":
    """Return the message that a person named. Raise `Failure` if none or several fit."""
    found = await _numbered(client, text)
    # A short text of decimal digits is a number and nothing else: an unknown number must not name another message whose
    # id begins so by chance. A longer one may be the beginning of an id.
    if len(text) >= _CHARS or not (text.isascii() and text.isdecimal()):
        recent = {one.id: one for one in (*found, *await _recent(client))}
        numbered = {one.id for one in found}
        found = [one for id, one in recent.items() if id in numbered or _begins(id, text)]
    match found:
        case [one]:
            return one
        case []:
            raise Failure(
                Exit.REFUSED,
                f"no message {text!r} is in the inbox or among the newest {_RECENT:,}",
                "'tieline inbox' and 'tieline history' show the number of each message",
                word="unknown_message",
            )
        case _:
            raise _several(text, "messages", [short_message(one) for one in found])


async def answered_by(client: "Client", messages: "Iterable[Message]") -> "dict[str, Message]":
    """Return the messages to which others refer, by their ids, so that they can be printed by their numbers.

    Only those are found that the session may see, and that are among the newest.
    """
    from tieline.client import HubError

    known = {message.id: message for message in messages}
    missing = {id for one in known.values() for id in (one.reply_to, one.supersedes) if id and id not in known}
    if missing:
        # Without an answer the ids themselves are printed.
        with contextlib.suppress(HubError):
            known |= {one.id: one for one in await client.history(limit=_ANSWERED) if one.id in missing}
    return known


async def find_with_answered(client: "Client", text: str) -> "tuple[str, dict[str, Message]]":
    """Return the hub's id of the message that a person named, and the messages to which it refers, by their ids.

    Raise `Failure` if no message or several fit. A whole id is not looked up, so the messages are not known then.
    """
    if len(text) >= _ID_CHARS:
        return await find_message_id(client, text), {}
    message = await find_message(client, text)
    return message.id, await answered_by(client, [message])


async def find_objective_id(client: "Client", text: str) -> str:
    """Return the id of the objective that a person named. Raise `Failure` if several fit.

    Return unknown text unchanged: the hub refuses it.
    """
    name = text.removeprefix(_THREAD)
    if name.startswith(_OBJECTIVE) and name.count("-") > 1:
        return name
    small = name.lower()
    page = await client.objectives(limit=_RECENT)
    ids = [one.id for one in page.objectives]
    found = [id for id in ids if short_objective(id) == small] or [id for id in ids if id.startswith(small)]
    if len(found) > 1:
        raise _several(text, "objectives", found)
    return found[0] if found else name


async def find_thread(client: "Client", text: str) -> str:
    """Return the whole name of the thread that a person named by the beginning of its id.

    Raise `Failure` if several fit. Return other text unchanged: a thread may have any name, and its first message may
    be the next one.
    """
    # The beginning has as many characters as are shown, so that no word of a person becomes an id by chance.
    if _UUID.match(text) or len(text) < _CHARS or not _BEGINNING.match(text):
        return from_prefix_id(text)
    known = await recent_threads(client)
    found = sorted(one for one in known if _UUID.match(one) and _begins(one, text))
    if text in known or not found:
        return text
    if len(found) > 1:
        raise _several(text, "threads", [to_prefix_id(id) for id in found])
    return found[0]


async def recent_threads(client: "Client") -> set[str]:
    """Return the threads of the messages in the inbox, and of the newest messages in the history."""
    return {message.thread for message in await _recent(client) if message.thread}


async def find_target(client: "Client", target: str) -> str:
    """Return a target, or the name of a conversation, in the hub's spelling.

    Objectives (`obj:ID`) and threads (`thread:ID`) may have a short id.
    """
    if target.startswith(_NAMED_THREAD):
        return f"{_NAMED_THREAD}{await find_thread(client, target.removeprefix(_NAMED_THREAD))}"
    if not target.startswith(_THREAD):
        return target
    return f"{_THREAD}{await find_objective_id(client, target)}"


def complete(beginning: str, ids: Sequence[str], what: str = "message in the inbox") -> str:
    """Return the only id in `ids` that begins with `beginning`. Raise `Failure` if there is none, or more than one.

    `what` is the word for a thing with such an id, for the text of the failure.
    """
    found = [id for id in ids if _begins(id, beginning)]
    match found:
        case [one]:
            return one
        case []:
            word = f"unknown_{what.split(maxsplit=1)[0]}"
            raise Failure(Exit.REFUSED, f"no {what} has an id that begins with {beginning!r}", word=word)
        case _:
            raise _several(beginning, "ids", [to_prefix_id(id) for id in found])


def _begins(message_id: str, beginning: str) -> bool:
    """Return true if the id begins with the text, in any spelling of the id."""
    small = beginning.lower()
    return any(
        one.lower().startswith(small) for one in (message_id, to_prefix_id(message_id), from_prefix_id(message_id))
    )


def _several(text: str, what: str, names: Sequence[str]) -> Failure:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    listed = ", ".join(names[:_NAMED_MAX])
    return Failure(Exit.USAGE, f"{text!r} fits {len(names)} {what}: {listed}{more}", word="ambiguous_id")


async def _numbered(client: "Client", text: str) -> "list[Message]":
    """Return a list with the message that has the number `text`.

    The list is empty if `text` is no number, or if the session may not see the message.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX):
        return []
    number = int(text)
    found = await client.history(after=number - 1, before=number + 1, limit=1)
    # The history of a member has no messages of a channel that the member has left, but its inbox may have some.
    return list(found) or [one for one in await _waiting(client, through=number) if one.offset == number]


async def _recent(client: "Client") -> "list[Message]":
    return [*await _waiting(client), *await client.history(limit=_RECENT)]


async def _waiting(client: "Client", through: int | None = None) -> "list[Message]":
    """Return the messages in the inbox of the session's member, oldest first.

    With `through`, stop after the page that reaches the message with this number. Stop after `_PAGES_MAX` pages, too.
    """
    if client.welcome is None or client.welcome.member is None:
        return []
    found: list[Message] = []
    after = 0
    for _ in range(_PAGES_MAX):
        page = await client.inbox(after=after, limit=_PAGE)
        found += [item.message for item in page.items]
        if page.complete or (through is not None and found and found[-1].offset >= through):
            break
        after = page.through
    return found
