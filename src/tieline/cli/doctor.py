"""`tieline doctor`: what is wrong here, and putting it right where that loses nothing.

Above: a person who wonders. Below: the upkeep of the spool. Without `--repair` it changes nothing.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import neutral_line, print_json, say
from tieline.cli.session import HomeOption, JsonOption, Link, SpoolOption, ended_by

if TYPE_CHECKING:
    from tieline.protocols.backchannel.upkeep import Finding, Report


def doctor(
    repair: Annotated[bool, typer.Option("--repair", help="Put right what killed processes left behind.")] = False,
    home: HomeOption = None,
    spool: SpoolOption = None,
    json: JsonOption = False,
) -> None:
    """Look for what is wrong in the spool of this machine.

    Exit code 0 when nothing is, or nothing is any more; 1 otherwise.
    """
    ended_by(lambda: _doctor(Link(home=home, spool=spool), repair=repair, json=json))


def _doctor(link: Link, *, repair: bool, json: bool) -> None:
    from tieline.cli.whereabouts import spool_root
    from tieline.protocols.backchannel import Spool, upkeep

    root = spool_root(link)
    spool = Spool(root)
    try:
        report = upkeep.check(spool)
        repaired = upkeep.repair(spool, report) if repair else []
    except OSError as error:
        raise Failure(Exit.FAILED, f"{error.filename or root}: {error.strerror or error}") from error
    left = [finding for finding in report.findings if finding not in repaired]
    if json:
        print_json(_document(root, report, repaired))
    else:
        _print(root, report, repaired)
    if left:
        many = "finding" if len(left) == 1 else "findings"
        hint = "--repair puts right what killed processes left" if any(each.repairable for each in left) else ""
        raise Failure(Exit.FAILED, f"{len(left)} {many} in {root}", hint)


def _document(root: Path, report: "Report", repaired: "list[Finding]") -> dict[str, object]:
    findings = [
        {
            "fault": finding.fault.value,
            "path": finding.path,
            "what": finding.what,
            "repairable": finding.repairable,
            "repaired": finding in repaired,
        }
        for finding in report.findings
    ]
    counts = {"agents": report.agents, "unread": report.unread, "kept": report.kept}
    return {"spool": str(root), **counts, "findings": findings}


def _print(root: Path, report: "Report", repaired: "list[Finding]") -> None:
    kept = f", {report.kept} kept or left by a killed reader of another program" if report.kept else ""
    say(neutral_line(f"The spool in {root}: {report.agents} agents, {report.unread} unread messages{kept}."))
    for finding in report.findings:
        done = "repaired: " if finding in repaired else ""
        say(neutral_line(f"  {done}{finding.path}: {finding.what}"))
    if not report.findings:
        say("Nothing is wrong.")
