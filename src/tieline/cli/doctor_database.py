"""Checks of a hub's store in PostgreSQL: that it answers, its schema, the audit chain, and the readers of the logs.

Used by: `doctor`. Uses: one read-only connection, which sees the database at one moment. If the pages of the database
are whole, the server knows best: `pg_amcheck` looks at them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tieline.cli.doctor_finding import DoctorFinding, note, well, wrong
from tieline.cli.doctor_log import limits_of, look_at_log
from tieline.cli.doctor_store import TAIL_ROWS, tail_of_chain, whole_chain
from tieline.core.store import ACTIVITY, MAIN, StoreError
from tieline.server.config import ConfigError
from tieline.server.storage import DatabaseStorage
from tieline.stores.sqlite.store import MAIN_FILE

if TYPE_CHECKING:
    from tieline.stores.postgres import PostgresReading


def database(home: Path, url: str, *, deep: bool) -> Iterator[DoctorFinding]:
    """Check the database of the hub in `home`; with `deep`, the whole audit chain. Yield a finding for each check."""
    if (home / MAIN_FILE).exists():
        do = f"move {home / MAIN_FILE} away, if its messages are in the database: tieline store copy"
        yield note("store", f"the hub uses a database, and {MAIN_FILE} is in its home too", do)
    storage = DatabaseStorage(url, home)
    try:
        with storage.open_reading() as reading:
            versions = list(_versions(reading))
            yield from versions or [_whole(reading)]
            if versions:
                return
            yield _end_of_chain(home, reading)
            yield _terms(reading, deep=deep)
            limits = limits_of(home)
            for log in (MAIN, ACTIVITY):
                yield from look_at_log(log, reading.readers(log), reading.one(f"{log}_end")[0], limits)
        if deep:
            yield whole_chain(home, storage)
    except (StoreError, ConfigError) as error:
        do = getattr(error, "hint", "") or "look at the server and its log"
        yield wrong("store", str(error), "the hub cannot read or write its messages", do)


def _versions(reading: "PostgresReading") -> Iterator[DoctorFinding]:
    """Yield a finding for each part of the schema that is not as this program knows it."""
    for part, (version, newest) in reading.versions.items():
        if version > newest:
            what = f"{reading.place} has schema {part} {version}, and this program knows {newest}"
            yield wrong("store", what, "a newer Tieline wrote it, and this one does not start on it", "upgrade tieline")
        elif version < newest:
            what = f"{reading.place} has schema {part} {version}; the next start brings it to {newest}"
            yield note("store", what)


def _whole(reading: "PostgresReading") -> DoctorFinding:
    size = reading.one("bytes_used")[0] >> 10
    schema = ", ".join(f"{part} {version}" for part, (version, _) in reading.versions.items())
    return well("store", f"{reading.place} answers: {size} KiB, schema {schema}")


def _terms(reading: "PostgresReading", *, deep: bool) -> DoctorFinding:
    """Check that no hub wrote in a term that was over; without `deep`, in the newest rows of the log."""
    end = reading.one("main_end")[0]
    found = reading.falling_term(0 if deep else max(0, end - TAIL_ROWS))
    if found is not None:
        offset, term = found
        why = "two hubs have written to this database at the same time, which it should not allow"
        return wrong(
            "store", f"row {offset} of the log is of term {term}, which was over", why, "keep it, and report it"
        )
    term, hub, _, seconds, _ = reading.one("lease")
    if seconds > 0:
        return well("store", f"{hub} has the lease, in term {term}; terms in the log never fall")
    return well("store", f"no hub has the lease; the last term was {term}, and terms in the log never fall")


def _end_of_chain(home: Path, reading: "PostgresReading") -> DoctorFinding:
    end = reading.one("main_end")[0]
    rows = [*reading.select("read_main", (max(0, end - TAIL_ROWS), TAIL_ROWS))]
    return tail_of_chain(home, rows, end)
