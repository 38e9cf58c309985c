"""Frames (JSON objects, one per line) between a runner and the MCP server that its agent starts.

Used by: `agents.mcp_server`, which an agent starts as its MCP server, and the runner, which started the agent and has
the session with the hub. Uses: nothing; it does no I/O. A request of the agent goes to the runner with a number, and
the answer has the same number. The runner pushes notifications, and the MCP server passes them on unchanged.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

SOCKET_VARIABLE = "TIELINE_RUNNER_SOCKET"
"""Environment variable with the path of the runner's socket. Without this variable the MCP server opens its own session
with the hub."""

CANCELLED_METHOD = "notifications/cancelled"
"""Method of the notification by which the MCP server cancels a request whose answer the agent no longer wants."""

LINE_BYTES_MAX = 1024 * 1024
"""Maximum number of bytes of one frame (a JSON object on one line). A frame holds a list of tools or of messages, never
a document."""


class Frame(Struct, frozen=True, omit_defaults=True, tag_field="kind"):
    """Base class of all frames: JSON objects, one per line, between a runner and an MCP server.

    `kind` names the type.
    """


class McpRequest(Frame, frozen=True, omit_defaults=True, tag="mcp_request"):
    """Frame to the runner: a request of the agent (list the tools, or call one), which its MCP server passes on."""

    id: int | str
    method: str
    params: dict[str, Any] | None = None


class McpError(Struct, frozen=True, omit_defaults=True):
    """The error in an `McpResponse`, in the form of JSON-RPC."""

    message: str
    code: int = -32603
    data: Any = None


class McpResponse(Frame, frozen=True, omit_defaults=True, tag="mcp_response"):
    """Frame from the runner: the answer to the request with this `id`, a result or an error."""

    id: int | str
    result: dict[str, Any] | None = None
    error: McpError | None = None


class McpNotification(Frame, frozen=True, omit_defaults=True, tag="mcp_notification"):
    """Frame from the runner: a notification, which the MCP server passes on to the agent.

    The MCP server itself sends only one notification to the runner: `CANCELLED_METHOD`, with a `requestId`.
    """

    method: str
    params: dict[str, Any] | None = None


class Shutdown(Frame, frozen=True, omit_defaults=True, tag="shutdown"):
    """Frame from either side: the sender closes the connection on purpose."""

    reason: str = ""


class Error(Frame, frozen=True, omit_defaults=True, tag="error"):
    """Frame from either side: the sender has received an invalid or forbidden frame, so the connection ends."""

    message: str


AnyFrame = McpRequest | McpResponse | McpNotification | Shutdown | Error


class BadLine(ValueError):
    """Raised if a line is no valid frame, or is longer than `LINE_BYTES_MAX`."""


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyFrame] = msgspec.json.Decoder(AnyFrame)


def encode(frame: AnyFrame) -> bytes:
    """Return a frame as a line of JSON. Raises `BadLine` if the line is too long."""
    line = _encoder.encode(frame) + b"\n"
    if len(line) > LINE_BYTES_MAX:
        raise BadLine(f"a frame of {len(line)} bytes is longer than {LINE_BYTES_MAX}")
    return line


class LineBuffer:
    """Buffer that collects received bytes and returns complete frames. After a `BadLine` the connection must end."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def receive_data(self, data: bytes) -> None:
        """Add received bytes to the buffer."""
        self._bytes += data

    def next_frames(self) -> Iterator[AnyFrame]:
        """Yield the complete frames in the buffer and remove them. An incomplete line stays in the buffer.

        Raises `BadLine` at a line that is too long or no frame.
        """
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
    """Decode one line of JSON and return the frame. Raises `BadLine` if the line is no frame."""
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(f"not a frame: {error}") from error
