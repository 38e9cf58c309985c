"""What the doctor found: well or not, why it matters, and what to type.

Above: `doctor`, which prints it. Below: nothing. Every look at something makes one, so that a person also sees what
was looked at and is well.
"""

from enum import StrEnum

from msgspec import Struct


class Grade(StrEnum):
    """How it stands."""

    WELL = "ok"
    NOTE = "note"
    """Worth knowing, and nothing to worry about."""
    WRONG = "wrong"


class DoctorFinding(Struct, frozen=True):
    """One thing that was looked at."""

    about: str
    """What part: installation, home, hub, store, audit, members, canary."""
    grade: Grade
    what: str
    why: str = ""
    """Why it matters."""
    do: str = ""
    """What to do: a command where there is one."""


class Fault(Struct, frozen=True, kw_only=True):
    """One thing that is wrong with what is kept beside the hub. Each is wrong, and some can be put right at once."""

    about: str
    """Whose it is, as in `DoctorFinding`."""
    fault: str
    """Its kind, in a word for scripts."""
    path: str
    what: str
    repairable: bool
    repaired: bool
    do: str


class Examined(Struct, frozen=True, kw_only=True):
    """A look at what a protocol keeps beside the hub."""

    summary: str
    """The amount of it, in a sentence."""
    counts: dict[str, object]
    """The same for a script, with where it is."""
    faults: tuple[Fault, ...] = ()
    findings: tuple[DoctorFinding, ...] = ()
    """Anything else to say about it."""


def well(about: str, what: str) -> DoctorFinding:
    """It is as it should be."""
    return DoctorFinding(about, Grade.WELL, what)


def note(about: str, what: str, do: str = "") -> DoctorFinding:
    """It may be meant to be so."""
    return DoctorFinding(about, Grade.NOTE, what, do=do)


def wrong(about: str, what: str, why: str, do: str) -> DoctorFinding:
    """Somebody has to do something."""
    return DoctorFinding(about, Grade.WRONG, what, why, do)
