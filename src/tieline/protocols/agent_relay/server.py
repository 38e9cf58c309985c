"""The Agent Relay Protocol as a protocol of the hub: one local socket, one connection per agent.

Above: the server's assembly. Below: `connection`, one for each client. What concerns more than one of them is here:
who is connected under which name, who waits for whose answer (`sync`), who shadows whom (`shadows`).
"""

import asyncio
import itertools
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tieline import __version__
from tieline.contract.hub import Hub
from tieline.protocols.agent_relay import codec
from tieline.protocols.agent_relay.codec import ErrorCode
from tieline.protocols.agent_relay.connection import RelayConnection
from tieline.protocols.agent_relay.procedure import Payload
from tieline.protocols.agent_relay.shadows import Shadows
from tieline.protocols.agent_relay.sync import Syncs
from tieline.wire.folder import own_place
from tieline.wire.local import Listener, listen, pipe_name
from tieline.wire.protocol import Server
from tieline.wire.unfinished import Unfinished

HEARTBEAT_MS = 5000  # as the protocol's own broker has it


class RelayServer(Server):
    """`<home>/agent-relay.sock`, or a named pipe on Windows."""

    def __init__(
        self,
        hub: Hub,
        path: Path,
        *,
        heartbeat_ms: int = HEARTBEAT_MS,
        frame_bytes_max: int = codec.FRAME_BYTES_MAX,
        require_resume_token: bool = False,
        unfinished: Unfinished | None = None,
    ) -> None:
        self.hub = hub
        # What all connections may hold of frames that are not whole yet.
        self.unfinished = unfinished or Unfinished(hub.limits)
        self.path = path
        self.loop = asyncio.get_running_loop()
        self.heartbeat_ms = heartbeat_ms
        self.frame_bytes_max = frame_bytes_max
        self.require_resume_token = require_resume_token
        self.connections: set[RelayConnection] = set()
        # Connections whose session is open, by name, the newest last.
        self._present: dict[str, list[RelayConnection]] = {}
        self.syncs = Syncs(self)
        self.shadows = Shadows(self)
        self.started_at = self.loop.time()
        self.version = __version__
        self._listener: Listener | None = None
        self._pulse: asyncio.TimerHandle | None = None
        # In every id, so that none is that of an earlier start: clients drop what has an id that they know.
        self._start = secrets.token_hex(4)
        self._ids = itertools.count(1)

    def places(self) -> Mapping[str, str]:
        """The socket."""
        return {"relay_socket": str(self.path)}

    def now_ms(self) -> int:
        """Milliseconds since the epoch, for envelopes."""
        return time.time_ns() // 1_000_000

    def next_id(self) -> str:
        """An id for an envelope of the hub."""
        return f"h-{self._start}-{next(self._ids)}"

    async def start(self) -> None:
        """Listen, for the hub's own user alone."""
        if pipe_name(self.path) is None:
            own_place(self.path.parent)
        self._listener = await listen(self.path, lambda: RelayConnection(self), mode=0o600)
        self._check_pulses()

    async def stop(self) -> None:
        """Say goodbye to everybody and stop listening."""
        if self._pulse is not None:
            self._pulse.cancel()
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections):
            connection.fail(ErrorCode.SHUTTING_DOWN, "the hub is stopping; connect again later", fatal=False)

    def _check_pulses(self) -> None:
        now = self.loop.time()
        for connection in list(self.connections):
            connection.check_pulse(now)
        self._pulse = self.loop.call_later(self.heartbeat_ms / 4000, self._check_pulses)

    # What connections call.

    def named(self, name: str) -> Sequence[RelayConnection]:
        """The connections of a member, the newest last."""
        return self._present.get(name, ())

    def enter(self, connection: RelayConnection, *, ready: bool) -> None:
        """A session is open; `ready` is said of a new one."""
        if ready:
            self._announce(connection)
        self._present.setdefault(connection.name, []).append(connection)

    def leave(self, connection: RelayConnection) -> None:
        """A connection is gone."""
        self.connections.discard(connection)
        self.syncs.forget(connection)
        self.shadows.forget(connection)
        present = self._present.get(connection.name, [])
        if connection in present:
            present.remove(connection)
            if not present:
                del self._present[connection.name]
                self.shadows.end(connection)

    def _announce(self, newcomer: RelayConnection) -> None:
        """Tell the others of an agent that says what it runs, because whoever started it may wait for it."""
        about = {key: newcomer.about[key] for key in ("cli", "task") if key in newcomer.about}
        if about:
            payload = {"name": newcomer.name, "connectedAt": self.now_ms()} | about
            self.tell("AGENT_READY", payload, itertools.chain.from_iterable(self._present.values()))

    def tell(self, kind: str, payload: Payload, listeners: Iterable[RelayConnection], sender: str = "") -> None:
        """Send the same news to several connections: to those that keep up."""
        envelope = codec.Envelope(kind, id=self.next_id(), ts=self.now_ms(), sender=sender or None, payload=payload)
        frame = codec.encode(envelope)
        for listener in listeners:
            listener.tell(frame)
