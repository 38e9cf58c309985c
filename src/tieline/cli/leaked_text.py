"""The leaked content of a message: finds it in the databases before a redaction, and in files afterwards.

Used by: `tieline redact`. Uses: the files of a home, the folders beside it in which a running hub keeps messages, and
the folders of its backups.
"""

import asyncio
import contextlib
import mmap
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from tieline.cli.backup_file import own_backups
from tieline.cli.last_backup import RECORD_FILE, last_backup
from tieline.core.quotes import quoted_forms
from tieline.core.redaction import texts_of
from tieline.server.config import BackupSection, ConfigError
from tieline.server.config_origin import in_use
from tieline.stores.rows import decode_message
from tieline.stores.sqlite.database import UPGRADE_FOLDER, open_for_reading
from tieline.stores.sqlite.files import FILES_FILE
from tieline.stores.sqlite.statements import QUERIES
from tieline.stores.sqlite.store import MAIN_FILE
from tieline.wire.home import read_running

_CHECKS_MAX = 16
"""Number of looks at the files. The hub deletes copies in its own time, usually within a second."""
_LAKE_FOLDER = "lake"
_BLOBS_FOLDER = "files"
_PAUSE_SECONDS = 0.25  # between two looks, each of which reads all files


class Leak(Struct, frozen=True):
    """Content of a message: its texts, and the files with the bytes of its attachments."""

    texts: tuple[str, ...] = ()
    blobs: tuple[Path, ...] = ()


def known_backups(home: Path) -> list[Path]:
    """Return the known backups of this hub: the last one, others in its folder, and those in the configured folder."""
    folders = []
    with contextlib.suppress(ConfigError, OSError):
        folders.append(in_use(home).section("backup", BackupSection).folder)
    last = last_backup(home)
    found = {Path(last.file)} if last is not None and Path(last.file).is_file() else set()
    folders += [str(path.parent) for path in found]
    for folder in {Path(one).expanduser().absolute() for one in folders if one}:
        if folder.is_dir():
            found.update(own_backups(home, folder))
    return sorted(found)


def remove_known(home: Path, backups: Sequence[Path]) -> None:
    """Remove backups, and the record of the last one, so that the next regular backup is due at once."""
    for path in backups:
        path.unlink(missing_ok=True)
    (home / RECORD_FILE).unlink(missing_ok=True)


def remove_upgrade_backups(home: Path) -> list[str]:
    """Remove the backups in the home that were made before an upgrade. Return their paths."""
    found = [str(path) for path in (home / UPGRADE_FOLDER).glob("*")]
    shutil.rmtree(home / UPGRADE_FOLDER, ignore_errors=True)
    return found


def has_lake(home: Path) -> bool:
    """True if the home has tables of the pipeline, from which the next run of the pipeline erases the text."""
    return (home / _LAKE_FOLDER).is_dir()


def find_leak(home: Path, message_id: str) -> Leak:
    """Return the content of a message: texts that are long enough to be looked for in files, and its attachments.

    With the store `memory`, the databases are in a folder of the home. If no database has the message, the result is
    empty.
    """
    for database in (home / MAIN_FILE, *sorted(home.glob(f"*/{MAIN_FILE}"))):
        if not database.exists():
            continue
        with contextlib.closing(open_for_reading(database)) as connection:
            row = connection.execute(QUERIES["message_by_id"], (message_id,)).fetchone()
        if row:
            content = decode_message(row[:-1]).content
            return Leak(texts_of(content), _blobs(database.parent, [one.path for one in content.attachments]))
    return Leak()


def _blobs(folder: Path, paths: Sequence[str]) -> tuple[Path, ...]:
    """Return the files on disk in which the hub stores the contents of the members' files at `paths`.

    `folder` is the folder with the catalogue of these files.
    """
    if not paths or not (folder / FILES_FILE).exists():
        return ()
    with contextlib.closing(open_for_reading(folder / FILES_FILE)) as catalogue:
        digests = {row[0] for path in paths for row in catalogue.execute(QUERIES["digest_at"], (path,))}
    return tuple(folder / _BLOBS_FOLDER / digest[:2] / digest for digest in sorted(digests))


def paths_with(blob: Path) -> list[str]:
    """Return the paths under which members have the file whose content is stored as `blob`.

    The hub stores the content of equal files once. Return nothing if `blob` is not a file of this store.
    """
    catalogue = blob.parents[2] / FILES_FILE
    if blob.parents[1].name != _BLOBS_FOLDER or not catalogue.exists():
        return []
    with contextlib.closing(open_for_reading(catalogue)) as connection:
        return [row[0] for row in connection.execute(QUERIES["paths_with"], (blob.name,))]


def folders_of(home: Path) -> list[Path]:
    """Return the home, and the folders outside it in which the running hub has messages, such as an adopted spool."""
    running = read_running(home)
    places = [Path(place).resolve() for place in (running.places.values() if running else ()) if place]
    outside = {place for place in places if place.is_dir() and not place.is_relative_to(home.resolve())}
    return [home, *sorted(outside)]


async def wait_until_gone(home: Path, leak: Leak) -> list[Path]:
    """Return the files that still have some of the content `leak`, after the hub had some time to delete it.

    The files in all folders of `folders_of` are searched. The lake (the pipeline's tables) is left out.
    """
    left: list[Path] = []
    folders = folders_of(home)
    for _ in range(_CHECKS_MAX):
        left = await asyncio.to_thread(lambda: _left(folders, leak))
        if not left:
            break
        await asyncio.sleep(_PAUSE_SECONDS)
    return left


def _left(folders: Sequence[Path], leak: Leak) -> list[Path]:
    found = [path for path in leak.blobs if path.exists()]
    found += [path for one in folders for path in _files_with(one, leak.texts) if path not in found]
    return found


def _files_with(folder: Path, texts: Sequence[str]) -> Iterator[Path]:
    """Yield the files in a folder that have one of these texts, plain or as part of a JSON document."""
    forms = {text.encode(errors="replace") for text in texts}
    forms.update(form for text in texts for forms_of_way in quoted_forms(text) for form in forms_of_way)
    for path in sorted(folder.rglob("*")):
        try:
            if path.is_symlink() or not path.is_file() or not path.stat().st_size:
                continue
            if path.is_relative_to(folder / _LAKE_FOLDER):
                # Its files are compressed, and the next run of the pipeline erases the text.
                continue
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                if any(content.find(form) >= 0 for form in forms):
                    yield path
        except (FileNotFoundError, ValueError):
            # It is gone, or became empty.
            continue
