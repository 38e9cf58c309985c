"""The first frames of a link: a worker sends its key and its version of the contract, and the hub accepts or refuses.

Used by: both ends of a link. Uses: the version of the contract. These frames are JSON objects, and only get more
fields, so that two programs with different contracts still understand why they cannot work together.
"""

import hmac

import msgspec
from msgspec import Struct

from tieline import __version__
from tieline.contract.limits import Limits
from tieline.wire.hub_link.codec import BadFrame, contract_version


class Hello(Struct, frozen=True):
    """First frame from a worker: its key, its versions, and the link that it continues, if any."""

    key: str
    """The key of the link, which only processes of this hub know."""
    contract: str
    """Version of the worker's contract; see `contract_version`."""
    program: str
    """Version of the worker's program, for a sentence to people."""
    link: str = ""
    """Id of the link that lost its connection. Empty for a new link."""
    received: int = 0
    """Number of the hub's frames that the worker has taken on this link."""


class Welcome(Struct, frozen=True, tag="welcome"):
    """The hub's answer: the link is open. It has the hub's limits and the state of the link."""

    limits: Limits
    link: str
    """Id of the link. The worker alone knows it, and shows it when it connects again."""
    received: int
    """Number of the worker's frames that the hub has taken on this link."""


class Refused(Struct, frozen=True, tag="refused"):
    """The hub's answer: it does not let the worker in, for the reason `why`."""

    why: str


class LinkRefused(ConnectionError):
    """Raised if the hub does not let a worker in. The text says why."""


def say_hello(key: str, link: str = "", received: int = 0) -> bytes:
    """Return the first frame of a worker with this key.

    A worker that connects again names its `link`, and the number of the hub's frames that it has taken (`received`).
    """
    return msgspec.json.encode(Hello(key, contract_version(), __version__, link, received))


def check_hello(payload: bytes, key: str) -> Hello | Refused:
    """Return the first frame of a worker, or the reason to refuse it. `key` is the key that the worker must know."""
    try:
        hello = msgspec.json.decode(payload, type=Hello)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Refused("a worker must first say its key and its version")
    if not hmac.compare_digest(hello.key.encode(errors="replace"), key.encode()):
        return Refused("the key of this worker is not the key of the hub")
    if hello.contract != contract_version():
        return Refused(
            f"this worker is Tieline {hello.program} with contract {hello.contract}, and the hub is Tieline "
            f"{__version__} with contract {contract_version()}; start both from the same installation"
        )
    return hello


def encode_answer(answer: Welcome | Refused) -> bytes:
    """Return the hub's answer as the payload of a frame."""
    return msgspec.json.encode(answer)


def read_answer(payload: bytes) -> Welcome:
    """Return the answer of the hub. Raises `LinkRefused` if the hub does not let the worker in."""
    try:
        answer = msgspec.json.decode(payload, type=Welcome | Refused)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadFrame(f"no answer of a hub: {error}") from error
    if isinstance(answer, Refused):
        raise LinkRefused(answer.why)
    return answer
