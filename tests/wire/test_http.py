"""Tests of shared code of HTTP protocols: answers, tokens, and limits of bodies in size, number and time."""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.types import Message, Receive

from tieline.contract.limits import Limits
from tieline.wire.http import JSON, Answer, Bodies, answer, bearer, failure, foreign, respond
from tieline.wire.unfinished import Unfinished

Scope = dict[str, Any]


def scope(**headers: str) -> Scope:
    return {"headers": [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]}


def body_of(*chunks: bytes, then: str = "end") -> Receive:
    """Return a `receive` function of a client that sends these chunks.

    `then` says if it ends, is silent or disconnects.
    """
    waiting: list[Message] = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    if then == "end" and waiting:
        waiting[-1]["more_body"] = False

    async def receive() -> Message:
        if waiting:
            return waiting.pop(0)
        if then == "gone":
            return {"type": "http.disconnect"}
        await asyncio.Event().wait()
        raise AssertionError

    return receive


async def read(chunks: Sequence[bytes], bytes_max: int = 10, *, then: str = "end", **headers: str) -> bytes | Answer:
    return await Bodies(Unfinished(Limits()), seconds_max=0.05).read(
        scope(**headers), body_of(*chunks, then=then), bytes_max
    )


def status(reply: bytes | Answer) -> int:
    assert isinstance(reply, Answer), reply
    assert set(json.loads(reply.body)) == {"error"}
    return reply.status


@pytest.mark.parametrize(
    ("shown", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer abc", "abc"),
        ("BEARER \t abc ", "abc"),
        ("abc", "abc"),
        ("a b", "a b"),
        ("bearerabc", "bearerabc"),
        ("bearer bearer x", "bearer x"),
        ("Bearer", "Bearer"),
        ("", None),
        ("   ", None),
    ],
)
def test_a_token_is_what_comes_after_the_word_if_there_is_the_word(shown: str, token: str | None) -> None:
    assert bearer(scope(authorization=shown)) == token


@pytest.mark.parametrize("unit", [" ", "\t", "x ", "bearer ", "bearer\t", "\xa0", "x"])
def test_the_time_to_find_a_token_grows_with_the_length_alone(unit: str) -> None:
    def seconds(size: int) -> float:
        shown = scope(authorization="x" + unit * (size // len(unit)) + "x")
        started = time.thread_time()
        for _ in range(20):
            bearer(shown)
        return time.thread_time() - started

    small = min(seconds(1_000) for _ in range(5))
    large = min(seconds(16_000) for _ in range(3))
    assert large < 40 * small + 0.01


def test_without_the_header_there_is_no_token() -> None:
    assert bearer(scope()) is None


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"host": "hub:1"}, False),
        ({"host": "hub:1", "origin": "http://hub:1"}, False),
        ({"host": "hub:1", "origin": "http://hub:2"}, True),
        ({"host": "hub:1", "origin": "null"}, True),
        ({"origin": "http://hub:1"}, True),
    ],
)
def test_a_page_from_elsewhere_is_known_by_its_origin(headers: dict[str, str], expected: bool) -> None:
    assert foreign(scope(**headers)) is expected


async def test_an_answer_is_json_with_its_length() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await respond(send, answer({"é": 1}))
    await respond(send, failure(413, "no", close=True))
    assert sent[0]["headers"] == [(b"content-type", JSON), (b"content-length", b"8")]
    assert sent[1]["body"] == '{"é":1}'.encode()
    assert (sent[2]["status"], sent[2]["headers"][-1]) == (413, (b"connection", b"close"))
    assert sent[3]["body"] == b'{"error":"no"}'


@pytest.mark.parametrize("chunks", [[b""], [b"0123456789"], [b"01234", b"56789"], [b"0123", b"", b"4"], [b"0", b""]])
async def test_a_body_up_to_the_limit_is_read_whole(chunks: list[bytes]) -> None:
    assert await read(chunks) == b"".join(chunks)


@pytest.mark.parametrize(
    ("chunks", "then"),
    [
        ([b"0123456789x"], "end"),
        ([b"012345", b"6789x"], "end"),
        ([b"012345", b"6789x"], "silent"),
        ([b"x" * 11], "gone"),
    ],
)
async def test_a_body_beyond_the_limit_is_413_however_it_comes(chunks: list[bytes], then: str) -> None:
    assert status(await read(chunks, then=then)) == 413


async def test_a_body_that_says_it_is_too_large_is_thrown_away_unread_and_refused() -> None:
    receive = body_of(b"x" * 6, b"x" * 6)
    reply = await Bodies(Unfinished(Limits())).read(scope(content_length="12"), receive, 10)
    assert status(reply) == 413
    assert isinstance(reply, Answer)
    assert reply.close


@pytest.mark.parametrize("length", ["x", "", "-1", "٣"])
async def test_a_length_that_is_none_does_not_matter(length: str) -> None:
    headers = {"headers": [(b"content-length", length.encode())]}
    assert await Bodies(Unfinished(Limits())).read(headers, body_of(b"x"), 10) == b"x"


async def test_a_body_that_does_not_come_is_408() -> None:
    assert status(await read([], then="silent")) == 408
    assert status(await read([b"012"], then="silent")) == 408


async def test_a_client_that_goes_away_in_the_middle_ends_the_reading() -> None:
    assert status(await read([b"012"], then="gone")) == 400


async def test_all_bodies_of_strangers_together_have_a_limit_and_the_largest_is_refused() -> None:
    limits = Limits(strangers_bytes_max=100_000)
    bodies = Bodies(Unfinished(limits), seconds_max=0.3)

    def begin(size: int, owner: str | None = None) -> asyncio.Task[bytes | Answer]:
        return asyncio.create_task(
            bodies.read(scope(), body_of(b"x" * size, then="silent"), limits.greeting_bytes_max, owner)
        )

    waiting = [begin(50_000), begin(40_000)]
    await asyncio.sleep(0)
    small = await bodies.read(scope(), body_of(b"x" * 4000, b"y"), 10_000)
    assert small == b"x" * 4000 + b"y", "who says little is never refused"
    member = begin(60_000, "alice")
    await asyncio.sleep(0)
    whole = await bodies.read(scope(), body_of(b"x" * 10_000, b"y" * 10_000), 50_000)
    assert whole == b"x" * 10_000 + b"y" * 10_000
    assert [status(reply) for reply in await asyncio.gather(*waiting, member)] == [503, 408, 408]
    assert await bodies.read(scope(), body_of(b"x" * 60_000), 60_000) == b"x" * 60_000


async def test_a_body_that_alone_is_past_the_limit_of_all_is_refused_at_once() -> None:
    unfinished = Unfinished(Limits(strangers_bytes_max=100_000))
    for then in ("end", "silent"):
        receive = body_of(b"x" * 60_000, b"x" * 60_000, then=then)
        assert status(await Bodies(unfinished).read(scope(), receive, 1_000_000)) == 503
    assert unfinished.size == 0
