"""The check of a spool by `tieline doctor`: finds files of killed processes, and files that the hub refused.

Used by: `tieline doctor`. Uses: the spool's upkeep. The check changes nothing unless `repair` is set.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tieline.cli.doctor_finding import DataFault, DoctorFinding, Examined, wrong
from tieline.cli.failure import Exit, Failure

if TYPE_CHECKING:
    from tieline.cli.session import Link
    from tieline.protocols.backchannel import upkeep

_ABOUT = "spool"


def examine(link: "Link", *, repair: bool) -> Examined:
    """Check the spool that the options in `link` name. With `repair`, repair the faults that can be repaired."""
    from tieline.protocols.backchannel import upkeep
    from tieline.protocols.backchannel.spool import Spool

    root = _root(link)
    spool = Spool(root)
    try:
        report = upkeep.check(spool)
        repaired = upkeep.repair(spool, report) if repair else []
        refused = tuple(_refused_files(root))
    except OSError as error:
        raise Failure(Exit.FAILED, f"{error.filename or root}: {error.strerror or error}") from error
    kept = f", {report.kept} kept or left by a killed reader of another program" if report.kept else ""
    return Examined(
        summary=f"The spool in {root}: {report.agents} agents, {report.unread} unread messages{kept}.",
        counts={_ABOUT: str(root), "agents": report.agents, "unread": report.unread, "kept": report.kept},
        faults=tuple(_fault(finding, repaired=finding in repaired) for finding in report.findings),
        findings=refused,
    )


def _root(link: "Link") -> Path:
    """Return the folder of the spool: the one that an option names, else that of the running hub, else the default."""
    from tieline.protocols.backchannel.commands.spool_location import spool_root
    from tieline.wire.home import read_running

    running = read_running(link.folder) if link.spool is None else None
    adopted = running.places.get("spool") if running is not None else None
    return Path(adopted) if adopted is not None else spool_root(link)


def _fault(finding: "upkeep.SpoolFinding", *, repaired: bool) -> DataFault:
    return DataFault(
        about=_ABOUT,
        fault=finding.fault.value,
        path=finding.path,
        what=finding.what,
        repairable=finding.repairable,
        repaired=repaired,
        do=_advice(finding),
    )


def _advice(finding: "upkeep.SpoolFinding") -> str:
    from tieline.protocols.backchannel.upkeep import SpoolFault

    match finding.fault:
        case SpoolFault.OPEN_TO_OTHERS:
            return f"chmod 700 {finding.path}"
        case SpoolFault.NO_RECORD:
            return f"tieline inbox --as {Path(finding.path).name}, which makes the agent known; or remove the folder"
        case SpoolFault.UNFINISHED_CLAIM | SpoolFault.UNFINISHED_WRITE | SpoolFault.LOOSE_LOCK:
            return "tieline doctor --repair"
        case SpoolFault.STRANGE_NAME | SpoolFault.UNREADABLE_MESSAGE | SpoolFault.UNREADABLE_RECORD:
            return f"look at {finding.path}, and correct or remove it"


def _refused_files(root: Path) -> Iterator[DoctorFinding]:
    """Yield a finding for each mailbox with files that the hub refused. A person must decide about these files."""
    for folder in sorted(root.glob("spool/*/refused")):
        files = sorted(folder.glob("*.json"))
        if files:
            codes = ", ".join(sorted({path.stem.partition(".")[2] for path in files}))
            what = f"{folder} has messages that were not accepted ({len(files)} of: {codes})"
            why = "their senders believe that they were sent"
            yield wrong(_ABOUT, what, why, f"ls {folder}; send them again as they should be, and remove them")
