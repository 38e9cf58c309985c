"""The upgrade of a home: a backup before a newer program changes the databases, and one line that says what changes.

Used by: `tieline serve`. Uses: `archive`. A program that is older than the databases refuses them and names the backup.
"""

import contextlib
import shlex
import time
from pathlib import Path

import apsw

from tieline.cli.archive import ArchiveError, write_archive
from tieline.cli.output import own_name
from tieline.core.store import StoreError
from tieline.stores.sqlite.activity import ACTIVITY_FILE
from tieline.stores.sqlite.database import UPGRADE_FOLDER, newest_version, open_for_reading, upgrade_backups
from tieline.stores.sqlite.files import FILES_FILE
from tieline.stores.sqlite.store import MAIN_FILE

_SCHEMAS = {MAIN_FILE: "main", ACTIVITY_FILE: "activity", FILES_FILE: "files"}
"""Databases that hold what cannot be made again, and their schemas."""


def prepare_upgrade(home: Path) -> str:
    """Back up a home that an older program wrote, before its databases are changed. Return one line about it.

    Call this with the lock of the home, as the last step before the databases are changed. Each call makes a new backup
    and then removes older backups of the same schemas. An older backup may be out of date: if the upgrade failed
    before, the older program may have run for weeks since.

    The line is empty if there is nothing to change. If no backup can be made, the line says so. The change loses no
    data, but without a backup the older program cannot be used again.
    """
    versions = tuple(_version(home / name) for name in _SCHEMAS)
    changes = {
        name: (version, newest_version(schema))
        for (name, schema), version in zip(_SCHEMAS.items(), versions, strict=True)
        if version
    }
    older = [f"{name} {version} → {newest}" for name, (version, newest) in changes.items() if version < newest]
    if not older or any(version > newest for version, newest in changes.values()):
        return ""
    what = f"An older Tieline wrote this home; its databases get new schemas: {', '.join(older)}."
    folder = home / UPGRADE_FOLDER
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    file = folder / f"{'-'.join(map(str, versions))}-{stamp}.tar.gz"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        before = [path for path, found in upgrade_backups(home) if found == versions and path != file]
        write_archive(home, file)
    except (ArchiveError, StoreError, OSError) as error:
        return f"{what} No backup was made before, so there is no way back: {error}"
    for path in before:
        with contextlib.suppress(OSError):
            path.unlink()
    return f"{what} To go back: {own_name()} restore {shlex.quote(str(file))} --home DIR"


def _version(path: Path) -> int:
    """Return the version of a database's schema; 0 if there is no database, or none that can be read."""
    with contextlib.suppress(StoreError, apsw.Error), contextlib.closing(open_for_reading(path)) as connection:
        version = connection.pragma("user_version")
        assert isinstance(version, int), "user_version is a number"
        return version
    return 0
