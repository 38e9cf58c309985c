"""A lake in the format before Delta: Parquet files, and JSON files that list the files of each table.

Used by: `tieline pipeline run` and `rebuild --all`, which make Delta tables from its log rows (bronze). No other
command reads such a lake.
"""

import re
import shutil
from pathlib import Path

import msgspec
from msgspec import Struct

from tieline.pipeline.source import Position
from tieline.pipeline.tasks import FilePiece

_COMMITS = Path("_tieline", "commits")
_FOLDER = re.compile(r"[0-9]{8}-[0-9a-f]{8}")


class _File(Struct):
    path: str


class OldCommit(Struct):
    """Record of the last commit of a lake before Delta: the files of every table, and the position in the logs."""

    position: Position
    tables: dict[str, list[_File]] = {}
    last_hash: str = ""

    def pieces(self, lake: Path) -> list[FilePiece]:
        """Return the files of the commit that contain log rows."""
        return [FilePiece(str(lake / file.path)) for file in self.tables.get("bronze", ())]


def last_commit(lake: Path) -> OldCommit | None:
    """Return the last commit of a lake in the format before Delta. Return `None` if the folder is no such lake."""
    found = sorted((lake / _COMMITS).glob("[0-9]*.json"))
    return msgspec.json.decode(found[-1].read_bytes(), type=OldCommit) if found else None


def remove_old_files(lake: Path) -> None:
    """Delete the files of the old format. Call this only after the Delta tables are complete."""
    for folder in lake.glob("*/*"):
        if folder.is_dir() and _FOLDER.fullmatch(folder.name):
            shutil.rmtree(folder)
    (lake / "current.json").unlink(missing_ok=True)
    for name in ("commits", "checkpoint"):
        shutil.rmtree(lake / "_tieline" / name, ignore_errors=True)
