"""Tests of the remote hub that a local hub has no counterpart for: large calls, bad hubs, and the loss of the link."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs

from tests.core.doubles import content
from tests.server.hubs import until
from tests.server.offices import TO_BOB, Ear, Eye, Office
from tieline.contract import command as c
from tieline.contract.activity import ActivityRow
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.limits import Limits
from tieline.contract.member import Presence
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Done, Fetched, Recorded, Reply, Roster
from tieline.wire import unix
from tieline.wire.frames import encode_frame
from tieline.wire.hub_link import codec, remote_hub, server
from tieline.wire.hub_link.greeting import LinkRefused, Welcome, encode_answer
from tieline.wire.hub_link.remote_hub import RemoteHub, connect

ALICE = MemberName("alice")


@pytest.fixture
async def office(folder: Path) -> AsyncIterator[Office]:
    """Fixture: a hub with the members alice and bob, which the test uses over a link."""
    made = Office(folder, Limits())
    await made.open(remote=True)
    yield made
    await made.close()


async def ask_all(office: Office, commands: Sequence[c.Command]) -> list[Reply]:
    """Submit commands in one call, and return their replies."""
    replies: list[Reply] = []
    calls: list[int] = []

    def done(answered: Sequence[Reply]) -> None:
        replies.extend(answered)
        calls.append(len(answered))

    office.hub.submit(commands, done)
    await until(lambda: bool(calls))
    assert calls == [len(commands)], "in one call"
    return replies


async def test_a_call_with_much_content_goes_in_parts_and_is_answered_at_once(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_hub, "_COMMANDS_BYTES", 1000)
    monkeypatch.setattr(server, "_REPLIES_BYTES", 1000)
    sent = await ask_all(office, [office.send(f"{number} " + "x" * 400) for number in range(20)])
    assert [type(reply) for reply in sent] == [Accepted] * 20
    pages = await ask_all(office, [c.Fetch(office.bob, after=number, limit=1) for number in range(20)])
    bodies = [page.deliveries[0].message.content.body.split()[0] for page in pages if isinstance(page, Fetched)]
    assert bodies == [str(number) for number in range(20)]


async def test_a_call_without_commands_is_answered(office: Office) -> None:
    assert await ask_all(office, []) == []


async def test_a_call_with_much_content_needs_no_callback(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_hub, "_COMMANDS_BYTES", 1000)
    ear = office.listen()
    office.hub.submit([office.send("x" * 400) for _ in range(20)])
    await until(lambda: ear.keys == [*range(1, 21)])


async def test_a_command_that_cannot_be_sent_is_refused_alone_and_in_its_place(office: Office) -> None:
    deep: dict[str, object] = {}
    for _ in range(100_000):
        deep = {"deeper": deep}
    said = [office.send("one"), office.send("half a pair \ud800"), office.send("two")]
    said.append(c.Send(office.alice, content=content("@bob", data=deep)))
    first, half, second, nested = await ask_all(office, said)
    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)
    assert [reply.code for reply in (half, nested) if isinstance(reply, Refusal)] == [Code.INVALID_MESSAGE] * 2
    while deep:
        deep = deep.pop("deeper")  # type: ignore[assignment]


async def test_new_activity_comes_until_the_tail_or_its_session_ends(office: Office) -> None:
    heard: list[ActivityRow] = []
    watcher = await office.attach("alice")
    for session in (office.alice, watcher):
        assert await office.hub.ask(c.FollowActivity(session, member=ALICE)) == Done()
    stop = office.hub.tail(office.alice, ALICE, heard.extend)
    office.hub.tail(watcher, ALICE, heard.extend)
    report = c.RecordActivity(office.alice, events=({"kind": "test"},))
    assert await office.hub.ask(report) == Recorded(1)
    await until(lambda: [row.kind for row in heard] == ["test", "test"])
    stop()
    stop()
    await office.hub.ask(report)
    await until(lambda: len(heard) == 3)
    office.hub.forget(watcher)
    await office.hub.ask(report)
    assert await office.hub.ask(c.FollowActivity(office.alice, member=ALICE)) == Done()
    assert len(heard) == 3


# The loss of the link


async def test_when_the_hub_goes_all_that_waits_is_refused_and_all_sessions_end(office: Office) -> None:
    ear, eye = office.listen(), Eye()
    office.hub.watch(TO_BOB, eye)
    replies = await office.hold(office.send(), office.send())
    await office.links.close()
    await until(lambda: bool(ear.ended))
    assert [reply.code for reply in replies if isinstance(reply, Refusal)] == [Code.SHUTTING_DOWN] * 2
    assert [why.code for why in ear.ended] == [Code.SHUTTING_DOWN]
    assert all(why.fatal for why in ear.ended)
    late = await office.hub.ask(office.send())
    assert isinstance(late, Refusal)
    assert late.code is Code.SHUTTING_DOWN
    assert isinstance(office.hub, RemoteHub)
    assert office.hub.lost.done()
    # Nothing of this may raise any more.
    office.hub.forget(office.bob)
    office.hub.watch(TO_BOB, eye)()
    office.hub.submit((office.send(),))


async def test_when_a_worker_goes_its_sessions_end_and_others_stay(office: Office) -> None:
    other = await office.connect()
    ear = office.listen()
    kept, office.hub = office.hub, other
    await office.attach("bob")
    gone = Ear()
    other.listen(await office.attach("bob"), gone, MemberName("bob"))
    other.watch(TO_BOB, Eye())
    other.set_external_inbox(MemberName("bob"), SessionId(""), Silent())
    await office.attach("alice")
    other.close()
    await other.lost
    office.hub = kept
    roster = c.ListMembers(office.operator)
    while sum(len(each.sessions) for each in await members(office, roster)) > 2:
        pass
    await office.accepted()
    assert ear.keys == [1]
    assert len(gone.ended) == 1
    assert await office.hub.ask(c.Advance(office.bob, ranges=((1, 1),))) == Done(), "nobody is asked"


async def members(office: Office, roster: c.ListMembers) -> Sequence[Presence]:
    reply = await office.hub.ask(roster)
    assert isinstance(reply, Roster)
    return reply.members


class Silent:
    """Test double: an external inbox that answers nothing."""

    def asked(self, question: object) -> None: ...

    def finish(self, keys: Sequence[int]) -> None: ...

    def give_back(self, keys: Sequence[int]) -> None: ...


# Bad hubs


class BadHub(asyncio.Protocol):
    """Test double: a hub that has an answer for each of the first writes of a worker, and then closes."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        if self._answers:
            self._transport.write(self._answers.pop(0))
        if not self._answers:
            self._transport.close()


WELCOME = encode_frame(encode_answer(Welcome(Limits(), "link", 0)))


@pytest.mark.parametrize(
    "answer", [b"", b"\0\0", encode_frame(b"{}"), encode_frame(b"\xff"), b"HTTP/1.1 400 Bad Request\r\n\r\n"]
)
async def test_a_hub_that_greets_badly_is_no_hub(folder: Path, answer: bytes) -> None:
    listening = await unix.listen(folder / "bad.sock", lambda: BadHub(answer))
    with capture_logs(), pytest.raises(ConnectionError):
        await connect(folder / "bad.sock", "key")
    listening.close()


async def test_a_hub_that_does_not_greet_is_not_waited_for_for_ever(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_hub, "_GREETING_SECONDS", 0.05)
    listening = await unix.listen(folder / "bad.sock", lambda: BadHub(b"", b""))
    with pytest.raises(TimeoutError):
        await connect(folder / "bad.sock", "key")
    listening.close()


@pytest.mark.parametrize(
    "item",
    [
        codec.Replies(99, []),
        codec.Replies(1, []),
        codec.Replies(1, [codec.pack(c.Tick())]),
        codec.Replies(1, [codec.pack(Done()), codec.pack(Done())]),
        codec.Offers(codec.pack(Done()), []),
        cast(codec.ToWorker, codec.Forget(SessionId("s"))),
    ],
    ids=["no call", "too few", "no reply", "too many", "no message", "an item of a worker"],
)
async def test_a_hub_that_breaks_the_rules_is_lost(folder: Path, item: codec.ToWorker) -> None:
    bad = encode_frame(codec.encode(0, [item]))
    listening = await unix.listen(folder / "bad.sock", lambda: BadHub(WELCOME, bad, b""))
    hub = await connect(folder / "bad.sock", "key")
    with capture_logs() as logs:
        reply = await hub.ask(c.ListMembers(SessionId("s")))
    assert isinstance(reply, Refusal)
    assert reply.code is Code.SHUTTING_DOWN
    assert [entry["event"] for entry in logs] == ["a link between the hub and a worker is broken"]
    listening.close()


async def test_a_refusal_of_the_hub_is_the_error_of_the_connection(office: Office) -> None:
    with capture_logs(), pytest.raises(LinkRefused):
        await connect(office.folder / "link.sock", "no key")
