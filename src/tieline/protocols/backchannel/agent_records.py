"""The agent records (`agents/<name>.json`) of a spool: finds changed records, and writes members' channels into them.

Used by: `adoption`, which connects a spool to a hub. Uses: the spool. Local programs read the records to find the
agents that they can write to, and the agents in a channel. So every member of the hub gets a record. A record does not
contain the member's token. The methods use the disk, so call them on threads.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence

import structlog

from tieline.protocols.backchannel.claims import SUFFIX
from tieline.protocols.backchannel.codec import check_name
from tieline.protocols.backchannel.record import AgentRecord
from tieline.protocols.backchannel.spool import Spool, SpoolBroken

log = structlog.get_logger(__name__)

_Signature = tuple[int, int, int]
"""Modification time, size and inode of a file. If one of these values has changed, the content may have changed."""
_UNSEEN: _Signature = (0, 0, 0)


class AgentRecords:
    """The agent records of one spool. Remembers which version of each record was read last."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._seen: dict[str, _Signature] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._seen

    def forget(self) -> None:
        """Forget which records were read, so that the next call of `changed` returns all records."""
        self._seen = {}

    def changed(self) -> dict[str, AgentRecord | None]:
        """Return the records that are new or may have changed since the last call, by name.

        The value is `None` for a record that is gone.
        """
        now = self._signatures()
        changed: dict[str, AgentRecord | None] = {name: None for name in self._seen if name not in now}
        for name, signature in now.items():
            if self._seen.get(name) == signature:
                continue
            try:
                record = self._spool.record(name)
            except SpoolBroken as error:
                log.warning("a record of the spool is passed over", member=name, reason=str(error))
                continue
            if record is not None:
                changed[name] = record
        self._seen = now
        return changed

    def _signatures(self) -> dict[str, _Signature]:
        found: dict[str, _Signature] = {}
        with os.scandir(self._spool.root / "agents") as entries:
            for entry in entries:
                name = entry.name.removesuffix(SUFFIX)
                if name != entry.name and check_name(name) is None:
                    with contextlib.suppress(FileNotFoundError):
                        known = entry.stat(follow_symlinks=False)
                        found[name] = (known.st_mtime_ns, known.st_size, known.st_ino)
        return found

    def write(self, channels: Mapping[str, Sequence[str]]) -> None:
        """Write the channels of these members into their records. `channels` has all channels of each member."""
        self._spool.describe(channels)
        # The records are known, but not read yet. So the next check notices if one was removed at once.
        self._seen.update(dict.fromkeys(channels, _UNSEEN))

    def remove(self, name: str) -> None:
        """Remove the record (`agents/<name>.json`) of the agent `name`."""
        self._spool.remove_record(name)
        self._seen.pop(name, None)
