"""The first frames of a link: a worker says who it is and which contract it speaks, and the hub lets it in or not.

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
    """First frame from a worker."""

    key: str
    """The key of the link, which only processes of this hub know."""
    contract: str
    """Version of the worker's contract; see `contract_version`."""
    program: str
    """Version of the worker's program, for a sentence to people."""


class Welcome(Struct, frozen=True, tag="welcome"):
    """The hub's answer: the link is open."""

    limits: Limits


class Refused(Struct, frozen=True, tag="refused"):
    """The hub's answer: it does not let the worker in, for the reason `why`."""

    why: str


class LinkRefused(ConnectionError):
    """Raised if the hub does not let a worker in. The text says why."""


def say_hello(key: str) -> bytes:
    """Return the first frame of a worker with this key."""
    return msgspec.json.encode(Hello(key, contract_version(), __version__))


def answer_hello(payload: bytes, key: str, limits: Limits) -> Welcome | Refused:
    """Return the hub's answer to the first frame of a worker. `key` is the key that the worker must know."""
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
    return Welcome(limits)


def encode_answer(answer: Welcome | Refused) -> bytes:
    """Return the hub's answer as the payload of a frame."""
    return msgspec.json.encode(answer)


def read_answer(payload: bytes) -> Limits:
    """Return the hub's limits from its answer. Raises `LinkRefused` if the hub does not let the worker in."""
    try:
        answer = msgspec.json.decode(payload, type=Welcome | Refused)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadFrame(f"no answer of a hub: {error}") from error
    if isinstance(answer, Refused):
        raise LinkRefused(answer.why)
    return answer.limits
