"""Frames between a runner and the MCP server that its agent starts: one JSON object a line.

Above: `agents.mcp_server`, which an agent starts as its MCP server, and the runner, which started the agent and has the
session with the hub. Below: nothing; it does no I/O. A request of the agent goes to the runner under a number and comes
back answered under the same; what the runner pushes is a notification that the MCP server passes on as it is.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

SOCKET_VARIABLE = "AC7_RUNNER_SOCKET"
"""Where the runner that started the agent listens; without it the MCP server talks to the hub itself."""

LINE_BYTES_MAX = 1024 * 1024
"""One frame: a page of tools or of messages, never a document."""


class Frame(Struct, frozen=True, omit_defaults=True, tag_field="kind"):
    """The root of all frames; `kind` says which."""


class McpRequest(Frame, frozen=True, omit_defaults=True, tag="mcp_request"):
    """The MCP server asks what the agent asked."""

    id: int | str
    method: str
    params: dict[str, Any] | None = None


class Fault(Struct, frozen=True, omit_defaults=True):
    """Why there is no result, in JSON-RPC's words."""

    message: str
    code: int = -32603
    data: Any = None


class McpResponse(Frame, frozen=True, omit_defaults=True, tag="mcp_response"):
    """The runner answers: a result, or why there is none."""

    id: int | str
    result: dict[str, Any] | None = None
    error: Fault | None = None


class McpNotification(Frame, frozen=True, omit_defaults=True, tag="mcp_notification"):
    """The runner has news for the agent."""

    method: str
    params: dict[str, Any] | None = None


class Shutdown(Frame, frozen=True, omit_defaults=True, tag="shutdown"):
    """The connection ends on purpose."""

    reason: str = ""


class Error(Frame, frozen=True, omit_defaults=True, tag="error"):
    """The other side said what cannot be understood."""

    message: str


AnyFrame = McpRequest | McpResponse | McpNotification | Shutdown | Error


class BadLine(ValueError):
    """A line is no frame, or longer than a frame may be."""


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyFrame] = msgspec.json.Decoder(AnyFrame)


def encode(frame: AnyFrame) -> bytes:
    """A frame as a line. Raises `BadLine` when it is too long."""
    line = _encoder.encode(frame) + b"\n"
    if len(line) > LINE_BYTES_MAX:
        raise BadLine(f"a frame of {len(line)} bytes is longer than {LINE_BYTES_MAX}")
    return line


class LineBuffer:
    """Bytes in, frames out. After a `BadLine` the connection cannot go on."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def receive_data(self, data: bytes) -> None:
        """Take what came."""
        self._bytes += data

    def next_frames(self) -> Iterator[AnyFrame]:
        """Frames that are whole; the rest of a line waits for more. Raises `BadLine`."""
        while (end := self._bytes.find(b"\n")) >= 0:
            line = bytes(self._bytes[:end])
            del self._bytes[: end + 1]
            if len(line) >= LINE_BYTES_MAX:
                raise BadLine(f"a line of {len(line)} bytes is longer than {LINE_BYTES_MAX}")
            if line.strip():
                yield decode(line)
        if len(self._bytes) >= LINE_BYTES_MAX:
            raise BadLine(f"a line is longer than {LINE_BYTES_MAX} bytes")


def decode(line: bytes) -> AnyFrame:
    """One line. Raises `BadLine`."""
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(f"not a frame: {error}") from error
