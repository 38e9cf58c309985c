"""Upkeep: finds faults in a spool, and repairs the faults that can be repaired without loss.

Used by: `tieline doctor`. Uses: a spool. Processes that were killed can leave three things:

- a file in `tmp/` whose message was not accepted yet; the file is removed;
- a claim in `cur/` whose reader had not finished; the message becomes unread again;
- the lock of a reader; the lock is removed.

Unreadable files of other programs are reported, and left to their owner. A message in `cur/` under its usual name was
kept on purpose, or a killed reader of another program left it there. Both cases look the same, so such messages are
only counted.
"""

import os
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from tieline.protocols.backchannel.claims import SUFFIX, abandoned, give_back, loose_locks, read_message
from tieline.protocols.backchannel.codec import SpoolMessage, check_name, is_id
from tieline.protocols.backchannel.spool import Spool, SpoolBroken

_LEFT_SECONDS = 60.0
"""Age after which a file in `tmp/` was surely left by a killed writer. A live writer renames its file sooner."""
_OTHERS = 0o077
"""Bits of the file permissions for all users except the owner."""


class SpoolFault(StrEnum):
    """Kinds of faults in a spool: files of killed processes, strange or unreadable files, unsafe permissions."""

    UNFINISHED_WRITE = "unfinished_write"
    UNFINISHED_CLAIM = "unfinished_claim"
    LOOSE_LOCK = "loose_lock"
    STRANGE_NAME = "strange_name"
    UNREADABLE_MESSAGE = "unreadable_message"
    UNREADABLE_RECORD = "unreadable_record"
    NO_RECORD = "no_record"
    OPEN_TO_OTHERS = "open_to_others"


REPAIRABLE = frozenset({SpoolFault.UNFINISHED_WRITE, SpoolFault.UNFINISHED_CLAIM, SpoolFault.LOOSE_LOCK})


class SpoolFinding(Struct, frozen=True):
    """One fault that was found in a spool: its kind, the file, and a sentence for people."""

    fault: SpoolFault
    path: str
    what: str

    @property
    def repairable(self) -> bool:
        """True if `repair` can repair the fault."""
        return self.fault in REPAIRABLE


class SpoolReport(Struct, frozen=True):
    """Result of `check`: the numbers of agents, unread messages and kept messages, and the faults that were found."""

    agents: int
    unread: int
    kept: int
    findings: tuple[SpoolFinding, ...]


def check(spool: Spool, *, now: Callable[[], float] = time.time) -> SpoolReport:
    """Check the whole spool for faults, and change nothing."""
    names = spool.names()
    folders = sorted(path.name for path in _entries(spool.root / "spool") if path.is_dir())
    findings = [*_openness(spool), *_records(spool), *_strangers(spool, names, folders)]
    unread = kept = 0
    for name in folders:
        if check_name(name) is not None:
            continue
        findings += _unfinished(spool, name, now())
        findings += _unread_problems(spool, name)
        unread += len(spool.waiting(name))
        kept += sum(is_id(path.stem) for path in _entries(spool.folder(name) / "cur") if path.suffix == SUFFIX)
    return SpoolReport(len(names), unread, kept, tuple(findings))


def repair(spool: Spool, report: SpoolReport) -> list[SpoolFinding]:
    """Repair the faults in a report that can be repaired without loss. Return the faults that were repaired."""
    done = []
    for finding in report.findings:
        path = Path(finding.path)
        match finding.fault:
            case SpoolFault.UNFINISHED_CLAIM:
                # Checked again: a claim is given back only if it has no reader now.
                folder = path.parent.parent
                repaired = any(
                    give_back(folder, claim, message_id) for claim, message_id in abandoned(folder) if claim == path
                )
            case SpoolFault.UNFINISHED_WRITE | SpoolFault.LOOSE_LOCK:
                path.unlink(missing_ok=True)
                repaired = True
            case _:
                repaired = False
        if repaired:
            done.append(finding)
    return done


def _entries(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in sorted(os.listdir(folder))]  # noqa: PTH208 - sorted names
    except (FileNotFoundError, NotADirectoryError):
        return []


def _openness(spool: Spool) -> Iterator[SpoolFinding]:
    try:
        mode = spool.root.stat().st_mode
    except FileNotFoundError:
        return
    if mode & _OTHERS:
        what = "other users of the machine may look in, and file permissions are all that protects a spool: chmod 700"
        yield SpoolFinding(SpoolFault.OPEN_TO_OTHERS, str(spool.root), what)


def _records(spool: Spool) -> Iterator[SpoolFinding]:
    for path in _entries(spool.root / "agents"):
        if path.suffix != SUFFIX:
            continue
        if check_name(path.stem) is not None:
            yield SpoolFinding(SpoolFault.STRANGE_NAME, str(path), "no agent can have this name")
            continue
        try:
            spool.record(path.stem)
        except SpoolBroken as error:
            yield SpoolFinding(SpoolFault.UNREADABLE_RECORD, str(path), str(error))


def _strangers(spool: Spool, names: list[str], folders: list[str]) -> Iterator[SpoolFinding]:
    for name in folders:
        path = str(spool.root / "spool" / name)
        if check_name(name) is not None:
            yield SpoolFinding(SpoolFault.STRANGE_NAME, path, "no agent can have this name")
        elif name not in names and spool.waiting(name):
            what = f"{len(spool.waiting(name))} messages wait for an agent that has no record"
            yield SpoolFinding(SpoolFault.NO_RECORD, path, what)


def _unfinished(spool: Spool, name: str, now: float) -> Iterator[SpoolFinding]:
    folder = spool.folder(name)
    for path in _entries(folder / "tmp"):
        if _age(path, now) > _LEFT_SECONDS:
            what = "a writer was killed before the message was accepted"
            yield SpoolFinding(SpoolFault.UNFINISHED_WRITE, str(path), what)
    for path, _ in abandoned(folder):
        yield SpoolFinding(
            SpoolFault.UNFINISHED_CLAIM, str(path), "a reader was killed before it had finished with the message"
        )
    for path in loose_locks(folder):
        if _age(path, now) > _LEFT_SECONDS:
            yield SpoolFinding(SpoolFault.LOOSE_LOCK, str(path), "a reader was killed")


def _age(path: Path, now: float) -> float:
    try:
        return now - path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0


def _unread_problems(spool: Spool, name: str) -> Iterator[SpoolFinding]:
    for path in _entries(spool.folder(name) / "new"):
        if path.suffix != SUFFIX or not is_id(path.stem):
            yield SpoolFinding(SpoolFault.STRANGE_NAME, str(path), "its name is not <UUID>.json, so nobody reads it")
            continue
        found = read_message(path, path.stem)
        if found is not None and not isinstance(found, SpoolMessage):
            yield SpoolFinding(SpoolFault.UNREADABLE_MESSAGE, str(path), found)
