"""Findings of the doctor: well or not, why it matters, and the command to type.

Above: `doctor`, which prints findings. Below: nothing. Every check makes a finding, so that a person also sees the
checks that passed.
"""

from enum import StrEnum

from msgspec import Struct


class Grade(StrEnum):
    """Result of one check."""

    WELL = "ok"
    NOTE = "note"
    """Worth knowing, and nothing to worry about."""
    WRONG = "wrong"


class DoctorFinding(Struct, frozen=True):
    """One finding: the result of one check."""

    about: str
    """Part that was checked: installation, home, hub, store, audit, members, canary."""
    grade: Grade
    what: str
    why: str = ""
    """Reason why the finding matters."""
    do: str = ""
    """Advice: a command, if one helps."""


class Fault(Struct, frozen=True, kw_only=True):
    """One fault in the data that a protocol keeps beside the hub. Some faults can be repaired at once."""

    about: str
    """Part that has the fault, as in `DoctorFinding`."""
    fault: str
    """Kind of the fault, as one word for scripts."""
    path: str
    what: str
    repairable: bool
    repaired: bool
    do: str


class Examined(Struct, frozen=True, kw_only=True):
    """Result of checking the data that a protocol keeps beside the hub."""

    summary: str
    """Amount of the data, in one sentence."""
    counts: dict[str, object]
    """Amount and place of the data, for a script."""
    faults: tuple[Fault, ...] = ()
    findings: tuple[DoctorFinding, ...] = ()
    """Further findings about the data."""


def well(about: str, what: str) -> DoctorFinding:
    """Make a finding: all is well."""
    return DoctorFinding(about, Grade.WELL, what)


def note(about: str, what: str, do: str = "") -> DoctorFinding:
    """Make a finding that may be intended."""
    return DoctorFinding(about, Grade.NOTE, what, do=do)


def wrong(about: str, what: str, why: str, do: str) -> DoctorFinding:
    """Make a finding about a fault: a person must act."""
    return DoctorFinding(about, Grade.WRONG, what, why, do)
