"""Test helper: a local hub with a store whose commits the test controls, and receivers that record their calls."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from tests.core.doubles import content
from tests.server.stores import StubbornStore
from tieline.contract import command as c
from tieline.contract.hub import (
    Change,
    Hub,
    Interest,
    Notice,
    Posted,
    Said,
)
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.limits import Limits
from tieline.contract.member import ByHomeKey
from tieline.contract.message import Message
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Accepted, Attached, Issued, Progress, Reply
from tieline.contract.target import to_member
from tieline.core.broker import Broker
from tieline.core.directory import token_digest
from tieline.server.clock_and_ids import SystemClockAndIds
from tieline.server.local_hub import LocalHub
from tieline.stores.sqlite import SqliteActivity
from tieline.stores.sqlite.database import IN_MEMORY, open_for_reading
from tieline.stores.sqlite.store import MAIN_FILE
from tieline.wire.hub_link.remote_hub import RemoteHub, connect
from tieline.wire.hub_link.server import LinkServer

KEY = "the key of the home"


class Ear:
    """Test double: a listener of the hub that records its calls. It raises while `deaf` is set."""

    def __init__(self) -> None:
        self.keys: list[int] = []
        self.free: list[int] = []
        self.steps: list[Progress] = []
        self.ended: list[Refusal] = []
        self.deaf = False

    def released(self, keys: Sequence[int]) -> None:
        self.free += keys

    def offer(self, message: Message, key: int, stream_seq: int) -> None:
        del message, stream_seq
        self.keys.append(key)
        self._hear()

    def progress(self, step: Progress) -> None:
        self.steps.append(step)
        self._hear()

    def end(self, why: Refusal) -> None:
        self.ended.append(why)
        self._hear()

    def _hear(self) -> None:
        if self.deaf:
            raise RuntimeError("a bug in a receiver")


class Eye:
    """Test double: a receiver of notices that records them. It raises while `blind` is set."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.changes: list[Change] = []
        self.wakes = 0
        self.blind = False

    def __call__(self, notice: Notice) -> None:
        if isinstance(notice, Posted):
            self.messages.append(notice.message.content.body)
        elif isinstance(notice, Said):
            self.wakes += 1
        else:
            self.changes.append(notice)
        self._see()

    def _see(self) -> None:
        if self.blind:
            raise RuntimeError("a bug in a watcher")


TO_BOB = Interest(members=True, targets=(to_member(MemberName("bob")),))


LINK_KEY = "the key of the link"


class Office:
    """Test helper: a hub with a store whose commits the test controls, an operator and two members.

    `local` is the local hub. `hub` is the Hub port that the test uses: the local hub, or a remote hub over a link.
    """

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.folder = folder
        self.store = StubbornStore(folder)
        broker = Broker(self.store, SystemClockAndIds(), limits, home_key=token_digest(KEY))
        self.local = LocalHub(broker, SqliteActivity(IN_MEMORY))
        self.hub: Hub = self.local
        self.links = LinkServer(self.local, LINK_KEY)

    async def open(self, *, remote: bool = False, link: Path | None = None) -> None:
        """Start the hub. If it is `remote`, the test uses it over a link, to its own socket or to the socket `link`."""
        self.local.start()
        if remote:
            await self.links.listen(self.folder / "link.sock")
            self.hub = await connect(link or self.folder / "link.sock", LINK_KEY)
        self.operator = await self.attach(None)
        for name in ("alice", "bob"):
            assert isinstance(await self.hub.ask(c.AddMember(self.operator, name=MemberName(name))), Issued)
        self.alice, self.bob = await self.attach("alice"), await self.attach("bob")

    async def connect(self) -> RemoteHub:
        return await connect(self.folder / "link.sock", LINK_KEY)

    async def close(self) -> None:
        self.store.gate.set()
        self.store.restore_fails = False
        await self.links.close()
        await self.local.stop()

    async def attach(self, name: str | None) -> SessionId:
        member = MemberName(name) if name else None
        reply = await self.hub.ask(c.Attach(protocol="test", credential=ByHomeKey(KEY), member=member))
        assert isinstance(reply, Attached), reply
        return reply.session

    def send(self, body: str = "hello", *, target: str = "@bob") -> c.Send:
        return c.Send(self.alice, content=content(target, body))

    async def accepted(self, body: str = "hello") -> Accepted:
        reply = await self.hub.ask(self.send(body))
        assert isinstance(reply, Accepted), reply
        return reply

    def listen(self) -> Ear:
        ear = Ear()
        self.hub.listen(self.bob, ear, MemberName("bob"))
        return ear

    async def hold(self, *commands: c.Command) -> list[Reply]:
        """Submit commands and wait until their commit has begun. Return a list that gets the replies later."""
        replies: list[Reply] = []
        self.store.entered.clear()
        self.store.gate.clear()
        self.hub.submit(commands, replies.extend)
        await asyncio.to_thread(self.store.entered.wait, 10)
        return replies

    def rows(self) -> int:
        """Return the number of rows of the main log, as another process sees it."""
        connection = open_for_reading(self.folder / MAIN_FILE)
        try:
            count = connection.execute("SELECT count(*) FROM log").get
        finally:
            connection.close()
        assert isinstance(count, int)
        return count
