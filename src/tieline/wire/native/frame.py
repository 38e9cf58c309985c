"""What every frame of the hub's own protocol is made of."""

from typing import Annotated

from msgspec import Meta, Struct

Number = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""A number that a store can be asked with: JSON knows larger ones."""


class Frame(Struct, frozen=True, omit_defaults=True, tag_field="t"):
    """The root of all frames."""
