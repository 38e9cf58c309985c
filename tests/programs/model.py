"""Test double for a model: an HTTP server that answers agent programs by a script.

`with ScriptedModel(Line("hello", call=("send", {...})), Line("sent", say="done")) as model:` serves Anthropic's
`/v1/messages`, OpenAI's `/v1/responses` and Gemini's `generateContent` on loopback. The server answers each request
with the first line whose pattern is found in the new text: everything after the model's last answer. The server records
every request, so that a test can check what a model gets, and when.
"""

import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from msgspec import Struct

Json = dict[str, Any]

OTHERWISE = "nothing to do"
"""Answer of the scripted model if no line matches."""


class Line(Struct, frozen=True):
    """A line of the script of a `ScriptedModel`: if the pattern `when` matches the new text, say a text or call a tool.

    Texts in `say` and in the tool's arguments may contain groups of the pattern, such as `{id}`.
    """

    when: str
    say: str = ""
    call: tuple[str, Json] | None = None
    refuse: bool = False
    """If true, refuse the request as wrong, so that the program's turn fails."""


class Asked(Struct, frozen=True):
    """Record of one request that a program sent to the scripted model."""

    at: float
    """Time of the request, by the monotonic clock in seconds."""
    new: str
    """Text after the model's last answer: prompts, reminders, results of tools."""
    tools: tuple[str, ...]
    """Names of the tools that the program offers to the model."""
    body: Json


class _Answer(Struct, frozen=True):
    text: str
    tool: str = ""
    arguments: Json = {}
    refuse: bool = False


class ScriptedModel:
    """Test double for a model: an HTTP server on a free port of loopback, which answers by a script."""

    def __init__(self, *lines: Line) -> None:
        self.lines = list(lines)
        self.asked: list[Asked] = []
        # Requests that no interface of ours serves: a program asked for more than the script knows.
        self.unknown: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"model": self}))
        self._server.daemon_threads = True
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Base URL of the server."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def told(self, text: str) -> list[Asked]:
        """Return the recorded requests whose new text contains `text`."""
        return [one for one in self.asked if text in one.new]

    def answer(self, body: Json, new: str, tools: tuple[str, ...]) -> _Answer:
        """Record a request. Return the answer of the first line of the script that matches it."""
        with self._lock:
            self.asked.append(Asked(time.monotonic(), new, tools, body))
        for line in self.lines:
            found = re.search(line.when, new, re.DOTALL)
            if found is None:
                continue
            groups = {name: value or "" for name, value in found.groupdict().items()}
            if line.call is None:
                return _Answer(_filled(line.say, groups), refuse=line.refuse)
            name = _offered(line.call[0], tools)
            if name is not None:
                return _Answer(_filled(line.say, groups), name, _filled(line.call[1], groups))
        return _Answer(OTHERWISE)


def _filled(value: Any, groups: dict[str, str]) -> Any:
    """Return `value` with each `{name}` in its texts replaced by the group of the pattern with this name."""
    if isinstance(value, str):
        for name, text in groups.items():
            value = value.replace(f"{{{name}}}", text)
        return value
    if isinstance(value, dict):
        return {key: _filled(each, groups) for key, each in value.items()}
    return value


def _offered(name: str, tools: tuple[str, ...]) -> str | None:
    """Return the name under which a program offers a tool, or `None`. Programs put the MCP server's name before it."""
    return next((tool for tool in tools if tool == name or re.search(rf"(?:__|[._]){re.escape(name)}$", tool)), None)


def _texts(value: Any) -> Iterator[str]:
    """Yield every text inside a content block, in any form. Leave out types, roles and ids."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            if key not in ("type", "role", "id", "tool_use_id", "call_id", "signature"):
                yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


class _Handler(BaseHTTPRequestHandler):
    model: ScriptedModel
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Do nothing, so that the server writes no request log to the test's output."""

    def do_HEAD(self) -> None:
        self._send(200, b"", "text/plain")

    def do_GET(self) -> None:
        if "/models" in self.path:
            self._send_json({"data": [], "models": [], "has_more": False})
        else:
            self._refuse()

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.partition("?")[0]
        try:
            body: Json = json.loads(raw) if raw else {}
        except ValueError:
            self._refuse()
            return
        if path.endswith("/v1/messages"):
            self._messages(body)
        elif path.endswith(("/count_tokens", ":countTokens")):
            self._send_json({"input_tokens": 10, "totalTokens": 10})
        elif path.endswith("/responses"):
            self._responses(body)
        elif path.endswith((":streamGenerateContent", ":generateContent")):
            self._gemini(body, stream="stream" in path)
        else:
            self._refuse()

    # Anthropic.

    def _messages(self, body: Json) -> None:
        turns: list[Json] = body.get("messages", [])
        spoken = max((place for place, turn in enumerate(turns) if turn["role"] == "assistant"), default=-1)
        new = "\n".join(_texts([turn["content"] for turn in turns[spoken + 1 :]]))
        answer = self.model.answer(body, new, tuple(tool["name"] for tool in body.get("tools") or ()))
        blocks: list[Json] = []
        if answer.text or not answer.tool:
            blocks.append({"type": "text", "text": answer.text})
        if answer.tool:
            blocks.append(
                {"type": "tool_use", "id": f"toolu_{len(self.model.asked)}", "name": answer.tool}
                | {"input": answer.arguments}
            )
        message = {
            "id": f"msg_{len(self.model.asked)}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", "scripted"),
            "content": blocks,
            "stop_reason": "tool_use" if answer.tool else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 10},
        }
        if not body.get("stream"):
            self._send_json(message)
            return
        events: list[Json] = [{"type": "message_start", "message": message | {"content": [], "stop_reason": None}}]
        for index, block in enumerate(blocks):
            if block["type"] == "text":
                start, delta = block | {"text": ""}, {"type": "text_delta", "text": block["text"]}
            else:
                start = block | {"input": {}}
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            events += [
                {"type": "content_block_start", "index": index, "content_block": start},
                {"type": "content_block_delta", "index": index, "delta": delta},
                {"type": "content_block_stop", "index": index},
            ]
        events += [
            {
                "type": "message_delta",
                "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None},
                "usage": {"output_tokens": 10},
            },
            {"type": "message_stop"},
        ]
        self._send_events(events)

    # OpenAI.

    def _responses(self, body: Json) -> None:
        given = body.get("input", [])
        items: list[Json] = given if isinstance(given, list) else [{"role": "user", "content": given}]
        ours = ("function_call", "reasoning")
        spoken = max(
            (n for n, item in enumerate(items) if item.get("role") == "assistant" or item.get("type") in ours),
            default=-1,
        )
        new = "\n".join(_texts(items[spoken + 1 :]))
        tools: dict[str, str] = {}
        for tool in body.get("tools") or ():
            for inner in tool.get("tools", [tool]):
                name = inner.get("name", "")
                tools[f"{tool['name']}__{name}" if inner is not tool else name] = name
        answer = self.model.answer(body, new, tuple(tools))
        if answer.refuse:
            self._send(400, b'{"error":{"message":"refused by the script"}}', "application/json")
            return
        number = len(self.model.asked)
        if answer.tool:
            namespace, _, _ = answer.tool.rpartition("__")
            item: Json = {
                "type": "function_call",
                "id": f"fc_{number}",
                "call_id": f"call_{number}",
                "name": tools[answer.tool],
                "arguments": json.dumps(answer.arguments),
            }
            if tools[answer.tool] != answer.tool:
                item["namespace"] = namespace
        else:
            content = [{"type": "output_text", "text": answer.text, "annotations": []}]
            item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": content}
        response: Json = {"id": f"resp_{number}", "object": "response", "status": "completed", "output": [item]}
        response["usage"] = {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 10,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 20,
        }
        self._send_events(
            [
                {"type": "response.created", "response": response | {"status": "in_progress", "output": []}},
                {"type": "response.output_item.done", "output_index": 0, "item": item},
                {"type": "response.completed", "response": response},
            ]
        )

    # Gemini.

    def _gemini(self, body: Json, *, stream: bool) -> None:
        turns: list[Json] = body.get("contents", [])
        spoken = max((place for place, turn in enumerate(turns) if turn.get("role") == "model"), default=-1)
        new = "\n".join(_texts([turn.get("parts") for turn in turns[spoken + 1 :]]))
        declared = [one for tool in body.get("tools") or () for one in tool.get("functionDeclarations", ())]
        answer = self.model.answer(body, new, tuple(one["name"] for one in declared))
        parts: list[Json] = [{"text": answer.text}] if answer.text or not answer.tool else []
        if answer.tool:
            parts.append({"functionCall": {"name": answer.tool, "args": answer.arguments}})
        whole = {
            "candidates": [{"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 10, "totalTokenCount": 20},
            "modelVersion": "scripted",
        }
        if stream:
            self._send_events([whole], named=False)
        else:
            self._send_json(whole)

    # HTTP.

    def _send_events(self, events: list[Json], *, named: bool = True) -> None:
        lines = (f"event: {one['type']}\n" if named else "" for one in events)
        text = "".join(f"{head}data: {json.dumps(one)}\n\n" for head, one in zip(lines, events, strict=True))
        self._send(200, text.encode(), "text/event-stream")

    def _send_json(self, value: Json) -> None:
        self._send(200, json.dumps(value).encode(), "application/json")

    def _refuse(self) -> None:
        self.model.unknown.append(f"{self.command} {self.path}")
        self._send(
            404,
            b'{"type":"error","error":{"type":"not_found_error","message":"not in the script"}}',
            "application/json",
        )

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
