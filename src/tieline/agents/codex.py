"""The client's side of Codex's app-server protocol: lines of JSON-RPC in, lines and events out.

Used by: `codex_session.py`, which owns the process and its pipes, and passes the time in. Uses: nothing; it does no
I/O.

The protocol is JSON-RPC without the `jsonrpc` field, one message per line. After `initialize` and `initialized` the
client starts or resumes a thread. A thread, in Codex, is a conversation with the model. Then the client hands over
messages for the member as input of a turn: by `turn/start` when the thread is idle, by `turn/steer` when a turn runs.
Messages that arrive within `BUNDLE_SECONDS` are handed over together, because each turn costs a whole context. Only one
hand-over is under way at a time, so that order is kept. The first hand-over waits until Codex has loaded the hub's
tools, because the agent could not answer without them.

The answer to a hand-over says only that Codex has the messages. Codex shows them to its model later, because a running
turn takes new input only after its tools have ended. When this happens, Codex notifies the client by an item
`userMessage` with the text. The next item that the model makes is the evidence that the model has received the
messages. The successful end of the turn is the evidence that the messages were handled.

A turn may end before a `turn/steer` request arrives, or another turn may run by then. The server answers with an error,
and the client hands over the same messages again: by `turn/start`, or by `turn/steer` to the other turn. While a turn
takes no input (a review, a compaction), the client waits for the end of that turn.

The server also sends requests: approve a command, approve a file change, answer a question. No person can answer them,
so the client declines. If the person who started Codex approved everything beforehand, the client accepts commands,
file changes and permissions. Calls of the hub's tools are always accepted, because the agent answers through these
tools.
"""

import re
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

import msgspec
from msgspec import Struct

BUNDLE_SECONDS = 0.2
"""Messages that arrive within this number of seconds are handed over to Codex together. Nobody notices so short a
delay."""

BUNDLE_MAX = 32
BUNDLE_CHARS_MAX = 131_072
"""Maximum number of characters that are handed over to Codex at once. `BUNDLE_MAX` is the maximum number of messages.
Further messages wait for the next hand-over, because messages must not fill a whole turn."""

WAITING_MAX = 1024
"""Maximum number of messages that wait to be handed over to Codex. The hub sends no more unacknowledged deliveries to
one session."""

TOOLS_SECONDS = 10.0
"""Longest wait, in seconds, until Codex has loaded the hub's tools. After this time messages are handed over to Codex
even without the tools."""

RETRY_SECONDS = (0.5, 2.0, 5.0)
"""Pauses, in seconds, before the retries of a hand-over of messages that Codex refused. If the last retry is refused,
the client gives up."""

SERVER_NAME = "tieline"
"""Name of Tieline's MCP server in the configuration of Codex."""

_STEERS_MAX = 3
"""Maximum number of `turn/steer` requests (input for a running turn) for the same messages. After these attempts the
messages start a new turn."""

_UNPROVED_MAX = 64
"""Maximum number of hand-overs that are remembered while there is no evidence that the model received their messages.
Messages of older hand-overs stay unseen, and the next run hands them over again."""

_ENDED_MAX = 16  # ended turns that are remembered: an answer or notification may come after the end
_METHOD_NOT_FOUND = -32601
_ACTIVE_TURN = re.compile(r"but found `?([^\s`]+)`?")

MODEL_ITEMS = frozenset(
    {
        "agentMessage",
        "reasoning",
        "plan",
        "commandExecution",
        "fileChange",
        "mcpToolCall",
        "dynamicToolCall",
        "collabAgentToolCall",
        "webSearch",
        "imageView",
        "imageGeneration",
    }
)
"""Types of items (parts of a Codex conversation) that only a model makes. Such an item proves that the model was
called. Other items do not prove it."""

QUIET = (
    "item/agentMessage/delta",
    "item/plan/delta",
    "item/reasoning/summaryTextDelta",
    "item/reasoning/summaryPartAdded",
    "item/reasoning/textDelta",
    "item/commandExecution/outputDelta",
    "item/fileChange/outputDelta",
    "turn/diff/updated",
)
"""Notifications of Codex's app-server that the client does not need. The client asks the server not to send them."""


# Events for the session.


class Ready(Struct, frozen=True):
    """Event: Codex's app-server has opened its thread (conversation with the model).

    From now on it can take messages.
    """

    thread: str


class Failed(Struct, frozen=True):
    """Event: Codex's app-server refused the `initialize` request or opened no thread. The connection cannot be used."""

    reason: str


class Seen(Struct, frozen=True):
    """Event: the model received the messages with the delivery keys `keys`, and then wrote something.

    The messages count as seen.
    """

    keys: tuple[int, ...]


class Finished(Struct, frozen=True):
    """Event: the model has seen the messages with the delivery keys `keys`, and their turn ended without a failure.

    The messages are acknowledged.
    """

    keys: tuple[int, ...]


class GivenUp(Struct, frozen=True):
    """Event: Codex refused the messages with the delivery keys `keys`, also after all retries.

    The messages stay in the inbox.
    """

    keys: tuple[int, ...]
    reason: str


class Said(Struct, frozen=True):
    """Event: the agent wrote a text. The text is printed for the person at the terminal."""

    text: str


class Used(Struct, frozen=True):
    """Event: Codex reported the token usage of its last model call. The usage is stored as the agent's activity."""

    usage: dict[str, Any]
    turn: str


class Asked(Struct, frozen=True):
    """Event: Codex asked for approval or input (`what`), and the client has answered: yes if `granted`, else no.

    The request and the answer are printed for the person at the terminal.
    """

    what: str
    granted: bool


class Trouble(Struct, frozen=True):
    """Event: Codex reported an error. The `message` is printed for the person at the terminal."""

    message: str


Event = Ready | Failed | Seen | Finished | GivenUp | Said | Used | Asked | Trouble


class _State(Enum):
    GREETING = auto()
    OPENING = auto()
    OPEN = auto()
    FAILED = auto()


class _HandOver(Struct):
    """Messages that are handed over to Codex in one request, and the progress of this hand-over."""

    keys: tuple[int, ...]
    text: str
    steers: int = 0
    refusals: int = 0
    shown: bool = False
    """True once Codex has shown the text to its model."""
    finished: bool = False
    """True if the turn that took the messages as input has ended without a failure."""


class AppServerProtocol:
    """Client side of one connection with Codex's app-server, and of its one thread (conversation with the model).

    No I/O: the caller passes received lines and the time in, and takes the lines to write and the events out.
    """

    def __init__(
        self,
        *,
        version: str,
        cwd: str,
        resume: str | None = None,
        instructions: str | None = None,
        approve: bool = False,
    ) -> None:
        self._approve = approve
        self._state = _State.GREETING
        self.thread = ""
        self._outgoing: list[bytes] = []
        self._events: list[Event] = []
        self._number = 0
        # Callbacks of requests that wait for their answers, by number.
        self._waiting: dict[int, Callable[[Any, dict[str, Any] | None], None]] = {}
        # Messages that wait for a hand-over, and the arrival time of the first one.
        self._pending: deque[tuple[int, str]] = deque()
        self._pending_since = 0.0
        # The current hand-over; true while its request waits for an answer; the time of the next retry.
        self._handing: _HandOver | None = None
        self._asked_for = False
        self._again_at: float | None = None
        # While the program loads our tools: the time until which hand-overs wait for the tools. Otherwise `None`.
        self._tools_until: float | None = None
        # The running turn; true if this turn takes input; the last ended turns, each with true if the turn failed.
        # Ended turns are kept because answers about them may come late.
        self.turn: str | None = None
        self._steerable = True
        self._ended: dict[str, bool] = {}
        # The messages that each turn took.
        self._taken: dict[str, list[int]] = {}
        # Hand-overs without evidence that the model was asked, the oldest first.
        self._unproved: deque[_HandOver] = deque(maxlen=_UNPROVED_MAX)
        self._now = 0.0
        opening: dict[str, Any] = {"cwd": cwd}
        if instructions:
            opening["developerInstructions"] = instructions
        self._opening = ("thread/resume", {"threadId": resume, **opening}) if resume else ("thread/start", opening)
        client = {"name": "tieline", "title": "Tieline", "version": version}
        capabilities = {"optOutNotificationMethods": list(QUIET)}
        self._request("initialize", {"clientInfo": client, "capabilities": capabilities}, self._greeted)

    # Input.

    @property
    def room(self) -> int:
        """Number of further messages that `offer` can queue."""
        return WAITING_MAX - len(self._pending)

    def offer(self, key: int, text: str, now: float) -> None:
        """Queue a message, to hand it over to Codex. `key` is the key of the message's delivery.

        `text` is the text for the model. `now` is the time in seconds.
        """
        assert self.room > 0, "whoever offers looks whether there is room"
        if not self._pending:
            self._pending_since = now
        self._pending.append((key, text))
        self.advance(now)

    def receive_line(self, line: bytes, now: float) -> None:
        """Handle a line that the app-server wrote.

        Skip a line that is no protocol message, because programs also print other text.
        """
        self._now = now
        try:
            message = msgspec.json.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
        match message:
            case {"method": str(method), "id": int() | str() as number}:
                self._answer(number, method, _object(message.get("params")))
            case {"method": str(method)}:
                self._notified(method, _object(message.get("params")))
            case {"id": int(number)} if number in self._waiting:
                error = message.get("error")
                self._waiting.pop(number)(message.get("result"), _object(error) if error is not None else None)
            case _:
                return
        self.advance(now)

    def advance(self, now: float) -> None:
        """Hand over queued messages to Codex, or retry a refused hand-over, if it is time.

        `now` is the time in seconds.
        """
        self._now = now
        if self._state is not _State.OPEN or self._asked_for:
            return
        if self._tools_until is not None and now < self._tools_until:
            return
        if self._handing is None:
            if not self._pending or now < self._pending_since + BUNDLE_SECONDS:
                return
            self._handing = self._bundle()
            self._unproved.append(self._handing)
        elif self._again_at is not None and now < self._again_at:
            return
        if self.turn is not None and not self._steerable:
            return
        self._again_at = None
        self._hand_over(self._handing)

    # Output.

    def next_lines(self) -> list[bytes]:
        """Remove and return the lines that the caller must write to the app-server, with their line ends."""
        lines, self._outgoing = self._outgoing, []
        return lines

    def next_events(self) -> list[Event]:
        """Remove and return the new events (`Seen`, `Said`, …), which the Codex session has to handle."""
        events, self._events = self._events, []
        return events

    def next_timeout(self, now: float) -> float | None:
        """Return the seconds until the caller must call `advance`, which hands messages over to Codex.

        Return `None` if there is nothing to do before the next line of the server or the next `offer`.
        """
        if self._state is not _State.OPEN or self._asked_for or (self.turn is not None and not self._steerable):
            return None
        if self._handing is not None:
            return None if self._again_at is None else max(0.0, self._again_at - now)
        if not self._pending:
            return None
        return max(0.0, self._pending_since + BUNDLE_SECONDS - now, (self._tools_until or now) - now)

    def interrupt(self) -> None:
        """Ask the app-server to end the running turn of the model."""
        if self.turn is not None:
            self._request(
                "turn/interrupt", {"threadId": self.thread, "turnId": self.turn}, lambda _result, _error: None
            )

    # Opening.

    def _greeted(self, _result: Any, error: dict[str, Any] | None) -> None:
        if error is not None:
            self._fail(f"it does not take our greeting: {_reason(error)}")
            return
        self._state = _State.OPENING
        self._put({"method": "initialized"})
        self._request(*self._opening, self._opened)

    def _opened(self, result: Any, error: dict[str, Any] | None) -> None:
        match result:
            case {"thread": {"id": str(thread)}}:
                self._state = _State.OPEN
                self.thread = thread
                self._events.append(Ready(thread))
            case _:
                self._fail(f"it opens no thread: {_reason(error)}")

    def _fail(self, reason: str) -> None:
        self._state = _State.FAILED
        self._events.append(Failed(reason))

    # Handing over.

    def _bundle(self) -> _HandOver:
        keys: list[int] = []
        texts: list[str] = []
        chars = 0
        while self._pending and len(keys) < BUNDLE_MAX:
            key, text = self._pending[0]
            if keys and chars + len(text) > BUNDLE_CHARS_MAX:
                break
            self._pending.popleft()
            keys.append(key)
            texts.append(text)
            chars += len(text)
        return _HandOver(tuple(keys), "\n".join(texts))

    def _hand_over(self, bundle: _HandOver) -> None:
        params: dict[str, Any] = {"threadId": self.thread, "input": [{"type": "text", "text": bundle.text}]}
        self._asked_for = True
        if self.turn is None or bundle.steers >= _STEERS_MAX:
            self._request("turn/start", params, self._started)
        else:
            bundle.steers += 1
            self._request("turn/steer", {**params, "expectedTurnId": self.turn}, self._steered)

    def _started(self, result: Any, error: dict[str, Any] | None) -> None:
        match result:
            case {"turn": {"id": str(turn)} as begun}:
                if begun.get("status", "inProgress") == "inProgress":
                    self._turn_begins(turn)
                self._took(turn)
            case _:
                self._refused(error)

    def _steered(self, result: Any, error: dict[str, Any] | None) -> None:
        if error is None:
            turn = result.get("turnId") if isinstance(result, dict) else None
            self._took(turn if isinstance(turn, str) else self.turn or "")
            return
        self._asked_for = False
        message = _reason(error)
        if "NotSteerable" in msgspec.json.encode(error.get("data")).decode() or "not steerable" in message.lower():
            self._steerable = False
        elif found := _ACTIVE_TURN.search(message):
            self._turn_begins(found[1])
        elif "no active turn" in message.lower():
            # The notification `turn/completed` tells how the turn ended.
            self.turn = None
        else:
            self._refused(error)

    def _took(self, turn: str) -> None:
        assert self._handing is not None, "an answer is to what was handed over"
        keys = self._handing.keys
        self._handing = None
        self._asked_for = False
        if turn not in self._ended:
            self._taken.setdefault(turn, []).extend(keys)
        elif not self._ended[turn]:
            self._finish(keys)

    def _refused(self, error: dict[str, Any] | None) -> None:
        assert self._handing is not None, "an answer is to what was handed over"
        self._asked_for = False
        if self._handing.refusals < len(RETRY_SECONDS):
            self._again_at = self._now + RETRY_SECONDS[self._handing.refusals]
            self._handing.refusals += 1
            return
        self._events.append(GivenUp(self._handing.keys, _reason(error)))
        if self._handing in self._unproved:
            self._unproved.remove(self._handing)
        self._handing = None

    # Notifications of the thread.

    def _notified(self, method: str, params: dict[str, Any]) -> None:
        if self.thread and params.get("threadId", self.thread) != self.thread:
            # The notification is about another thread: agents start threads of their own.
            return
        match method, params:
            case "turn/started", {"turn": {"id": str(turn)}}:
                self._turn_begins(turn)
            case "turn/completed", {"turn": {"id": str(turn)} as ended}:
                self._turn_ends(turn, failed=ended.get("status") not in ("completed", None))
            case "thread/status/changed", {"status": {"type": "idle"}}:
                self.turn = None
            case "mcpServer/startupStatus/updated", {"name": str(name), "status": str(status)} if name == SERVER_NAME:
                self._tools_until = self._now + TOOLS_SECONDS if status == "starting" else None
            case "thread/tokenUsage/updated", {"tokenUsage": {"last": dict(usage)}}:
                self._events.append(Used(usage, str(params.get("turnId") or self.turn or "")))
            case "item/started", {"item": {"type": "userMessage", "content": [{"text": str(text)}, *_]}}:
                self._is_shown(text)
            case "item/started", {"item": {"type": str(made)}} if made in MODEL_ITEMS:
                self._model_was_asked()
            case "item/completed", {"item": {"type": "agentMessage", "text": str(text)}}:
                self._events.append(Said(text))
            case "error", _:
                self._events.append(Trouble(_reason(params.get("error"))))
            case _:
                pass

    def _is_shown(self, text: str) -> None:
        for bundle in self._unproved:
            if bundle.text == text and not bundle.shown:
                bundle.shown = True
                return

    def _model_was_asked(self) -> None:
        for bundle in [one for one in self._unproved if one.shown]:
            self._unproved.remove(bundle)
            self._events.append(Seen(bundle.keys))
            if bundle.finished:
                self._events.append(Finished(bundle.keys))

    def _finish(self, keys: Sequence[int]) -> None:
        """Add a `Finished` event for the messages with these keys, because their turn has ended without a failure.

        A message without evidence that the model received it is reported later, when there is evidence.
        """
        unproved: set[int] = set()
        for bundle in self._unproved:
            if bundle.keys[0] in keys:
                bundle.finished = True
                unproved.update(bundle.keys)
        if proved := tuple(key for key in keys if key not in unproved):
            self._events.append(Finished(proved))

    def _turn_begins(self, turn: str) -> None:
        if turn not in self._ended and turn != self.turn:
            self.turn = turn
            self._steerable = True

    def _turn_ends(self, turn: str, *, failed: bool) -> None:
        if turn == self.turn:
            self.turn = None
            self._steerable = True
        self._ended[turn] = failed
        if len(self._ended) > _ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        keys = self._taken.pop(turn, [])
        if not failed:
            self._finish(keys)

    # Requests of the server.

    def _answer(self, number: int | str, method: str, params: dict[str, Any]) -> None:
        granted = self._approve
        match method:
            case "item/commandExecution/requestApproval" | "item/fileChange/requestApproval":
                result: dict[str, Any] = {"decision": "accept" if granted else "decline"}
            case "execCommandApproval" | "applyPatchApproval":
                # The method names of the first protocol version.
                result = {"decision": "approved" if granted else "denied"}
            case "item/permissions/requestApproval":
                result = {"permissions": _object(params.get("permissions")) if granted else {}, "scope": "turn"}
            case "mcpServer/elicitation/request":
                granted = _is_our_tool(params)
                result = {"action": "accept", "content": {}} if granted else {"action": "decline", "content": None}
            case "item/tool/requestUserInput" | "tool/requestUserInput":
                granted = False
                result = {"answers": {}}
            case _:
                self._put({"id": number, "error": {"code": _METHOD_NOT_FOUND, "message": "not offered here"}})
                return
        self._put({"id": number, "result": result})
        self._events.append(Asked(_asked(method, params), granted))

    # Inside.

    def _request(self, method: str, params: dict[str, Any], then: Callable[[Any, dict[str, Any] | None], None]) -> None:
        self._number += 1
        self._waiting[self._number] = then
        self._put({"method": method, "id": self._number, "params": params})

    def _put(self, message: dict[str, Any]) -> None:
        self._outgoing.append(msgspec.json.encode(message) + b"\n")


def _is_our_tool(params: dict[str, Any]) -> bool:
    """Return true if Codex asks for approval to call one of the hub's tools. The client always approves such a call."""
    about_tool = _object(params.get("_meta")).get("codex_approval_kind") == "mcp_tool_call"
    return about_tool and params.get("serverName") == SERVER_NAME


def _asked(method: str, params: dict[str, Any]) -> str:
    """Return a request of the app-server (run a command, change files…) as text on one line, for the person."""
    match params.get("command"):
        case str(command):
            return f"to run {command!r}"
        case list(command):
            return f"to run {' '.join(map(str, command))!r}"
        case _:
            if method in ("item/fileChange/requestApproval", "applyPatchApproval"):
                return "to change files"
            return f"{method}: {str(params.get('message') or params.get('reason') or '')[:200]}"


def _reason(error: Any) -> str:
    message = _object(error).get("message")
    return message if isinstance(message, str) and message else "it does not say why"


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
