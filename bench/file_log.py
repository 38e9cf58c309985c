"""The least that a durable hub could do: a reference server around a file. `python -m bench.file_log FOLDER`.

The server speaks enough of the hub's own protocol for the clients of these benchmarks (hello, send, ack), so that the
same client measures both over the same frames. A message becomes a record of 320 bytes in one file. A thread writes all
records that were queued during the last sync, and calls fdatasync once for them. Then the sender gets `accepted` and
the recipient gets the delivery. The server has no members, rights, inboxes, redelivery, audit or queries, and ignores
acks: nobody could use it, and no hub can be faster.
"""

import asyncio
import os
import queue
import signal
import sys
import threading
from pathlib import Path
from typing import cast

import uvloop
from msgspec import Raw

from tieline.wire.frames import FrameBuffer, encode_frame
from tieline.wire.home import HUB_SOCKET
from tieline.wire.native import frames as f

RECORD_BYTES = 320
_FRAME_BYTES_MAX = 64 * 1024 * 1024
_Item = tuple["_Connection", list[f.Send]]


class FileLog:
    """The server without its sockets: queue, file and deliveries."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._file = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._thread = threading.Thread(target=self._run, name="writer")
        self._offset = 0
        # Connections that receive, by name, with the key of the next delivery.
        self.receivers: dict[str, _Connection] = {}

    def start(self) -> None:
        """Start the writer thread."""
        self._thread.start()

    def stop(self) -> None:
        """Write the queued records, and close the file."""
        self._queue.put(None)
        self._thread.join()
        os.close(self._file)

    def put(self, connection: "_Connection", sends: list[f.Send]) -> None:
        """Queue messages for writing."""
        self._queue.put((connection, sends))

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            items = [item]
            while not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    self._queue.put(None)
                    break
                items.append(more)
            records = [send.body.encode().ljust(RECORD_BYTES) for _, sends in items for send in sends]
            os.write(self._file, b"".join(records))
            os.fdatasync(self._file)
            self._loop.call_soon_threadsafe(self._publish, items)

    def _publish(self, items: list[_Item]) -> None:
        parcels: dict[_Connection, list[f.Frame]] = {}
        for sender, sends in items:
            answers: list[f.Frame] = []
            for send in sends:
                self._offset += 1
                answers.append(f.Accepted(send.n, "", self._offset, 1))
                message = Raw(f.encode_batch([send])[1:-1])
                for receiver in self._recipients(send.target):
                    receiver.next_key += 1
                    parcels.setdefault(receiver, []).append(f.RawDeliver(receiver.next_key, 1, message))
            sender.send(answers)
        for receiver, deliveries in parcels.items():
            receiver.send(deliveries)

    def _recipients(self, target: str) -> list["_Connection"]:
        if target.startswith("#"):
            return list(self.receivers.values())
        return [self.receivers[target[1:]]]


class _Connection(asyncio.Protocol):
    def __init__(self, log: FileLog) -> None:
        self._log = log
        self._buffer = FrameBuffer(_FRAME_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._name = ""
        self.next_key = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer.receive_data(data)
        for payload in self._buffer.next_frames():
            sends: list[f.Send] = []
            for frame in f.decode_client_batch(payload):
                if isinstance(frame, f.Send):
                    sends.append(frame)
                elif isinstance(frame, f.Hello):
                    self._greet(frame)
            if sends:
                self._log.put(self, sends)

    def _greet(self, hello: f.Hello) -> None:
        self._name = hello.member or ""
        if hello.receive:
            self._log.receivers[self._name] = self
        self.send([f.Welcome(f.VERSION, "", self._name, self._name, hello.window, _FRAME_BYTES_MAX)])

    def send(self, frames: list[f.Frame]) -> None:
        """Write a batch of frames."""
        if self._transport is not None:
            self._transport.write(encode_frame(f.encode_batch(frames)))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._log.receivers.get(self._name) is self:
            del self._log.receivers[self._name]


async def serve(folder: Path) -> None:
    """Serve until a signal comes."""
    log = FileLog(folder)
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, asked.set)
    log.start()
    try:
        server = await loop.create_unix_server(lambda: _Connection(log), str(folder / HUB_SOCKET))
        async with server:
            await asked.wait()
    finally:
        log.stop()


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1])))
