"""`Internal`, the mark of a field that stays within the hub: the hub's own protocol and the SDK leave it out."""

from typing import Annotated, TypeVar

_T = TypeVar("_T")

INTERNAL = "internal"

Internal = Annotated[_T, INTERNAL]
