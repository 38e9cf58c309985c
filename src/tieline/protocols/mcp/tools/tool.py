"""A tool: a name, a description that may list the open objectives, checked arguments, and a function on the hub.

Used by: the tool sets, and the agent session, which serves them. Uses: a client of the hub's own protocol. A tool does
not know if it is called over HTTP, over stdio or over a runner's socket. A model reads the answer of a tool. So other
people's words in an answer are put between tags (`framing`). In JSON they are escaped in the same way.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from tieline.contract.text import neutral
from tieline.protocols.mcp.forwarder import Takes, anywhere
from tieline.protocols.mcp.framing import attribute, channel_text, escape
from tieline.protocols.mcp.open_objectives import Open
from tieline.wire.native.client import Client
from tieline.wire.native.errors import Disconnected, HubRefused
from tieline.wire.native.frames import Accepted, Item, Message

ANSWER_CHARS_MAX = 60_000
"""Largest number of characters of a tool's answer, so that it does not fill the model's context. A longer answer is cut
with a note, or the call fails."""

OPEN_SHOWN_MAX = 10
"""Largest number of open objectives that the description of a tool lists. The other objectives are only counted."""

_TITLE_CHARS = 80
_OUTCOME_CHARS = 60
_ERROR_CHARS = 2_000


class Arguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Base class for the arguments of a tool, with one field for each argument. Unknown arguments are refused."""


class Nothing(Arguments, frozen=True):
    """Arguments of a tool that takes no arguments."""


class Answer(Struct, frozen=True):
    """Answer of a tool: a text for the model, and perhaps data for the agent's program."""

    text: str
    failed: bool = False
    data: dict[str, Any] | None = None
    """The answer as structured data, for the agent's program."""
    claims: "tuple[Unanswered, ...]" = ()
    """The messages that the call took from the inbox. If the answer is lost, the next call shows them again."""
    named: tuple[str, ...] = ()
    """Ids of messages that the agent named in the call."""


def held_note(accepted: Accepted) -> str:
    """Return a note for the agent if its message is held (not delivered yet), else an empty text.

    The note says why the message is held, and that the agent must not send it again.
    """
    return f" ({accepted.held}; do not send it again)" if accepted.held else ""


@dataclass(frozen=True)
class ToolContext:
    """Everything that one tool call needs: the session, the member, and lists of the messages that the call used."""

    client: Client
    member: str
    now_ms: int
    wire_id: str
    """Id for the message that the tool sends. If the hub goes away and the message is sent again, the hub recognizes
    the id and stores only one message."""
    open: Open = ()
    channels: Mapping[str, str] = field(default_factory=dict)
    takes: Takes = anywhere
    shown: list[str] = field(default_factory=list)
    """Ids of messages that the answer shows."""
    taken: list[str] = field(default_factory=list)
    """Ids of messages that were taken from the inbox."""
    named: list[str] = field(default_factory=list)
    """Ids of messages that the agent named in the call, for example the message that it answers."""
    unanswered: list["Unanswered"] = field(default_factory=list)
    """Claims, of this call or of earlier calls, whose messages were perhaps not shown to the agent. The hub did not
    answer the claim, or the answer of the call was lost."""
    claims: list["Unanswered"] = field(default_factory=list)
    """Claims of the messages that this call took from the inbox."""
    waited_seconds: float = 0.0
    """Time that the call waited already, before the hub went away and the call was repeated."""
    arrivals: "Callable[[], AbstractAsyncContextManager[asyncio.Event]]" = field(
        default=lambda: nullcontext(asyncio.Event())
    )
    """Callback that returns a context manager. The context manager yields an event that is set whenever a message for
    the agent arrives."""

    def frame(self, message: Message) -> str:
        """Return the text that an agent sees for a message: the message inside its tags (`framing`).

        Record in `shown` that the answer shows the message.
        """
        self.shown.append(message.id)
        return self.framed(message)

    def framed(self, message: Message) -> str:
        """Return the text that an agent sees for a message: the message inside its tags (`framing`).

        The message is not added to `shown`.
        """
        return channel_text(message, member=self.member, now_ms=self.now_ms, channels=self.channels)


Describe = Callable[[Open], str]


@dataclass(frozen=True)
class Tool:
    """One tool that an agent's model can call: its name, description, arguments and function."""

    name: str
    description: str | Describe
    arguments: type[Arguments]
    run: Callable[[ToolContext, Any], Awaitable[Answer]]
    """Function of the tool. It is called with the context and with arguments of the type `arguments`."""
    permission: str = ""
    """If set, the tool is listed only for members that have this permission."""
    repeatable: bool = True
    """True if the tool may be called again with the same arguments, because the second call has no second effect."""

    def described(self, open_objectives: Open) -> str:
        """Return the description of the tool for the model. It may list the objectives that are open now."""
        return self.description if isinstance(self.description, str) else self.description(open_objectives)

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments, as short as possible."""
        return _schema_of(self.arguments)

    async def call(self, context: ToolContext, arguments: Mapping[str, Any] | None) -> Answer:
        """Call the tool and return its answer. Wrong arguments and refusals of the hub become failed answers."""
        try:
            checked = msgspec.convert(dict(arguments or {}), self.arguments)
        except msgspec.ValidationError as error:
            return fail(f"wrong arguments: {error}. {self.name} takes {self._fields()}")
        try:
            return await self.run(context, checked)
        except HubRefused as error:
            return fail(f"refused ({error.code.value}): {error.message}")

    def _fields(self) -> str:
        found = self.schema()
        needed = found.get("required", ())
        return ", ".join(name if name in needed else f"[{name}]" for name in found["properties"]) or "no arguments"


def fail(text: str) -> Answer:
    """Return the answer of a tool call that failed. `text` is the reason."""
    return Answer(plain_text(text[:_ERROR_CHARS]), failed=True)


def plain_text(text: str) -> str:
    """Return a text escaped for an answer, because it may contain other people's words."""
    return escape(neutral(text))


def json_answer(value: Any, *, taken: bool = False) -> Answer:
    """Return an answer with a value, both as JSON text and as data. A program shows one of the two.

    All texts are escaped. If the text is too long, return a failed answer. With `taken`, return even a text that is too
    long, because its messages were taken from the inbox and no later call would show them.
    """
    plain = _framed(msgspec.to_builtins(value))
    text = msgspec.json.encode(plain).decode()
    if len(text) <= ANSWER_CHARS_MAX:
        return Answer(text, data=plain)
    return Answer(text) if taken else fail(f"the answer has {len(text):,} characters: ask for less")


def _framed(value: Any) -> Any:
    match value:
        case str():
            return escape(neutral(value))
        case list() | tuple():
            return [_framed(part) for part in value]
        case dict():
            return {_framed(key): _framed(part) for key, part in value.items()}
        case _:
            return value


def fit(parts: Iterable[str]) -> tuple[list[str], int]:
    """Return as many of the texts in `parts` as fit in one answer, at least one, and the number that is left out."""
    listed = list(parts)
    room = ANSWER_CHARS_MAX
    for index, part in enumerate(listed):
        room -= len(part) + 1
        if room < 0 and index:
            return listed[:index], len(listed) - index
    return listed, 0


def lines_answer(lines: Iterable[str], *, empty: str) -> Answer:
    """Return an answer that shows these lines. Lines that do not fit are only counted.

    `empty` is the text of the answer if there are no lines.
    """
    shown, left = fit(lines)
    more = [f"and {left} more"] if left else []
    return Answer("\n".join([*shown, *more]) or empty)


def list_open(objectives: Open) -> str:
    """Return the open objectives as a few lines of text, for a description or an answer."""
    if not objectives:
        return "You have no open objectives."
    lines = [f"Your open objectives ({len(objectives)}):"]
    lines += [
        f"- {one.id} [{one.status}] {attribute(one.title[:_TITLE_CHARS])} → {attribute(one.outcome[:_OUTCOME_CHARS])}"
        for one in objectives[:OPEN_SHOWN_MAX]
    ]
    if len(objectives) > OPEN_SHOWN_MAX:
        lines.append(f"- and {len(objectives) - OPEN_SHOWN_MAX} more")
    return "\n".join(lines)


async def claim_some(
    context: ToolContext, limit: int, takes: Takes | None = None, told: Callable[[Message], str] | None = None
) -> tuple[Sequence[Item], str]:
    """Claim waiting messages, oldest first: at most `limit`, and as many as fit in an answer.

    Returns the claimed messages, and a text that says how many messages still wait. `takes` selects messages by scope.
    `told` returns the text that the agent sees for a message. By default, it is the message inside its tags
    (`framing`).
    """
    takes, told = takes or context.takes, told or context.framed
    waiting: list[Item] = []
    after, complete = 0, False
    while not complete and len(waiting) < _PEEKED_MAX:
        page = await context.client.inbox(after=after, limit=_PAGE)
        waiting += [item for item in page.items if takes(item.message.scope)]
        after, complete = page.through, page.complete
    taken = await _resolve(context)
    room = ANSWER_CHARS_MAX
    looked_at = 0
    assert context.client.welcome is not None, "an open session was welcomed"
    session = context.client.welcome.session
    for item in waiting[:limit]:
        room -= len(told(item.message))
        if room < 0 and taken:
            break
        looked_at += 1
        claim = Unanswered(item, session)
        try:
            mine = await context.client.claim(item.message.id)
        except Disconnected:
            context.unanswered.append(claim)
            if not taken:
                raise
            break  # claimed messages must be shown even if the hub goes away
        except asyncio.CancelledError:
            # The agent's program does not want the answer any more.
            context.unanswered.extend((*context.claims, claim))
            context.claims.clear()
            raise
        if mine is not None:
            taken.append(mine)
            context.claims.append(claim)
    context.taken.extend(item.message.id for item in taken)
    left = len(waiting) - looked_at
    # Only the beginning of a long inbox was read.
    bound = "" if complete else "at least "
    return taken, f"{bound}{left} more wait" if left else ""


class Unanswered(NamedTuple):
    """A claim whose message was perhaps not shown to the agent. `session` is the session that made the claim."""

    item: Item
    session: str


async def _resolve(context: ToolContext) -> list[Item]:
    """Return the messages that earlier claims took from the inbox and that were perhaps not shown to the agent.

    The receipts of the messages show which claims succeeded. The current call must show these messages, because no
    other call will.
    """
    found: list[tuple[Unanswered, bool]] = []
    for claim in tuple(context.unanswered):
        steps = [step for receipt in await context.client.receipts(claim.item.message.id) for step in receipt.steps]
        found.append((claim, any(step.state == "acked" and step.session == claim.session for step in steps)))
    # Change the lists only now, because the call can be cancelled at each request above. Another call may have removed
    # a claim meanwhile.
    ours: list[Item] = []
    for claim, is_ours in found:
        if claim in context.unanswered:
            context.unanswered.remove(claim)
            if is_ours:
                ours.append(claim.item)
                context.claims.append(claim)
    return ours


_PAGE = 100
_PEEKED_MAX = 1_000  # a larger backlog is read in several calls


def _schema_of(arguments: type[Arguments]) -> dict[str, Any]:
    whole = msgspec.json.schema(arguments)
    found = whole["$defs"][arguments.__name__]
    properties = {name: _short(part) for name, part in found.get("properties", {}).items()}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if found.get("required"):
        schema["required"] = found["required"]
    return schema


def _short(part: dict[str, Any]) -> dict[str, Any]:
    """Return a property of a JSON schema without its title and without an empty default."""
    return {key: value for key, value in part.items() if key != "title" and not (key == "default" and not value)}
