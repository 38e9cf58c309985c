"""A tool: a name, a description that may list the open objectives, checked arguments, and a function on the hub.

Above: the tool sets, and the agent session, which serves them. Below: the SDK. It refuses to know MCP: the MCP server
and the runner carry tools over their own wires. A model reads the answer of a tool. So other people's words in an
answer are framed (`agents.framing`). In JSON they are escaped as in a frame.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from tieline.agents.forwarder import Takes, anywhere
from tieline.agents.framing import attribute, channel_text, escape
from tieline.agents.open_objectives import Open
from tieline.client import Accepted, Client, Disconnected, HubRefused, Item, Message
from tieline.contract.text import neutral

ANSWER_CHARS_MAX = 60_000
"""Characters of one answer: as many as a model can still read. A longer answer is cut and says so, or is refused."""

OPEN_SHOWN_MAX = 10
"""Open objectives that a description lists. The rest is only counted."""

_TITLE_CHARS = 80
_OUTCOME_CHARS = 60
_ERROR_CHARS = 2_000


class Arguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The root of all arguments."""


class Nothing(Arguments, frozen=True):
    """No arguments."""


class Answer(Struct, frozen=True):
    """The answer of a tool."""

    text: str
    failed: bool = False
    data: dict[str, Any] | None = None
    """The answer as structured data, for a program."""


def held_note(accepted: Accepted) -> str:
    """The note for an agent whose message is held: to wait for an answer or to send again does not help."""
    return f" ({accepted.held}; do not send it again)" if accepted.held else ""


@dataclass(frozen=True)
class ToolContext:
    """The session, member and bookkeeping of one tool call."""

    client: Client
    member: str
    now_ms: int
    wire_id: str
    """Idempotency key: if the hub goes away and the message is sent again, the hub stores only one message."""
    open: Open = ()
    channels: Mapping[str, str] = field(default_factory=dict)
    takes: Takes = anywhere
    shown: list[str] = field(default_factory=list)
    """Ids of messages that the answer shows."""
    taken: list[str] = field(default_factory=list)
    """Ids of messages that were taken from the inbox."""
    named: list[str] = field(default_factory=list)
    """Ids of messages that the agent named."""
    unanswered: list["Unanswered"] = field(default_factory=list)
    """Claims without an answer from the hub, of this call or of earlier calls."""

    def frame(self, message: Message) -> str:
        """Frame a message for the answer, and record that the answer shows it."""
        self.shown.append(message.id)
        return self.framed(message)

    def framed(self, message: Message) -> str:
        """Frame a message without recording it as shown."""
        return channel_text(message, member=self.member, now_ms=self.now_ms, channels=self.channels)


Describe = Callable[[Open], str]


@dataclass(frozen=True)
class Tool:
    """One tool of an agent."""

    name: str
    description: str | Describe
    arguments: type[Arguments]
    run: Callable[[ToolContext, Any], Awaitable[Answer]]
    """Called with the context and with arguments of the type `arguments`."""
    permission: str = ""
    """If set, the tool is listed only for members with this permission."""
    repeatable: bool = True
    """True if a repeated call has no second effect."""

    def described(self, open_objectives: Open) -> str:
        """The description that the agent reads now."""
        return self.description if isinstance(self.description, str) else self.description(open_objectives)

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments, as short as possible."""
        return _schema_of(self.arguments)

    async def call(self, context: ToolContext, arguments: Mapping[str, Any] | None) -> Answer:
        """Call the tool. Wrong arguments and refusals of the hub become failed answers."""
        try:
            checked = msgspec.convert(dict(arguments or {}), self.arguments)
        except msgspec.ValidationError as error:
            return fail(f"wrong arguments: {error}")
        try:
            return await self.run(context, checked)
        except HubRefused as error:
            return fail(f"refused ({error.code.value}): {error.message}")


def fail(text: str) -> Answer:
    """A failed answer with the reason."""
    return Answer(plain_text(text[:_ERROR_CHARS]), failed=True)


def plain_text(text: str) -> str:
    """Escape a text of ours that may contain other people's words."""
    return escape(neutral(text))


def json_answer(value: Any, *, taken: bool = False) -> Answer:
    """An answer as JSON text and as data, with all texts escaped. Programs show a model one form or the other.

    A too long answer is refused, unless its messages were `taken`: nothing else will show taken messages again.
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
    """As many parts as fit in an answer, at least one; and the number of parts that are left out."""
    listed = list(parts)
    room = ANSWER_CHARS_MAX
    for index, part in enumerate(listed):
        room -= len(part) + 1
        if room < 0 and index:
            return listed[:index], len(listed) - index
    return listed, 0


def lines_answer(lines: Iterable[str], *, empty: str) -> Answer:
    """An answer made of lines. If the answer is too long, the last lines are left out and counted."""
    shown, left = fit(lines)
    more = [f"and {left} more"] if left else []
    return Answer("\n".join([*shown, *more]) or empty)


def list_open(objectives: Open) -> str:
    """The open objectives as a few lines, for a description or an answer."""
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
    """Claim waiting messages, oldest first, as many as fit in an answer. Also returns, as text, how many still wait.

    `takes` selects messages by scope. `told` turns a message into text, by default as the context frames it.
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
    for item in waiting[:limit]:
        room -= len(told(item.message))
        if room < 0 and taken:
            break
        looked_at += 1
        try:
            mine = await context.client.claim(item.message.id)
        except Disconnected:
            assert context.client.welcome is not None, "an open session was welcomed"
            context.unanswered.append(Unanswered(item, context.client.welcome.session))
            if not taken:
                raise
            break  # claimed messages must be shown even if the hub goes away
        if mine is not None:
            taken.append(mine)
    context.taken.extend(item.message.id for item in taken)
    left = len(waiting) - looked_at
    # Only the beginning of a long inbox was read.
    bound = "" if complete else "at least "
    return taken, f"{bound}{left} more wait" if left else ""


class Unanswered(NamedTuple):
    """A claim that the hub did not answer before the hub went away, and the session of the claim."""

    item: Item
    session: str


async def _resolve(context: ToolContext) -> list[Item]:
    """Messages that an unanswered claim did take, by their receipts. No other session will show these messages."""
    ours: list[Item] = []
    while context.unanswered:
        item, session = context.unanswered[0]
        steps = [step for receipt in await context.client.receipts(item.message.id) for step in receipt.steps]
        context.unanswered.pop(0)
        if any(step.state == "acked" and step.session == session for step in steps):
            ours.append(item)
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
    """A property of the schema without its title and without an empty default."""
    return {key: value for key, value in part.items() if key != "title" and not (key == "default" and not value)}
