"""A tool: a name, a description that knows what is open now, checked arguments, and what it does on the hub.

Above: the sets of tools in this folder, and whatever serves them. Below: the SDK. It refuses to know MCP: the MCP
server and the runner carry tools over their own wires. What a tool answers is read by a model: other people's words in
it are framed (`agents.framing`), or in JSON escaped as they are in a frame.
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
"""Of one answer: what a model can still read. Longer ones say what was left out."""

OPEN_SHOWN_MAX = 10
"""Open objectives in a description; the rest is counted."""

_TITLE_CHARS = 80
_OUTCOME_CHARS = 60
_ERROR_CHARS = 2_000


class Arguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The root of all arguments."""


class Nothing(Arguments, frozen=True):
    """No arguments."""


class Answer(Struct, frozen=True):
    """What a tool answers."""

    text: str
    failed: bool = False
    data: dict[str, Any] | None = None
    """The same for a program."""


def held_note(accepted: Accepted) -> str:
    """The note for an agent whose message is held: neither waiting for an answer nor sending again helps."""
    return f" ({accepted.held}; do not send it again)" if accepted.held else ""


@dataclass(frozen=True)
class ToolContext:
    """The session, member and bookkeeping of one tool call."""

    client: Client
    member: str
    now_ms: int
    wire_id: str
    """Makes a message that is sent twice, because the hub went away in between, one message."""
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
    """Claims that the hub left unanswered, of this call or of earlier ones."""

    def frame(self, message: Message) -> str:
        """A message as the answer shows it."""
        self.shown.append(message.id)
        return self.framed(message)

    def framed(self, message: Message) -> str:
        """A message as an answer would show it."""
        return channel_text(message, member=self.member, now_ms=self.now_ms, channels=self.channels)


Describe = Callable[[Open], str]


@dataclass(frozen=True)
class Tool:
    """One thing that an agent can do."""

    name: str
    description: str | Describe
    arguments: type[Arguments]
    run: Callable[[ToolContext, Any], Awaitable[Answer]]
    """Is given arguments of that type."""
    permission: str = ""
    """Only offered to who has it."""
    repeatable: bool = True
    """Whether doing it again does nothing twice."""

    def described(self, open_objectives: Open) -> str:
        """What the agent reads about it now."""
        return self.description if isinstance(self.description, str) else self.description(open_objectives)

    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments, as short as it can be said."""
        return _schema_of(self.arguments)

    async def call(self, context: ToolContext, arguments: Mapping[str, Any] | None) -> Answer:
        """Do it. What is wrong with the arguments, and what the hub refuses, is an answer."""
        try:
            checked = msgspec.convert(dict(arguments or {}), self.arguments)
        except msgspec.ValidationError as error:
            return fail(f"wrong arguments: {error}")
        try:
            return await self.run(context, checked)
        except HubRefused as error:
            return fail(f"refused ({error.code.value}): {error.message}")


def fail(text: str) -> Answer:
    """An answer that says why not."""
    return Answer(plain_text(text[:_ERROR_CHARS]), failed=True)


def plain_text(text: str) -> str:
    """Text of ours that may repeat what somebody else wrote."""
    return escape(neutral(text))


def json_answer(value: Any, *, taken: bool = False) -> Answer:
    """An answer in JSON, whose texts are escaped as in a frame: programs differ in which form they show a model.

    A long one is refused, but for what was `taken` to be told, and is told by nobody else.
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
    """As many parts as a model can read, at least one; and how many are left out."""
    listed = list(parts)
    room = ANSWER_CHARS_MAX
    for index, part in enumerate(listed):
        room -= len(part) + 1
        if room < 0 and index:
            return listed[:index], len(listed) - index
    return listed, 0


def lines_answer(lines: Iterable[str], *, empty: str) -> Answer:
    """An answer of lines, the first of which count most."""
    shown, left = fit(lines)
    more = [f"and {left} more"] if left else []
    return Answer("\n".join([*shown, *more]) or empty)


def list_open(objectives: Open) -> str:
    """Open objectives in a few lines, for a description or an answer."""
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
    """Take what waits, oldest first and no more than a model can read; and how many still wait, in words.

    `takes` says which scopes are for here, and `told` how a message is told, if not as the context frames it.
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
            break  # what is ours must be shown even if the hub goes away
        if mine is not None:
            taken.append(mine)
    context.taken.extend(item.message.id for item in taken)
    left = len(waiting) - looked_at
    # Of a long inbox only the beginning was looked at.
    bound = "" if complete else "at least "
    return taken, f"{bound}{left} more wait" if left else ""


class Unanswered(NamedTuple):
    """A claim that the hub did not answer before it went away, and the session that claimed."""

    item: Item
    session: str


async def _resolve(context: ToolContext) -> list[Item]:
    """Messages that are on record as taken by a claim which was not answered: nobody else will show them."""
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
    """A property without what a reader can do without."""
    return {key: value for key, value in part.items() if key != "title" and not (key == "default" and not value)}
