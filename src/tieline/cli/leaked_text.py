"""The text of a message that is redacted: finds it in the database before, and in the files of the home afterwards.

Used by: `tieline redact`. Uses: the files of a home, and the folders beside it in which a running hub keeps messages.
"""

import asyncio
import contextlib
import mmap
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from tieline.core.quotes import quoted_forms
from tieline.core.redaction import texts_of
from tieline.stores.sqlite.database import UPGRADE_FOLDER, open_for_reading
from tieline.stores.sqlite.rows import decode_message
from tieline.stores.sqlite.statements import QUERIES
from tieline.stores.sqlite.store import MAIN_FILE
from tieline.wire.home import read_running

_CHECKS_MAX = 16
"""Number of looks at the files. The hub deletes copies in its own time, usually within a second."""
_LAKE_FOLDER = "lake"
_PAUSE_SECONDS = 0.25  # between two looks, each of which reads all files


def remove_backups(home: Path) -> list[str]:
    """Remove the backups in the home that were made before an upgrade. Return their paths."""
    found = [str(path) for path in (home / UPGRADE_FOLDER).glob("*")]
    shutil.rmtree(home / UPGRADE_FOLDER, ignore_errors=True)
    return found


def has_lake(home: Path) -> bool:
    """True if the home has tables of the pipeline, from which the next run of the pipeline erases the text."""
    return (home / _LAKE_FOLDER).is_dir()


def find_texts(home: Path, message_id: str) -> tuple[str, ...]:
    """Return the texts in the content of a message that are long enough to be looked for in files.

    With the store `memory`, the database is in a folder of the home. Without any database, nothing is returned.
    """
    for database in (home / MAIN_FILE, *sorted(home.glob(f"*/{MAIN_FILE}"))):
        if not database.exists():
            continue
        with contextlib.closing(open_for_reading(database)) as connection:
            row = connection.execute(QUERIES["message_by_id"], (message_id,)).fetchone()
        if row:
            return texts_of(decode_message(row[:-1]).content)
    return ()


def folders_of(home: Path) -> list[Path]:
    """Return the home, and the folders outside it in which the running hub has messages, such as an adopted spool."""
    running = read_running(home)
    places = [Path(place).resolve() for place in (running.places.values() if running else ()) if place]
    outside = {place for place in places if place.is_dir() and not place.is_relative_to(home.resolve())}
    return [home, *sorted(outside)]


async def wait_until_gone(home: Path, texts: Sequence[str]) -> list[Path]:
    """Return the files that still have one of these texts, after the hub had some time to delete them.

    The files are those of the home and of `folders_of` it. The lake is left out.
    """
    left: list[Path] = []
    folders = folders_of(home)
    for _ in range(_CHECKS_MAX):
        left = await asyncio.to_thread(lambda: [path for one in folders for path in _files_with(one, texts)])
        if not left:
            break
        await asyncio.sleep(_PAUSE_SECONDS)
    return left


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
