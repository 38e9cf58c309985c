"""Rules: a rule is a method that decides one kind of command, marked by `@decides`. The broker makes a table of them.

Used by: the broker, and the modules that have rules in classes that inherit from `Rules`. Uses: the types of commands,
replies and sessions.
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

from tieline.contract import command as c
from tieline.contract.reply import Reply
from tieline.core.directory import Session
from tieline.core.outcome import Deferred

Rule = Callable[[Session, Any], Reply | Deferred]

_Owner = TypeVar("_Owner")
_Command = TypeVar("_Command", bound=c.Command)
_Reply = TypeVar("_Reply", bound=Reply | Deferred)
_Method = Callable[[_Owner, Session, _Command], _Reply]

_COMMAND = "decided_command"
"""Name of the attribute in which a rule keeps its command type."""


def decides(kind: type[_Command]) -> Callable[[_Method[_Owner, _Command, _Reply]], _Method[_Owner, _Command, _Reply]]:
    """Decorator: make a method the rule for commands of the type `kind`.

    The type checker verifies that the method takes commands of this type.
    """

    def mark(method: _Method[_Owner, _Command, _Reply]) -> _Method[_Owner, _Command, _Reply]:
        setattr(method, _COMMAND, kind)
        return method

    return mark


class Rules:
    """Base class of classes that have rules (methods that decide one kind of command each)."""

    __slots__ = ()

    _names: ClassVar[dict[type[Any], str]] = {}
    """Each command type that the class decides, and the name of the method that is its rule."""

    def __init_subclass__(cls) -> None:
        found = ((getattr(method, _COMMAND, None), name) for name, method in vars(cls).items())
        cls._names = {kind: name for kind, name in found if kind is not None}

    def rules(self) -> Iterator[tuple[type[Any], Rule]]:
        """Return an iterator over the command types that this object decides, each with its rule (a method)."""
        return ((kind, getattr(self, name)) for kind, name in self._names.items())
