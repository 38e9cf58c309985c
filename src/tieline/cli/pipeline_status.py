"""`tieline pipeline status`: the tables of a lake, its position in the logs, and the rows that the hub keeps for it.

Used by: the command, and `pipeline run`, which also says how long the hub keeps rows. Uses: the lake, and the hub's
databases, which are read without Spark.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import print_json, print_table, say, warn

if TYPE_CHECKING:
    from tieline.cli.documents import LakeReader
    from tieline.pipeline.lake import Commit, Lake

_DAY_MS = 86_400_000


def show_status(lake: "Lake", where: Mapping[str, str], *, json: bool) -> None:
    """Print the state of a lake. `where` are the options that name its log; it is empty if no hub is known.

    Raise `Failure` at the end if this log is not the one that the lake was made from.
    """
    from tieline.cli.documents import LakeState, LakeTable
    from tieline.cli.pipeline import told_failures

    with told_failures():
        head = lake.head()
        tables = {
            name: LakeTable(head.rows(name), len(lake.data_files(name, head)), version)
            for name, version in sorted(head.versions.items())
        }
    waiting, changed = _waiting(lake, where)
    reader = kept_for(lake, where)
    if json:
        newest = (head.number, head.at_ms, head.position, head.engine)
        print_json(LakeState(str(lake), *newest, waiting, head.missed(), head.counts, tables, reader, changed))
    elif head.number == 0:
        say(f"{lake} is empty: 'tieline pipeline run' fills it.")
    else:
        rows = [(name, f"{one.rows:,}", str(one.files)) for name, one in tables.items()]
        print_table(("TABLE", "ROWS", "FILES"), rows, empty="no tables")
        _print(head, waiting, reader)
    if changed is not None:
        raise Failure(Exit.FAILED, changed)


def _waiting(lake: "Lake", where: Mapping[str, str]) -> tuple[int | None, str | None]:
    """Return the number of rows that the lake has not read; `None` if it is not known.

    If the lake was made from another log than the one in `where`, also return a sentence that says so, else `None`.
    """
    from tieline.cli.pipeline import told_failures
    from tieline.pipeline.run import LogChanged, new_rows

    if not where:
        return None, None
    try:
        with told_failures():
            return new_rows(lake, where), None
    except Failure as failure:
        return None, str(failure.__cause__) if isinstance(failure.__cause__, LogChanged) else None


def _print(head: "Commit", waiting: int | None, reader: "LakeReader | None") -> None:
    from tieline.cli.pipeline import missing

    read = ", ".join(f"{log} up to {end:,}" for log, end in head.position.items())
    made = f" by {head.engine}" if head.engine else ""
    say(f"Commit {head.number}{made}; read: {read}" + ("." if waiting is None else f"; {waiting:,} rows wait."))
    if reader is not None:
        say(kept_sentence(reader))
    if head.missed():
        warn(f"Of all rows, {missing(head.missed())}.")


def kept_for(lake: "Lake", where: Mapping[str, str]) -> "LakeReader | None":
    """Return the limits up to which a hub keeps unread rows for a lake, and the share of them that is used up.

    Return `None` if the hub does not know the lake as a reader yet, or if the hub is at a URL. For such a hub, its own
    `doctor` tells the limits.
    """
    from tieline.cli.doctor_log import reader_share
    from tieline.cli.documents import LakeReader
    from tieline.pipeline.reader import reader_name

    if "home" not in where:
        return None
    name = reader_name(lake, where)
    share, limits = reader_share(Path(where["home"]), name)
    if share is None:
        return None
    return LakeReader(name, limits.reader_wait_ms, limits.reader_wait_bytes, round(share, 4))


def kept_sentence(reader: "LakeReader", when: str = "") -> str:
    """Return a sentence for people: for how long the hub keeps rows that a reader has not read.

    It ends with the used share of these limits, such as "5% of that is used up". If `when` is given, it stands in place
    of "is used up".
    """
    waits = f"{reader.wait_ms // _DAY_MS} days or {reader.wait_bytes >> 30} GiB"
    used = f"{reader.share:.0%} of that {when or 'is used up'}"
    return f"The hub keeps rows that {reader.name} has not read for at most {waits} more; {used}."
