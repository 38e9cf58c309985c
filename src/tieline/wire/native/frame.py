"""Base of all frames of the hub's own protocol."""

from typing import Annotated

from msgspec import Meta, Struct

from tieline.contract.delivery import State
from tieline.contract.refusal import Code, Refusal

Number = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""A number that fits a store: 64 bits. JSON also has larger numbers."""


class Frame(Struct, frozen=True, omit_defaults=True, tag_field="t"):
    """The root of all frames."""


def parse_state(word: str) -> State | Refusal:
    """Parse the name of a delivery state."""
    try:
        return State[word.upper()]
    except KeyError:
        words = ", ".join(state.word for state in State)
        return Refusal(Code.INVALID_REQUEST, f"{word!r} is no state: one of {words}")
