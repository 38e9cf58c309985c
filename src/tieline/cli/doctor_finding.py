"""Findings of the doctor. Each says if a check passed, why a fault matters, and which command helps.

Used by: `doctor`, which prints findings. Uses: nothing. Every check makes a finding, so that a person also sees the
checks that passed.
"""

from enum import StrEnum

from msgspec import Struct


class Grade(StrEnum):
    """Result of one check of the doctor: all is well, something is worth a note, or something is wrong."""

    WELL = "ok"
    NOTE = "note"
    """Something that a person may want to know, but no fault."""
    WRONG = "wrong"


class DoctorFinding(Struct, frozen=True):
    """The result of one check of the doctor: what was found, why it matters, and what to do."""

    about: str
    """Part that was checked: installation, home, hub, store, audit, members or canary (the test by messages)."""
    grade: Grade
    what: str
    why: str = ""
    """Reason why a fault matters: its consequence."""
    do: str = ""
    """Advice: a command, if one helps."""


class DataFault(Struct, frozen=True, kw_only=True):
    """Record of a fault in the data that a protocol keeps beside the hub, such as a spool.

    Some faults can be repaired.
    """

    about: str
    """Part that has the fault, as in `DoctorFinding`."""
    fault: str
    """Kind of the fault, as one word for programs that read the JSON."""
    path: str
    what: str
    repairable: bool
    repaired: bool
    do: str


class Examined(Struct, frozen=True, kw_only=True):
    """Result of the doctor's check of the data that a protocol keeps beside the hub, such as a spool."""

    summary: str
    """Amount of the data, in one sentence."""
    counts: dict[str, object]
    """Amount and place of the data, for programs that read the JSON."""
    faults: tuple[DataFault, ...] = ()
    findings: tuple[DoctorFinding, ...] = ()
    """Further findings about the data."""


def well(about: str, what: str) -> DoctorFinding:
    """Return a finding for a check that passed. `about` is the part that was checked, `what` is the result."""
    return DoctorFinding(about, Grade.WELL, what)


def note(about: str, what: str, do: str = "") -> DoctorFinding:
    """Return a finding that is no fault, because somebody may have intended it.

    `about` is the part that was checked, `what` was found, and `do` is advice.
    """
    return DoctorFinding(about, Grade.NOTE, what, do=do)


def wrong(about: str, what: str, why: str, do: str) -> DoctorFinding:
    """Return a finding about a fault: `what` is wrong, `why` it matters, and what a person should `do`.

    `about` is the part that was checked.
    """
    return DoctorFinding(about, Grade.WRONG, what, why, do)
