"""Extensions: the protocols' parts of the command line.

Above: every command that uses extensions. Below: the folder of each protocol, whose declaration makes its extension. It
refuses to know a protocol by its name.
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
    """A command of a protocol, or a group of commands."""

    name: str
    run: Callable[..., None] | typer.Typer
    group: str = ""
    """Group of the command, such as `import`; empty for none."""
    panel: str | None = None
    """Heading of the command in the help."""
    after: str = ""
    """Name of the command before this one in the help; empty for the last place."""


class Export(Struct, frozen=True, kw_only=True):
    """A format in which `tieline audit export` writes the log to a file."""

    form: str
    """Name of the format, for `--format`."""
    summary: str
    """The end of the first sentence of the help."""
    help: str
    """A paragraph of the help."""
    write: "Callable[[SqliteInspection, Path], int]"
    """Callback: write the whole log to a new file and return the number of rows. Raises `Failure`."""


class Extension:
    """A protocol's part of the command line. A protocol overrides only the parts that it needs."""

    variables: Sequence[str] = ()
    """Environment variables that `tieline --help` lists."""
    prefixes: Sequence[str] = ()
    """Prefixes of further variables that carry the parts of a message to a command of `watch --exec`."""
    exports: Sequence[Export] = ()
    """Formats of the audit log."""
    sockets: Sequence[str] = ()
    """Sockets in the home of a hub. Their paths must not be too long."""

    def commands(self) -> Iterable[Command]:
        """Return the protocol's commands."""
        return ()

    def failure(self, error: Exception) -> "Failure | None":
        """Return the failure for an error of this protocol; `None` for any other error."""
        del error
        return None

    def mailbox_provider(self) -> "MailboxProvider | None":
        """Return the provider of mailboxes without a hub, if the protocol has one."""
        return None

    def listeners(self, places: Mapping[str, str | None]) -> Iterable[str]:
        """Return the socket paths and URLs that answer while the hub runs. `places` is from the hub's `run.json`."""
        del places
        return ()

    def look_at_settings(self, settings: Any, path: Path) -> "Iterable[DoctorFinding]":
        """Tell the doctor about faults in the settings. `path` is the file of the settings."""
        del settings, path
        return ()

    def look_at_members(self, places: Mapping[str, str | None], names: Sequence[str]) -> "Iterable[DoctorFinding]":
        """Tell the doctor which members of a running hub the protocol does not reach."""
        del places, names
        return ()

    def look_at_data(self, link: "Link", *, repair: bool) -> "Examined | None":
        """Tell the doctor about the data beside the hub. With `repair`, repair faults if that loses nothing."""
        del link, repair
        return None


def extensions() -> tuple[Extension, ...]:
    """Return the extensions of all protocols that have one, sorted by the protocol's name."""
    return tuple(extensions_by_name().values())


def extensions_by_name() -> dict[str, Extension]:
    """Return the extensions of all protocols that have one, by the protocol's name."""
    return {protocol.name: protocol.commands() for protocol in protocols() if protocol.commands is not None}


def offer(command: Callable[..., None], name: str, values: Sequence[str]) -> None:
    """Limit an option of a command to these values. The values of all protocols are known only at this time."""
    make: Any = StrEnum
    kind = make(name, {value: value for value in values})
    signature = inspect.signature(command)
    parameter = signature.parameters[name]
    (option,) = parameter.annotation.__metadata__
    changed = parameter.replace(annotation=Annotated[kind, option])
    own = [changed if each is parameter else each for each in signature.parameters.values()]
    command.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
