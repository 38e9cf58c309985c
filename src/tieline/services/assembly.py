"""The services of one hub in addition to messages. They are created once, for all protocols and the console.

Used by: the package `server`, which starts it. Uses: files, logins, devices, and the interface `contract.hub`. The
services act for members that have no session with the hub. For this, they use the key in the hub's home folder. Whoever
has this key may act as any member.
"""

import os
from collections.abc import Callable

from tieline.contract.file import FileCatalogue
from tieline.contract.hub import Hub
from tieline.contract.member import Credential
from tieline.services.devices import Devices
from tieline.services.document import Document
from tieline.services.enrolments import Enrolments
from tieline.services.files.attachments import Attachments
from tieline.services.files.blobs import BlobStore
from tieline.services.files.files import Files
from tieline.services.files.transfer import Transfers
from tieline.services.login_sessions import LoginSessions
from tieline.services.operator import Operator
from tieline.services.upkeep import Upkeep


class Services:
    """All services of one hub: files, logins and devices."""

    def __init__(
        self,
        hub: Hub,
        key: Credential,
        catalogue: FileCatalogue,
        blobs: BlobStore,
        logins: Document,
        now_ms: Callable[[], int],
    ) -> None:
        self.now_ms = now_ms
        self.operator = Operator(hub, key)
        self.files = Files(catalogue, blobs, now_ms)
        self.transfers = Transfers(self.files)
        self.attachments = Attachments(self.files, now_ms)
        self.logins = LoginSessions(hub, self.operator, logins, now_ms, os.urandom)
        self.devices = Devices(self.operator, Enrolments(os.urandom), now_ms)
        self._upkeep = Upkeep(hub, self.operator, self.files, self.logins)

    async def start(self) -> None:
        """Start the services.

        Delete incomplete uploads of the last run, and the data of removed members, now and later.
        """
        await self._upkeep.start()

    async def stop(self) -> None:
        """Finish running work, and close the store of files."""
        self.devices.close()
        await self._upkeep.stop()
