"""Tests of outages of the database: commands are refused, sessions stay, and every batch is there exactly once."""

import asyncio
import contextlib
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.conformance.store.writer import PAGE_BYTES, Writer
from tests.server.hubs import ALONE, WAIT_SECONDS, bodies, running_hub, take, until
from tests.stores.postgres_server import Server, schema_of, server
from tieline.client import Client, Disconnected, HubRefused
from tieline.contract.refusal import Code
from tieline.core.outage import OutOfDate
from tieline.core.store import DiskError, StoreError
from tieline.stores.postgres import PostgresStore

pytestmark = pytest.mark.slow


class Proxy:
    """A way to the server that a test can cut before or after a request has reached it."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.cut: str = ""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return server().url.replace(str(server().port), str(self._listening.getsockname()[1]))

    def close(self) -> None:
        self._listening.close()
        for one in self._open:
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                behind = socket.create_connection(("127.0.0.1", server().port))
                self._open += [client, behind]
                threading.Thread(target=self._pass_on, args=(client, behind, "before"), daemon=True).start()
                threading.Thread(target=self._pass_on, args=(behind, client, "after"), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, cut: str) -> None:
        """Pass bytes on, until the test wants the way to be cut in this direction at the next bytes."""
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.cut == cut:
                    self.cut = ""
                    break
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Fixture: a way to the server of this process."""
    made = Proxy()
    yield made
    made.close()


@pytest.fixture
def writer(proxy: Proxy, tmp_path: Path) -> Iterator[Writer]:
    """Fixture: a writer on an empty store, which reaches its server by the proxy and waits for it after an outage."""
    made = Writer(lambda: PostgresStore(proxy.url, schema_of(tmp_path), "the hub of a test"))
    assert isinstance(made.store, PostgresStore)
    made.store.on_outage = lambda error: True
    yield made
    made.store.close()


@pytest.mark.parametrize("cut", ["before", "after"])
@pytest.mark.parametrize("flushed", [False, True])
def test_a_commit_whose_answer_was_lost_is_there_exactly_once(
    writer: Writer, proxy: Proxy, cut: str, flushed: bool
) -> None:
    writer.record()
    writer.store.commit()
    message = writer.accept(wire_id="w")
    if flushed:
        writer.store.messages([1], PAGE_BYTES)
        writer.record()
    proxy.cut = cut
    writer.store.commit()
    assert proxy.cut == ""
    assert writer.store.intact
    end = writer.ledger.end
    writer.record()
    writer.store.commit()
    assert writer.restore().log_end == end + 1
    assert [row.offset for row in writer.store.read_log(0, 10)[0]] == list(range(end + 1))
    assert writer.store.messages([1], PAGE_BYTES)[0] == {1: message}
    assert isinstance(writer.store, PostgresStore)
    assert writer.store.commits == 3


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_read_in_the_middle_of_a_batch_sees_the_batch_after_an_outage(writer: Writer, proxy: Proxy, cut: str) -> None:
    first = writer.accept(wire_id="w")
    assert writer.store.find_message(first.id) is not None
    second = writer.accept(wire_id="v")
    proxy.cut = cut
    found = writer.store.find_message(second.id)
    assert found is not None
    assert found[0] == second
    proxy.cut = cut
    assert set(writer.store.names([1])) == set()
    writer.store.commit()
    assert writer.restore().log_end == 2


def test_an_outage_is_an_error_for_a_store_that_nobody_lets_wait(writer: Writer, proxy: Proxy) -> None:
    assert isinstance(writer.store, PostgresStore)
    reasons: list[str] = []

    def give_up(error: DiskError) -> bool:
        reasons.append(str(error))
        return False

    writer.store.on_outage = give_up
    writer.record()
    proxy.cut = "before"
    with pytest.raises(DiskError, match="does not answer"):
        writer.store.commit()
    assert not writer.store.intact
    assert len(reasons) == 1
    writer.store.on_outage = lambda error: True
    assert writer.restore().log_end == 0


def test_a_hub_does_not_go_on_where_another_has_written(writer: Writer, proxy: Proxy, tmp_path: Path) -> None:
    writer.record()
    writer.store.commit()
    with psycopg.connect(server().url, autocommit=True) as admin:
        admin.execute(f"UPDATE {schema_of(tmp_path)}.lease SET term = 2, claim = 'x', hub = 'the other hub'".encode())
    writer.record()
    proxy.cut = "before"
    with pytest.raises(StoreError, match="taken over by the other hub"):
        writer.store.commit()


def test_a_hub_does_not_go_on_with_a_database_that_lost_its_last_commits(
    writer: Writer, proxy: Proxy, tmp_path: Path
) -> None:
    """A standby that became the primary may have missed some."""
    for _ in range(2):
        writer.record()
        writer.store.commit()
    with psycopg.connect(server().url, autocommit=True) as admin:
        admin.execute(f"DELETE FROM {schema_of(tmp_path)}.log WHERE log_offset = 1".encode())
        admin.execute(f"UPDATE {schema_of(tmp_path)}.writer SET commits = 1".encode())
    writer.record()
    proxy.cut = "before"
    with pytest.raises(OutOfDate, match="is at commit 1, and this hub was at 2: commits are lost"):
        writer.store.commit()
    assert isinstance(writer.store, PostgresStore)
    assert writer.store.lease.lost is not None


@pytest.mark.parametrize("cut", ["before", "after"])
def test_what_a_lost_connection_sends_late_is_not_written(
    writer: Writer, proxy: Proxy, tmp_path: Path, cut: str
) -> None:
    """The fence knows the connection, so a commit of an older one fails, even in the same term."""
    writer.record()
    writer.store.commit()
    assert isinstance(writer.store, PostgresStore)
    lease = writer.store.lease
    with psycopg.connect(server().url, autocommit=True) as late:
        late.execute(f"SET search_path TO {schema_of(tmp_path)}".encode())
        (name,) = late.execute("SELECT connection FROM writer").fetchone() or ("",)
        proxy.cut = cut
        writer.record()
        writer.store.commit()
        with pytest.raises(psycopg.DatabaseError, match="newer connection"):
            late.execute("SELECT begin_commit(%s, %s, %s, %s)", (lease.term, lease.claim, name, 3))
        assert late.execute("SELECT count(*) FROM log").fetchone() == (2,)


@pytest.fixture
def own_server() -> Iterator[Server]:
    """Fixture: a server that the test may stop."""
    made = Server(("fsync=off", "shared_buffers=16MB"))
    yield made
    made.remove()


async def sent(client: Client, target: str, body: str) -> None:
    """Send a message, again and again until it is not refused."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            try:
                await client.send(target, body)
            except HubRefused:
                await asyncio.sleep(0.05)
            else:
                return


def health(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["stopped", "crashed"])
async def test_a_hub_outlasts_its_database(own_server: Server, folder: Path, how: signal.Signals) -> None:
    async with running_hub(folder, store=own_server.url, **ALONE) as there:
        await there.add("ada", "bob")
        ada, bob = await there.join("ada"), await there.join("bob", receive=True)
        await ada.send("@bob", "before")
        assert bodies(await take(bob, 1, ack=True)) == ["before"]
        await asyncio.to_thread(own_server.stop, how)
        waiting = asyncio.create_task(ada.send("@bob", "waits"))
        await until(lambda: bool(there.hub.local_hub and there.hub.local_hub.health.store.reason))
        with pytest.raises(HubRefused) as refused:
            await ada.send("@bob", "refused")
        assert refused.value.code is Code.STORE_FAILED
        assert "does not answer" in str(refused.value)
        status, said = await asyncio.to_thread(health, there.running.http)
        assert status == 503
        assert "does not answer" in said
        await asyncio.to_thread(own_server.start)
        # Its batch waited for the database, unless another one did when it came.
        (answer,) = await asyncio.gather(waiting, return_exceptions=True)
        waited = [] if isinstance(answer, HubRefused) else ["waits"]
        await sent(ada, "@bob", "after")
        assert bodies(await take(bob, 1 + len(waited), ack=True)) == [*waited, "after"]
        await until(lambda: bool(there.hub.local_hub and not there.hub.local_hub.health.store.reason))
        assert [one.body for one in await ada.history()] == ["after", *waited, "before"]
        assert [one.body for one in await ada.search("after")] == ["after"]


async def test_a_hub_can_be_stopped_while_its_database_is_away(own_server: Server, folder: Path) -> None:
    async with running_hub(folder, store=own_server.url, **ALONE) as there:
        await there.add("ada", "bob")
        ada = await there.join("ada")
        await ada.send("@bob", "kept")
        await asyncio.to_thread(own_server.stop, signal.SIGQUIT)
        waiting = asyncio.create_task(ada.send("@bob", "lost"))
        await until(lambda: bool(there.hub.local_hub and there.hub.local_hub.health.store.reason))
        await there.hub.stop()
        with pytest.raises((HubRefused, Disconnected)):
            await waiting
    await asyncio.to_thread(own_server.start)
    async with running_hub(folder, store=own_server.url, **ALONE) as there:
        operator = await there.operator()
        assert [one.body for one in await operator.history()] == ["kept"]
