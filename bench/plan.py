"""The plan that a client process gets, and the result that it returns."""

from msgspec import Struct

from bench.machine import Cpu

BODY = "x" * 200
"""Body of every message."""


class Plan(Struct, frozen=True, kw_only=True):
    """A load on one server."""

    client: str
    """The client that puts the load on the server: a key of `bench.load.CLIENTS`."""
    server_pid: int
    home: str
    http: str = ""
    """Address of a hub's HTTP port; empty for a server that is no hub and has no members and inboxes."""
    address: str = ""
    """Address of a server that is no hub: host and port, or the path of a socket."""
    port: str = ""
    """The hub's port to use, or the request to measure, if a client knows several."""
    senders: int = 1
    recipients: int = 1
    fan_out: bool = False
    """Every message goes to all recipients through a channel; otherwise sender i writes to recipient i."""
    messages: int
    """Measured sends of all senders together."""
    warm_up: int
    """Sends before the measured ones."""
    single: bool = False
    """Messages are sent one at a time, with pauses, and each is measured."""
    window: int = 256
    """Limit of sends of one sender that wait for `accepted`."""
    credit: int = 1024
    """Limit of deliveries of one recipient that wait for its acknowledgement."""
    name: str = "bench"
    """Prefix of the names of members and channels, so that runs on one server do not share any."""

    @property
    def is_hub(self) -> bool:
        """True if the server is a hub, with members to create and inboxes to read."""
        return bool(self.http)

    @property
    def copies(self) -> int:
        """Deliveries of one message."""
        return self.recipients if self.fan_out else 1


class Result(Struct, frozen=True):
    """Time, processor use and counts of a load."""

    seconds: float
    """Time from the first send until the last message was accepted, received and acknowledged."""
    messages: int
    deliveries: int
    server: Cpu
    """Processor time until the server had processed the last acknowledgement and was idle."""
    client_cpu: float
    batches: float
    """Batches of commands that the hub decided during the load; `commits` counts its commits."""
    commits: float
    answered: float = 0.0
    """Median seconds until a single message was answered; `delivered` until its recipient had it."""
    delivered: float = 0.0
