"""The desk: what the protocol keeps of its own beside the hub's store, and the routes that need it.

Above: the server. Below: files, logins and enrolments. All of them give members something without asking the member
first, so they act with the key of the hub's home.
"""

import os
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from tieline.contract.hub import Hub
from tieline.contract.member import Credential
from tieline.protocols.ac7.enrolment import Enrolments
from tieline.protocols.ac7.enrolment_routes import EnrolmentRoutes
from tieline.protocols.ac7.file_routes import FileRoutes
from tieline.protocols.ac7.files import Files
from tieline.protocols.ac7.login_routes import LoginRoutes
from tieline.protocols.ac7.operator import Operator
from tieline.protocols.ac7.passes import Passes
from tieline.protocols.ac7.route import Route
from tieline.protocols.ac7.upkeep import Upkeep


class Keeping(Struct, frozen=True):
    """Where things are kept."""

    key: Credential
    files: Files
    folder: Path | None
    """The folder of what is kept of logins; none beside a store that forgets."""


class Desk:
    """Files, logins and enrolments."""

    def __init__(self, hub: Hub, keeping: Keeping, now_ms: Callable[[], int]) -> None:
        operator = Operator(hub, keeping.key)
        self.passes = Passes(operator, keeping.folder, now_ms, os.urandom)
        self._files = FileRoutes(keeping.files)
        self._logins = LoginRoutes(hub, operator, self.passes)
        self._enrolments = EnrolmentRoutes(operator, Enrolments(os.urandom), now_ms)
        self._upkeep = Upkeep(hub, operator, keeping.files, self.passes)

    def routes(self) -> list[Route]:
        """The operations."""
        return [*self._files.routes(), *self._logins.routes(), *self._enrolments.routes()]

    async def start(self) -> None:
        """Put in order what was left behind."""
        await self._upkeep.start()

    async def stop(self) -> None:
        """Finish what was begun, and let go of the disk."""
        self._enrolments.close()
        await self._upkeep.stop()
