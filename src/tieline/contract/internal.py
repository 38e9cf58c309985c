"""`Internal[T]`: the type of a field that only the hub's own code sets. The hub's own protocol and the SDK omit it."""

from typing import Annotated, TypeVar

_T = TypeVar("_T")

INTERNAL = "internal"

Internal = Annotated[_T, INTERNAL]
