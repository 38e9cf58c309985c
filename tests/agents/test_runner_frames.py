"""Tests of frames between a runner and an MCP server. A frame is one line of JSON.

It may arrive in any chunks of bytes.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.agents.runner_frames import (
    LINE_BYTES_MAX,
    AnyFrame,
    BadLine,
    Error,
    LineBuffer,
    McpError,
    McpNotification,
    McpRequest,
    McpResponse,
    Shutdown,
    decode,
    encode,
)

FRAMES: list[AnyFrame] = [
    McpRequest(1, "tools/list"),
    McpRequest("a", "tools/call", {"name": "send", "arguments": {"body": "a\nb"}}),
    McpResponse(1, {"tools": []}),
    McpResponse(2, error=McpError("no", -32602)),
    McpNotification("notifications/tools/list_changed"),
    McpNotification("notifications/claude/channel", {"content": "hi", "meta": {"from": "alice"}}),
    Shutdown("done"),
    Error("what?"),
]


def test_frames_are_those_of_the_seed() -> None:
    assert encode(McpRequest(1, "tools/list")) == b'{"kind":"mcp_request","id":1,"method":"tools/list"}\n'
    assert encode(McpResponse(1, {})) == b'{"kind":"mcp_response","id":1,"result":{}}\n'
    assert encode(McpNotification("m", {"a": 1})) == b'{"kind":"mcp_notification","method":"m","params":{"a":1}}\n'
    assert encode(Shutdown("bye")) == b'{"kind":"shutdown","reason":"bye"}\n'
    assert encode(Error("no")) == b'{"kind":"error","message":"no"}\n'


@given(st.lists(st.integers(1, 40), min_size=1))
def test_frames_come_out_whatever_the_chunks(sizes: list[int]) -> None:
    written = b"\n".join((b"".join(map(encode, FRAMES)), b"  \n"))
    buffer = LineBuffer()
    read: list[AnyFrame] = []
    start = 0
    while start < len(written):
        size = sizes[start % len(sizes)]
        buffer.receive_data(written[start : start + size])
        read.extend(buffer.next_frames())
        start += size
    assert read == FRAMES


@pytest.mark.parametrize(
    "line", [b"", b"{}", b"[]", b'{"kind":"other"}', b"\xff", b'{"kind":"mcp_request","id":1}', b"[" * 10_000]
)
def test_what_is_no_frame_is_a_bad_line(line: bytes) -> None:
    with pytest.raises(BadLine):
        decode(line)


def test_a_line_has_a_limit_both_ways() -> None:
    with pytest.raises(BadLine):
        encode(Error("x" * LINE_BYTES_MAX))
    buffer = LineBuffer()
    buffer.receive_data(b"x" * LINE_BYTES_MAX)
    with pytest.raises(BadLine):
        list(buffer.next_frames())
    buffer = LineBuffer()
    buffer.receive_data(b"x" * LINE_BYTES_MAX + b"\n")
    with pytest.raises(BadLine):
        list(buffer.next_frames())
