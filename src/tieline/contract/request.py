"""Base classes of commands. The type parameter of a base class names the type of the reply."""

from typing import Generic, TypeVar

from msgspec import Struct

from tieline.contract.identifiers import SessionId

_R_co = TypeVar("_R_co", covariant=True)


class AnsweredBy(Struct, Generic[_R_co], frozen=True):
    """Base class of all commands. The type parameter is the type of the reply; any command may also be refused."""


class SessionCommand(AnsweredBy[_R_co], Generic[_R_co], frozen=True):
    """Base class of commands that an open session gives."""

    session: SessionId


class Request(SessionCommand[_R_co], Generic[_R_co], frozen=True):
    """Base class of session commands that a client may also give over the hub's own protocol."""
