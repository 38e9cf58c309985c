"""Extensions: the protocols' parts of the command line, such as commands, formats and checks.

Used by: every command that uses extensions. Uses: the folder of each protocol, whose declaration makes its extension.
This module does not name any protocol.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from tieline.protocols import protocols

if TYPE_CHECKING:
    from tieline.cli.doctor_finding import DoctorFinding, Examined
    from tieline.cli.failure import Failure
    from tieline.cli.mailbox import MailboxProvider
    from tieline.cli.session import Link
    from tieline.core.audit import Inspection


class Command(Struct, frozen=True, kw_only=True):
    """A command, or a group of commands, that a protocol adds to `tieline`: name, function, place in the help."""

    name: str
    run: Callable[..., None] | typer.Typer
    group: str = ""
    """Group of the command, such as `import`; empty for a command without a group."""
    panel: str = ""
    """Heading of the command in the help: Messages, Agents, Team, Operate or Data. Not needed in a group."""
    summary: str = ""
    """Sentence about the command in the help. If it is empty, the command shares the line of the one before it."""
    examples: Mapping[str, tuple[str, ...]] = {}
    """Examples for the help, of the command (with an empty name) or of each command of the group, by its name."""


class Export(Struct, frozen=True, kw_only=True):
    """A format in which `tieline audit export` writes the log to a file."""

    form: str
    """Name of the format, for `--format`."""
    summary: str
    """Text about the format, which ends the first sentence of the command's help."""
    help: str
    """Paragraph about the format in the command's help."""
    write: "Callable[[Inspection, Path], int]"
    """Function that writes the whole log to a new file and returns the number of rows. Raises `Failure`."""


class Extension:
    """A protocol's part of the command line: its commands, export formats, mailboxes and checks for the doctor.

    A protocol overrides only the parts that it needs.
    """

    variables: Sequence[str] = ()
    """Environment variables of the protocol that `tieline --help` lists."""
    prefixes: Sequence[str] = ()
    """Prefixes of environment variables, in addition to `TIELINE_`. Variables with these prefixes carry the parts of a
    message to the command of `watch --exec`."""
    exports: Sequence[Export] = ()
    """Further formats for `tieline audit export`."""
    sockets: Sequence[str] = ()
    """File names of the protocol's sockets in a hub's home folder. The doctor checks that their paths are not too long.
    """

    counts: Mapping[str, type] = MappingProxyType({})
    """Names and types of the counts that `look_at_data` returns."""

    def commands(self) -> Iterable[Command]:
        """Return the commands that the protocol adds to `tieline`."""
        return ()

    def documents(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the types of the JSON documents that the protocol's commands print.

        Also return the types of those that other commands print without a hub. The keys are the words of a command,
        such as `member add`, and then the name of a case. The usual case has an empty name.
        """
        return {}

    def failure(self, error: Exception) -> "Failure | None":
        """Return the failure (message and exit code) for an error of this protocol; `None` for any other error."""
        del error
        return None

    def mailbox_provider(self) -> "MailboxProvider | None":
        """Return the provider of mailboxes (messages in a folder, without a hub), if the protocol has one."""
        return None

    def listeners(self, places: Mapping[str, str | None]) -> Iterable[str]:
        """Return the socket paths and URLs at which the protocol answers while the hub runs. The doctor checks them.

        `places` are the addresses in the hub's file `run.json`, by name.
        """
        del places
        return ()

    def look_at_settings(self, settings: Any, path: Path) -> "Iterable[DoctorFinding]":
        """Return findings for the doctor about faults in the protocol's settings. `path` is the configuration file."""
        del settings, path
        return ()

    def look_at_members(self, places: Mapping[str, str | None], names: Sequence[str]) -> "Iterable[DoctorFinding]":
        """Return findings for the doctor about members of a running hub whom the protocol does not reach.

        `names` are the members to check. `places` are the addresses in the hub's file `run.json`, by name.
        """
        del places, names
        return ()

    def look_at_data(self, link: "Link", *, repair: bool) -> "Examined | None":
        """Check the data that the protocol keeps beside the hub, for the doctor. Return `None` if there is none.

        With `repair`, repair faults whose repair loses no data.
        """
        del link, repair
        return None


def extensions() -> tuple[Extension, ...]:
    """Return the extensions of all protocols that have one, sorted by the protocol's name."""
    return tuple(extensions_by_name().values())


def extensions_by_name() -> dict[str, Extension]:
    """Return the extensions of all protocols that have one, by the protocol's name."""
    return {protocol.name: protocol.commands() for protocol in protocols() if protocol.commands is not None}


def offer(command: Callable[..., None], name: str, values: Sequence[str]) -> None:
    """Change the signature of a command, so that its option `name` accepts only the values in `values`.

    Some values come from the protocols, so they cannot be written in the command's signature.
    """
    make: Any = StrEnum
    kind = make(name, {value: value for value in values})
    signature = inspect.signature(command)
    parameter = signature.parameters[name]
    (option,) = parameter.annotation.__metadata__
    changed = parameter.replace(annotation=Annotated[kind, option])
    own = [changed if each is parameter else each for each in signature.parameters.values()]
    command.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
