"""The lake: a folder of Parquet files, and commits that say which of them are the tables.

Above: the pipeline, and whoever reads: Spark, DuckDB, Polars, pandas. Below: a file system that this machine and the
workers share. A commit is one small JSON file that appears whole or not at all. It lists the files of every table, so
readers see all tables as of the same batch. Files that no commit names are leftovers of an interrupted run, and are
deleted after `_SWEEP_SECONDS`. For slow readers, a commit's files stay at least that long after the next commit.
"""

import fcntl
import itertools
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

_COMMITS_KEPT = 10
_SWEEP_SECONDS = 3600.0
"""Readers may use a file for this long after the last commit that names it was replaced."""


class LakeError(Exception):
    """The lake cannot be used: another run holds it, or it is damaged."""


class DataFile(Struct, frozen=True, omit_defaults=True):
    """A Parquet file of a table, as a commit lists it: its path, number of rows, part of the table, and time span."""

    path: str
    """Path relative to the lake's folder."""
    rows: int
    part: int | None = None
    """Part of the table that the file belongs to, such as the start of a day, if the table is stored in parts."""
    span: tuple[int, int] | None = None
    """The first and the last time in the file, in milliseconds, if the table has a time column."""


class Commit(Struct, frozen=True):
    """The list of files that are the tables as of one batch, and the position in the logs that was reached."""

    number: int = 0
    """Number of the commit: 1, 2, 3…; zero is the empty lake."""
    position: dict[str, int] = {}
    """For each log, the offset up to which it was read."""
    tables: dict[str, list[DataFile]] = {}
    written: dict[str, int] = {}
    """Number of rows that this commit wrote, by table."""
    counts: dict[str, int] = {}
    """Sums over all commits: `late`, rungs reached after the watermark; `unknown`, rungs whose delivery is not in the
    lake.
    """
    at_ms: int = 0
    last_hash: str = ""
    """Hash of the last row read from the main log; a lake recognises its log by this hash."""

    def rows(self, table: str) -> int:
        """Return the number of rows in a table."""
        return sum(file.rows for file in self.tables.get(table, ()))


_decoder = msgspec.json.Decoder(Commit)


class Lake:
    """One lake, the folder of the pipeline's tables: reads and writes their files, and the commits that list them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._commits = path / "_tieline" / "commits"
        self.checkpoint = path / "_tieline" / "checkpoint"
        """Folder in which Spark records the batches of its stream."""

    def head(self) -> Commit:
        """Return the newest commit; an empty one if the lake has none."""
        for name in self._names():
            with suppress(FileNotFoundError):
                try:
                    return _decoder.decode((self._commits / name).read_bytes())
                except msgspec.MsgspecError as error:
                    raise LakeError(f"{self._commits / name} is damaged: {error}") from error
        return Commit()

    def files(self, table: str) -> list[str]:
        """Return the paths of the Parquet files of a table as of now, to open with DuckDB or Polars."""
        return [str(self.path / file.path) for file in self.head().tables.get(table, ())]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lake's lock while a run writes, because a second run would commit over the first.

        Raise `LakeError` if busy.
        """
        # The lake has the activity of agents in full, so only the owner may read the folder.
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._commits.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path / "_tieline" / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise LakeError(f"another run is writing to {self.path}; wait for it, or name another lake") from error
        try:
            yield
        finally:
            os.close(lock)

    def new_folder(self, table: str, number: int) -> Path:
        """Return a new path for the files of a table in commit `number`.

        Each call returns another path, so that no files of an interrupted run mix in.
        """
        return self.path / table / f"{number:08d}-{uuid.uuid4().hex[:8]}"

    def adopt(self, folder: Path, time: str | None = None) -> list[DataFile]:
        """Sync all Parquet files in a folder to disk, and return them for a commit.

        A table may be stored in parts, such as days: a folder `part=N` has the files of part N. `time` is the column
        from which a file's time span is taken.
        """
        found = []
        for path in sorted(folder.rglob("*.parquet")):
            rows, span = _measured(path, time)
            if rows == 0:
                continue
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
            label = path.parent.name.partition("part=")[2]
            found.append(DataFile(str(path.relative_to(self.path)), rows, int(label) if label else None, span))
        return found

    def store(self, table: str, number: int, rows: "pa.Table", time: str | None = None) -> list[DataFile]:
        """Write rows of a table as Parquet files of commit `number`, and return the files.

        If the rows have a column `part`, each part goes into its own folder, as with Spark. `time` is the column from
        which a file's time span is taken.
        """
        from pyarrow import compute, parquet  # noqa: PLC0415 - who only looks at commits needs no extra

        if not rows.num_rows:
            return []
        folder = self.new_folder(table, number)
        pieces = {folder: rows}
        if "part" in rows.column_names:
            of = {part: rows.filter(compute.equal(rows["part"], part)) for part in rows["part"].unique().to_pylist()}
            pieces = {folder / f"part={part}": some.drop_columns("part") for part, some in of.items()}
        for target, some in pieces.items():
            target.mkdir(parents=True)
            parquet.write_table(some, target / "rows.parquet", compression="zstd", write_page_index=True)
        return self.adopt(folder, time)

    def load(self, files: Iterable[DataFile], schema: "pa.Schema", where: "pc.Expression | None" = None) -> "pa.Table":
        """Read the columns of `schema` from files: all rows, or the rows that match `where`."""
        import pyarrow as pa  # noqa: PLC0415 - who only looks at commits needs no extra
        from pyarrow import parquet  # noqa: PLC0415 - the same

        found = (
            parquet.read_table(self.path / file.path, columns=schema.names, filters=where, partitioning=None)
            for file in files
        )
        return pa.concat_tables([schema.empty_table(), *(rows.cast(schema) for rows in found)])

    def commit(self, commit: Commit) -> None:
        """Write the next commit. Its number must follow the commit that was the newest when the work began."""
        name = f"{commit.number:08d}.json"
        temporary = self._commits / f".{name}.{os.getpid()}"
        with temporary.open("wb") as file:
            file.write(msgspec.json.encode(commit))
            file.flush()
            os.fsync(file.fileno())
        try:
            # Unlike a rename, a link fails when another run has committed first.
            os.link(temporary, self._commits / name)
        except FileExistsError as error:
            raise LakeError(f"{self.path} was written to by another run") from error
        finally:
            temporary.unlink()
        descriptor = os.open(self._commits, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        for old, newer in itertools.pairwise(reversed(self._names()[_COMMITS_KEPT - 1 :])):
            # Readers may use the files of the old commit for `_SWEEP_SECONDS` after the newer commit replaced it.
            if _age_seconds(self._commits / newer) > _SWEEP_SECONDS:
                (self._commits / old).unlink()

    def sweep(self, *, seconds: float = _SWEEP_SECONDS) -> int:
        """Remove folders that no stored commit names and that are older than `seconds`.

        Return how many were removed.
        """
        kept: set[Path] = set()
        for name in self._names():
            for files in _decoder.decode((self._commits / name).read_bytes()).tables.values():
                kept.update(Path(file.path) for file in files)
        named = {Path(*path.parts[:2]) for path in kept}
        swept = 0
        for folder in self.path.glob("*/*"):
            is_commit = folder.is_dir() and folder.parent.name != "_tieline"
            if is_commit and folder.relative_to(self.path) not in named and _age_seconds(folder) > seconds:
                shutil.rmtree(folder, ignore_errors=True)
                swept += 1
        return swept

    def publish(self) -> None:
        """Write `current.json`, the files of every table as of now, for readers that know nothing of commits."""
        head = self.head()
        current = {table: [file.path for file in files] for table, files in sorted(head.tables.items())}
        temporary = self.path / f".current.{os.getpid()}"
        temporary.write_text(json.dumps({"commit": head.number, "tables": current}, indent=1), encoding="utf-8")
        temporary.replace(self.path / "current.json")

    def _names(self) -> list[str]:
        """Return the file names of the commits, newest first."""
        if not self._commits.is_dir():
            return []
        return sorted((path.name for path in self._commits.glob("[0-9]*.json")), reverse=True)


def follow(commit: Commit, **changes: Any) -> Commit:
    """Return the commit after this one: the next number, the current time, and these changes."""
    return msgspec.structs.replace(
        commit, number=commit.number + 1, at_ms=time.time_ns() // 1_000_000, written={}, **changes
    )


def replaced(
    tables: Mapping[str, list[DataFile]], table: str, gone: Iterable[DataFile], new: Iterable[DataFile]
) -> dict[str, list[DataFile]]:
    """Return the files of all tables, with the files `gone` of one table replaced by the files `new`."""
    dropped = {file.path for file in gone}
    kept = [file for file in tables.get(table, ()) if file.path not in dropped]
    return {**tables, table: [*kept, *new]}


def _measured(path: Path, time: str | None) -> tuple[int, tuple[int, int] | None]:
    """Read from a file's footer the number of rows, and the first and last value of its column `time`."""
    from pyarrow import parquet  # noqa: PLC0415 - who only looks at commits needs no extra

    metadata = parquet.read_metadata(path)
    if time is None or metadata.num_rows == 0:
        return metadata.num_rows, None
    column = metadata.schema.to_arrow_schema().get_field_index(time)
    groups = [metadata.row_group(index).column(column).statistics for index in range(metadata.num_row_groups)]
    return metadata.num_rows, (min(group.min for group in groups), max(group.max for group in groups))


def _age_seconds(path: Path) -> float:
    return time.time() - path.stat().st_mtime
