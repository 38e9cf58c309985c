"""The hub's server for the Agent Relay Protocol: it listens on one local socket and has one connection per agent.

Used by: the package `server`, which starts it. Uses: `connection`, one for each client. This module holds the state
that connections share: the connections under each name, the senders that wait for an answer (`sync`), and the shadows
(`shadows`).
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
from tieline.protocols.agent_relay.connection import RelayConnection
from tieline.protocols.agent_relay.error_code import ErrorCode
from tieline.protocols.agent_relay.procedure import Payload
from tieline.protocols.agent_relay.shadows import Shadows
from tieline.protocols.agent_relay.sync import Syncs
from tieline.wire.folder import own_place
from tieline.wire.local import Listener, listen, pipe_name
from tieline.wire.protocol import Server
from tieline.wire.unfinished import Unfinished

HEARTBEAT_MS = 5000  # spec 4
_LISTENERS_MAX = 1000
"""Largest number of connections at which every new agent is announced to all other agents.

With more connections, only agents that give `cli` or `task` in HELLO are announced, to limit the work.
"""


class RelayServer(Server):
    """The server of agent-relay. By default, it listens at `<home>/agent-relay.sock`, or at a named pipe on Windows."""

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
        # Limit on the bytes of incomplete frames, over all connections.
        self.unfinished = unfinished or Unfinished(hub.limits)
        self.path = path
        self.loop = asyncio.get_running_loop()
        self.heartbeat_ms = heartbeat_ms
        self.frame_bytes_max = frame_bytes_max
        self.require_resume_token = require_resume_token
        self.connections: set[RelayConnection] = set()
        # Connections with an open session, by name, the newest last.
        self._present: dict[str, list[RelayConnection]] = {}
        self.syncs = Syncs(self)
        self.shadows: Shadows = Shadows(self)
        self.started_at = self.loop.time()
        self.version = __version__
        self._listener: Listener | None = None
        self._pulse: asyncio.TimerHandle | None = None
        # Part of every id, so that no id repeats after a restart: clients drop an envelope whose id they know.
        self._start = secrets.token_hex(4)
        self._ids = itertools.count(1)

    def places(self) -> Mapping[str, str]:
        """Return the path of the socket, for the hub's file `run.json`, in which commands find it."""
        return {"relay_socket": str(self.path)}

    def now_ms(self) -> int:
        """Return the current time in milliseconds since 1970, for envelopes."""
        return time.time_ns() // 1_000_000

    def next_id(self) -> str:
        """Return a new id for an envelope (protocol message) that the hub sends."""
        return f"h-{self._start}-{next(self._ids)}"

    async def start(self) -> None:
        """Listen on a socket that only the hub's own user can open."""
        if pipe_name(self.path) is None:
            own_place(self.path.parent)
        self._listener = await listen(self.path, lambda: RelayConnection(self), mode=0o600)
        self._check_pulses()

    async def stop(self) -> None:
        """Stop listening, and close all connections. Each client is told that the hub is stopping."""
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

    # Calls of connections.

    def named(self, name: str) -> Sequence[RelayConnection]:
        """Return the connections of the member or tool with this name, the newest last."""
        return self._present.get(name, ())

    def enter(self, connection: RelayConnection, *, ready: bool) -> None:
        """Register a connection with an open session. If `ready` is true, announce the agent to all other agents.

        The caller sets `ready` for a new session, and not for a resumed one.
        """
        if ready:
            self._announce(connection)
        self._present.setdefault(connection.tool or connection.name, []).append(connection)

    def leave(self, connection: RelayConnection) -> None:
        """Remove a closed connection.

        Also forget the answers that it waits for and the copies that it gets as a shadow.

        A shadow is a connection that gets copies of another agent's messages.
        """
        self.connections.discard(connection)
        self.syncs.forget(connection)
        self.shadows.forget(connection)
        name = connection.tool or connection.name
        present = self._present.get(name, [])
        if connection in present:
            present.remove(connection)
            if not present:
                del self._present[name]
                self.shadows.end(connection)

    def _announce(self, newcomer: RelayConnection) -> None:
        """Send the notice AGENT_READY about the agent `newcomer` to all other agents.

        Some agents wait until another agent is ready. But if very many agents are connected, the notice is sent only if
        the HELLO of `newcomer` has `cli` or `task`.
        """
        about = {key: newcomer.about[key] for key in ("cli", "task") if key in newcomer.about}
        if about or len(self.connections) <= _LISTENERS_MAX:
            payload = {"name": newcomer.name, "connectedAt": self.now_ms()} | about
            others = (connections for name, connections in self._present.items() if name != newcomer.name)
            self.tell("AGENT_READY", payload, itertools.chain.from_iterable(others))

    def tell(self, kind: str, payload: Payload, listeners: Iterable[RelayConnection], sender: str = "") -> None:
        """Send the same notice to several connections. Skip connections whose client reads too slowly.

        `kind` is the type of the frame. `sender` is the value of its `from`, if any.
        """
        envelope = codec.Envelope(kind, id=self.next_id(), ts=self.now_ms(), sender=sender or None, payload=payload)
        frame = codec.encode(envelope)
        for listener in listeners:
            listener.tell(frame)
