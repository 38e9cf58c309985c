"""What a client process is told to do, and what it tells back."""

from msgspec import Struct

from bench.machine import Cpu

BODY = "x" * 200
"""What every message says."""


class Plan(Struct, frozen=True, kw_only=True):
    """A load on one server."""

    client: str
    """`sdk` is the shipped client; `lean` writes bytes by hand and keeps no future; `redis` speaks to Redis."""
    server_pid: int
    home: str
    http: str = ""
    """Where a hub says its figures; empty for a server that is no hub, without members and inboxes."""
    senders: int = 1
    recipients: int = 1
    fan_out: bool = False
    """Every message goes to all recipients through a channel; otherwise sender i writes to recipient i."""
    messages: int
    """Sends of all senders together that are measured."""
    warm_up: int
    """Sends before them that are not."""
    window: int = 256
    """Sends of one sender that wait for their `accepted`."""
    credit: int = 1024
    """Deliveries of one recipient that wait for its acknowledgement."""
    name: str = "bench"
    """Begins the names of members and channels, so that runs on one server do not meet."""

    @property
    def is_hub(self) -> bool:
        """Whether it has members to make and inboxes to look into."""
        return bool(self.http)

    @property
    def copies(self) -> int:
        """Deliveries of one message."""
        return self.recipients if self.fan_out else 1


class Result(Struct, frozen=True):
    """What a load took."""

    seconds: float
    """From the first send to the last message accepted, received and acknowledged."""
    messages: int
    deliveries: int
    server: Cpu
    """Until the server had taken the last acknowledgement and come to rest."""
    client_cpu: float
    batches: float
    """What a hub decided in one go, and how often it committed, meanwhile."""
    commits: float
