"""Extensions: the protocols' parts of the command line.

Above: every command that has a place for them. Below: the folder of each protocol, whose declaration makes its
extension. It refuses to know a protocol by its name.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from tieline.protocols import protocols

if TYPE_CHECKING:
    from tieline.cli.doctor_finding import DoctorFinding, Examined
    from tieline.cli.failure import Failure
    from tieline.cli.mailbox import MailboxProvider
    from tieline.cli.session import Link
    from tieline.stores.sqlite.inspection import SqliteInspection


class Command(Struct, frozen=True, kw_only=True):
    """A command, or a group of them, that is a protocol's own."""

    name: str
    run: Callable[..., None] | typer.Typer
    group: str = ""
    """The group that it belongs to, such as `import`; empty for none."""
    panel: str | None = None
    """Its heading in the help."""
    after: str = ""
    """The one that it comes after in the help; empty for the last place."""


class Export(Struct, frozen=True, kw_only=True):
    """A form in which `tieline audit export` writes the log, to a file."""

    form: str
    """Its name, for `--format`."""
    summary: str
    """The end of the first sentence of the help."""
    help: str
    """A paragraph of the help."""
    write: "Callable[[SqliteInspection, Path], int]"
    """Write the whole log to a new file; returns how many rows that has. Raises `Failure`."""


class Extension:
    """A protocol's part of the command line. Any of it may be left as it is."""

    variables: Sequence[str] = ()
    """Variables of the environment that `tieline --help` tells of."""
    prefixes: Sequence[str] = ()
    """Beginnings of variables by which a command of `watch --exec` finds the parts of a message too."""
    exports: Sequence[Export] = ()
    """Its forms of the audit log."""
    sockets: Sequence[str] = ()
    """Its sockets in the home of a hub, for whose paths there must be room."""

    def commands(self) -> Iterable[Command]:
        """Its commands."""
        return ()

    def failure(self, error: Exception) -> "Failure | None":
        """The failure that an error of its own stands for; `None` for an error that is not."""
        del error
        return None

    def mailbox_provider(self) -> "MailboxProvider | None":
        """The way to work without a hub, if it has one."""
        return None

    def listeners(self, places: Mapping[str, str | None]) -> Iterable[str]:
        """The paths of sockets and the URLs that answer while the hub runs that wrote these entries of `run.json`."""
        del places
        return ()

    def look_at_settings(self, settings: Any, path: Path) -> "Iterable[DoctorFinding]":
        """Tell the doctor what settings lack. They are in this file."""
        del settings, path
        return ()

    def look_at_members(self, places: Mapping[str, str | None], names: Sequence[str]) -> "Iterable[DoctorFinding]":
        """Tell the doctor which members of a running hub it does not reach."""
        del places, names
        return ()

    def look_at_data(self, link: "Link", *, repair: bool) -> "Examined | None":
        """Tell the doctor about what it keeps beside the hub; with `repair`, put right what loses nothing."""
        del link, repair
        return None


def extensions() -> tuple[Extension, ...]:
    """The extension of every protocol that has one, by the protocol's name."""
    return tuple(extensions_by_name().values())


def extensions_by_name() -> dict[str, Extension]:
    """The same under the names of the protocols."""
    return {protocol.name: protocol.commands() for protocol in protocols() if protocol.commands is not None}


def offer(command: Callable[..., None], name: str, values: Sequence[str]) -> None:
    """Let an option of a command take these values and no others: those of all protocols are known only now."""
    make: Any = StrEnum
    kind = make(name, {value: value for value in values})
    signature = inspect.signature(command)
    parameter = signature.parameters[name]
    (option,) = parameter.annotation.__metadata__
    changed = parameter.replace(annotation=Annotated[kind, option])
    own = [changed if each is parameter else each for each in signature.parameters.values()]
    command.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
