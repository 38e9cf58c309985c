"""peerbus's extension of the command line: frames through a pipe, export of the log, and import of a server's database.

Used by: the command line, which finds `PeerbusCommands` through the protocol's declaration. Uses: the running hub's
socket, or the home of a hub that does not run.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tieline.cli.doctor_finding import DoctorFinding, note
from tieline.cli.extension import Command, Export, Extension
from tieline.protocols.peerbus import SOCKET
from tieline.protocols.peerbus.settings import PeerbusSettings

if TYPE_CHECKING:
    from tieline.core.audit import Inspection

_HELP = """\
The peerbus format is a database for `peerbus audit verify`: its own chain of send, deliver and ack rows, one for each
recipient. It is written only if this hub's own chain is intact."""


def _write(inspection: "Inspection", path: Path) -> int:
    from tieline.protocols.peerbus.commands.audit import write

    return write(inspection, path)


class PeerbusCommands(Extension):
    """peerbus's extension of the command line: its commands, its export format, and its checks for `tieline doctor`."""

    exports = (Export(form="peerbus", summary="as a peerbus database", help=_HELP, write=_write),)
    sockets = (SOCKET,)

    def commands(self) -> Iterator[Command]:
        """Yield the command `peerbus` (frames through a pipe), and the import of a peerbus server's database."""
        from tieline.protocols.peerbus.commands.importing import import_peerbus
        from tieline.protocols.peerbus.commands.stdio import peerbus_app

        yield Command(
            name="peerbus",
            run=peerbus_app,
            panel="Agents",
            summary="Use peerbus through a pipe, and manage its names.",
            examples={"retoken": ("tieline peerbus retoken bob",), "stdio": ("tieline peerbus stdio",)},
        )
        examples = {"": ("tieline import peerbus peerbus.db",)}
        yield Command(name="peerbus", run=import_peerbus, group="import", examples=examples)

    def documents(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the types of what the commands of peerbus print with `--json`."""
        from tieline.protocols.peerbus.commands.importing import PeerbusImportCounts
        from tieline.protocols.peerbus.commands.retoken import Retokened

        return {"import peerbus": {"": PeerbusImportCounts}, "peerbus retoken": {"": Retokened}}

    def listeners(self, places: Mapping[str, str | None]) -> Iterator[str]:
        """Yield the addresses at which a hub listens for peers. `places` are the hub's entries in `run.json`.

        The addresses are the Unix socket, and the separate port if there is one.
        """
        for place in ("peerbus_socket", "peerbus"):
            where = places.get(place)
            if where is not None:
                yield where

    def look_at_settings(self, settings: PeerbusSettings, path: Path) -> Iterator[DoctorFinding]:
        """Yield a finding for `tieline doctor` if the hub has no secret, and so cannot sign messages to peers."""
        if settings.enabled and not settings.hmac_secret:
            why = "messages of other protocols to peers are refused, because the hub cannot sign them"
            yield note("home", f"peerbus has no secret: {why}", f"set hmac_secret under [peerbus] in {path}")
