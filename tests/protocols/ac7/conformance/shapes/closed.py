"""Base types of all answer shapes, and the shapes of refusals and of the health route."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from tests.protocols.ac7.conformance.events import Count

Name = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9._-]{1,128}$")]
Slug = Annotated[str, Meta(pattern=r"^(?:[a-z0-9](?:[a-z0-9]|-(?!-))*[a-z0-9]|[a-z0-9])$", max_length=32)]
Path = Annotated[str, Meta(pattern=r"^/(?:[a-zA-Z0-9._ -]+(?:/[a-zA-Z0-9._ -]+)*)?$", max_length=1024)]
Level = Literal["debug", "info", "notice", "warning", "error", "critical"]
Permission = Literal[
    "team.manage",
    "members.manage",
    "objectives.create",
    "objectives.cancel",
    "objectives.reassign",
    "objectives.watch",
    "activity.read",
]


class Closed(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Base class of answers with exactly these keys. Keys without the default `UNSET` are required."""


class Failure(Closed, frozen=True):
    """Answer of the hub to a refused request."""

    error: Annotated[str, Meta(min_length=1)]
    code: str | UnsetType = UNSET
    details: list[dict[str, Any]] | UnsetType = UNSET
    retry_after: Count | UnsetType = UNSET
    error_description: str | UnsetType = UNSET
    got: int | str | UnsetType = UNSET
    expected: int | UnsetType = UNSET


class Health(Closed, frozen=True):
    """Answer of the health route."""

    status: Literal["ok"]
    version: str
