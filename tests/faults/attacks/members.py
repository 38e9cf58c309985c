"""Attacks by a member: requests whose answers it does not read, absurd numbers, and frames with millions of values."""

import asyncio
import json
import struct
from collections.abc import Iterator
from typing import Any

from tests.faults.attacks.campaign import WatchedHub
from tests.faults.attacks.strangers import MEBIBYTE, all_at_once, dialled, dialled_socket, head
from tests.faults.processes import SOAK
from tieline.client import connect
from tieline.wire.json_text import VALUES_MAX

MALLORY = "mallory"
CROWD = tuple(f"member-{number}" for number in range(200 if SOAK else 40))
_MESSAGES = 20_000 if SOAK else 400
_PART = 200
_LEAST, _MOST = -(2**63), 2**63 - 1
_SHARE = 1.0 if SOAK else 0.2
"""Part of each batch of requests that is sent: all in a soak run, a fifth in a short run."""
_IDLE_SECONDS = 2.0 if SOAK else 0.3
_READ_SECONDS = 20.0 if SOAK else 3.0
"""Time limit for reading answers, because reading thousands of large answers would take too long."""

Frame = dict[str, Any]


async def furnish(hub: WatchedHub) -> None:
    """Send messages of the attacker to itself, so that its history and its inbox have content to read."""
    async with await connect(token=hub.tokens[MALLORY], home=hub.home) as client:
        for _ in range(_MESSAGES // _PART):
            await asyncio.gather(*(client.send(f"@{MALLORY}", "some words to find " * 20) for _ in range(_PART)))


def batches() -> Iterator[tuple[str, list[Frame]]]:
    """Yield the name and the requests of each batch. All requests of a batch are sent as one frame."""

    def many(times: int, **frame: Any) -> list[Frame]:
        return [{**frame, "n": number} for number in range(1, int(times * _SHARE) + 1)]

    yield "members", many(5000, t="members")
    yield "channels", many(5000, t="channels")
    yield "subscriptions", [{"t": "sub", "n": number, "channel": f"c-{number}"} for number in range(int(4000 * _SHARE))]
    yield "inboxes", many(2000, t="fetch", limit=10_000)
    yield "histories", many(1000, t="read_history", limit=10_000)
    yield (
        "extreme histories",
        [
            {"t": "read_history", "n": number, "limit": limit, "after": after, "before": before}
            for number, (limit, after, before) in enumerate(
                (limit, after, before)
                for limit in (_MOST, 0, _LEAST, 10_000)
                for after in (_MOST, -1, _LEAST)
                for before in (_MOST, 0, _LEAST, None)
            )
        ],
    )
    yield (
        "extreme tails",
        [{"t": "tail", "n": number, "after": after} for number, after in enumerate((_MOST, _LEAST, 0))],
    )
    yield "searches", many(500, t="search", query="words", limit=10_000)
    yield "long searches", many(100, t="search", query="w* " * 300, limit=10_000)
    yield "receipts", many(5000, t="read_receipts", id="nothing")
    yield "objectives", many(5000, t="objectives")
    yield "acknowledgements", [{"t": "ack", "keys": [[_LEAST, _MOST]]} for _ in range(int(2000 * _SHARE))]
    yield "many ranges", [{"t": "ack", "keys": [[key, key] for key in range(0, int(100_000 * _SHARE), 2)]}]
    yield (
        "refused sends",
        [
            {"t": "send", "n": number, "target": f"@nobody-{number}", "body": "x"}
            for number in range(int(5000 * _SHARE))
        ],
    )
    yield "nesting", [{"t": "send", "n": 1, "target": "@ann", "body": "x", "data": _nested(200)}]


def _nested(levels: int) -> Frame:
    made: Frame = {}
    for _ in range(levels):
        made = {"a": made}
    return made


async def send_batches(hub: WatchedHub) -> None:
    """Send each batch twice: by a client that reads the answers, and by one that does not."""
    for _, frames in batches():
        await all_at_once(_send_batch(hub, frames, reads=True), _send_batch(hub, frames, reads=False))


async def _send_batch(hub: WatchedHub, frames: list[Frame], *, reads: bool) -> None:
    async with dialled_socket(hub.home / "hub.sock") as (reader, writer):
        writer.write(_framed([{"t": "hello", "token": hub.tokens[MALLORY]}]))
        await _read_frame(reader)
        writer.write(_framed(frames))
        if not reads:
            # A client that does not read keeps its waiting answers in the hub.
            await asyncio.sleep(_IDLE_SECONDS)
        elif "n" in frames[-1]:
            last = f'"n":{frames[-1]["n"]}'.encode()
            async with asyncio.timeout(_READ_SECONDS):
                while last not in await _read_frame(reader):
                    pass


def _framed(frames: list[Frame]) -> bytes:
    payload = json.dumps(frames).encode()
    return struct.pack("!I", len(payload)) + payload


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack("!I", await reader.readexactly(4))
    return await reader.readexactly(size)


# Values.

_BYTES = (12 if SOAK else 3) * MEBIBYTE
_SMALL = MEBIBYTE - 1024
_MANY = (b"[]", b"{}", b"1", b'""', b'{"a":1}')
"""Small JSON values. Each document of this attack contains one of them as many times as fit."""
_FITTING = VALUES_MAX // 3
"""Number of values that every protocol of the hub accepts in one document."""


def _listed(value: bytes, count: int) -> bytes:
    return b"[" + b",".join([value] * count) + b"]"


async def send_values(hub: WatchedHub) -> None:
    """Send frames and bodies full of small values: as many as a frame can hold, and as many as the hub accepts."""
    for value in _MANY if SOAK else _MANY[:1]:
        count = _BYTES // (len(value) + 1)
        for times in (count, _FITTING):
            await all_at_once(_send_data(hub, _listed(value, times)))
        few = _SMALL // (len(value) + 1)
        for path, begin in _ROUTES:
            for times in (few if path == "/push" else count, _FITTING):
                await all_at_once(_post(hub, path, begin + _listed(value, times) + b"}}"))
    # Those that the hub took come back, page by page.
    async with await connect(token=hub.tokens[MALLORY], home=hub.home) as client:
        await client.history(limit=_PART)
        await client.inbox(limit=_PART)


_ROUTES = (
    ("/push", b'{"to":"mallory","body":"x","data":{"a":'),
    ("/v1/send", b'{"to":"@mallory","body":"x","more":{"a":'),
    ("/mcp", b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"a":'),
)


async def _send_data(hub: WatchedHub, data: bytes) -> None:
    frame = b'[{"t":"send","n":1,"target":"@mallory","body":"x","data":{"a":' + data + b"}}]"
    async with dialled_socket(hub.home / "hub.sock") as (reader, writer):
        writer.write(_framed([{"t": "hello", "token": hub.tokens[MALLORY]}]))
        await _read_frame(reader)
        writer.write(struct.pack("!I", len(frame)) + frame)
        async with asyncio.timeout(_READ_SECONDS):
            assert (b"accepted" in await _read_frame(reader)) == (len(data) < MEBIBYTE)


async def _post(hub: WatchedHub, path: str, body: bytes) -> None:
    shown = (("authorization", f"Bearer {hub.tokens[MALLORY]}"), ("content-type", "application/json"))
    accepted = (*shown, ("accept", "application/json, text/event-stream"), ("content-length", str(len(body))))
    async with dialled(hub) as (reader, writer):
        writer.write(head(hub, "POST", path, *accepted) + b"\r\n" + body)
        async with asyncio.timeout(_READ_SECONDS):
            assert await reader.readuntil(b"\r\n")


# Backlog.

_WAITING = 100 if SOAK else 12
_STREAMS = 4


async def open_streams(hub: WatchedHub) -> None:
    """Open many streams of `/mcp` for a member with large messages in its inbox, and read none of them."""
    token = hub.tokens[CROWD[0]]
    async with await connect(token=hub.tokens[MALLORY], home=hub.home) as client:
        for _ in range(_WAITING):
            await client.send(f"@{CROWD[0]}", "x" * 1_000_000)
    await all_at_once(*(_open_stream(hub, token) for _ in range(_STREAMS)))


async def _open_stream(hub: WatchedHub, token: str) -> None:
    version, method = "2026-07-28", "subscriptions/listen"
    known = {f"io.modelcontextprotocol/{key}": value for key, value in _CLIENT.items()}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": known, "notifications": {}}})
    headers = (
        ("authorization", f"Bearer {token}"),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", version),
        ("mcp-method", method),
        ("content-length", str(len(body))),
    )
    async with dialled(hub) as (reader, writer):
        writer.write(head(hub, "POST", "/mcp", *headers) + b"\r\n" + body.encode())
        assert b" 200 " in await reader.readuntil(b"\r\n")
        await asyncio.sleep(2 * _IDLE_SECONDS)  # the attack is not to read


_CLIENT = {"protocolVersion": "2026-07-28", "clientCapabilities": {}}
