"""Base class of the frames (JSON objects) of the hub's own protocol, a number type, and a parser of delivery states."""

from typing import Annotated

from msgspec import Meta, Struct

from tieline.contract.delivery import State
from tieline.contract.refusal import Code, Refusal

Number = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""Type of a whole number of at most 64 bits, so that a database can hold it. JSON itself allows larger numbers."""


class Frame(Struct, frozen=True, omit_defaults=True, tag_field="t"):
    """Base class of all frames: the JSON objects that a client and the hub send each other.

    Field `t` names the kind.
    """


def parse_state(word: str) -> State | Refusal:
    """Return the delivery state with this name, such as `seen`, or a refusal if no state has this name."""
    try:
        return State[word.upper()]
    except KeyError:
        words = ", ".join(state.word for state in State)
        return Refusal(Code.INVALID_REQUEST, f"{word!r} is no state: one of {words}")
