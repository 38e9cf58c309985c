"""`tieline doctor`: what is wrong here, what to do about it, and putting it right where that loses nothing.

Above: a person who wonders. Below: a module for each thing that is looked at, and the upkeep of the spool. Without
`--repair` and `--canary` it changes nothing. It works with the hub up or down.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tieline.cli.doctor_finding import Finding, Grade, note, wrong
from tieline.cli.failure import Exit, Failure
from tieline.cli.output import neutral_line, print_json, print_table, say
from tieline.cli.session import HomeOption, JsonOption, Link, SpoolOption, ended_by

if TYPE_CHECKING:
    from tieline.cli.doctor_canary import Trip
    from tieline.protocols.backchannel.upkeep import Finding as SpoolFinding
    from tieline.protocols.backchannel.upkeep import Report
    from tieline.wire.home import Running

_STYLES = {Grade.WELL: "", Grade.NOTE: "yellow", Grade.WRONG: "red"}


def doctor(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="With --canary: members to send one harmless status message to."),
    ] = None,
    canary: Annotated[
        bool, typer.Option("--canary", help="Send a message there and back through each protocol of the running hub.")
    ] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read all of the databases and of the audit chain, however large.")
    ] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Put right what killed processes left behind.")] = False,
    home: HomeOption = None,
    spool: SpoolOption = None,
    json: JsonOption = False,
) -> None:
    """Look for what is wrong with the installation, the hub of this machine and its spool, and say what to do.

    With --spool only that spool is looked at. Exit code 0 when nothing is wrong, or nothing is any more; 1 otherwise.
    """
    if names and not canary:
        raise typer.BadParameter("members are named with --canary only", param_hint="NAME")
    visit = _Visit(Link(home=home, spool=spool), deep=deep)
    ended_by(lambda: visit.make(names or [], canary=canary, repair=repair, json=json))


class _Visit:
    """One look at everything."""

    def __init__(self, link: Link, *, deep: bool) -> None:
        self._link = link
        self._deep = deep
        self._findings: list[Finding] = []
        self._trips: list[Trip] = []

    def make(self, names: list[str], *, canary: bool, repair: bool, json: bool) -> None:
        """Look, print, and end with the right exit code."""
        from tieline.protocols.backchannel import Spool, upkeep

        root = self._spool_root()
        spool = Spool(root)
        try:
            if self._link.spool is None:
                self._look(names, canary=canary)
            report = upkeep.check(spool)
            repaired = upkeep.repair(spool, report) if repair else []
            self._findings += _refused_files(root)
        except OSError as error:
            raise Failure(Exit.FAILED, f"{error.filename or root}: {error.strerror or error}") from error
        left = [finding for finding in report.findings if finding not in repaired]
        bad = [finding for finding in self._findings if finding.grade is Grade.WRONG]
        if json:
            print_json(self._document(root, report, repaired))
        else:
            self._print(root, report, repaired)
        count = len(left) + len(bad)
        if count:
            hint = "--repair puts right what killed processes left" if any(each.repairable for each in left) else ""
            raise Failure(Exit.FAILED, f"{count} {'finding' if count == 1 else 'findings'}", hint)
        if not json:
            say("Nothing is wrong.")

    def _spool_root(self) -> Path:
        """The spool that is named or found; a running hub knows best which one it adopted."""
        from tieline.cli.whereabouts import spool_root
        from tieline.wire.home import read_running

        running = read_running(self._link.folder) if self._link.spool is None else None
        return Path(running.spool) if running is not None and running.spool is not None else spool_root(self._link)

    # Looking.

    def _look(self, names: list[str], *, canary: bool) -> None:
        import asyncio

        from tieline.cli.doctor_home import has_hub, look_at_home, look_at_place, look_at_process
        from tieline.cli.doctor_installation import installation
        from tieline.wire.home import read_running

        home = self._link.folder
        self._findings += installation()
        if not has_hub(home):
            self._findings += look_at_place(home)
            self._findings.append(note("home", f"no hub was ever started in {home}", f"tieline serve --home {home}"))
        else:
            self._findings += look_at_home(home)
            self._findings += look_at_process(home)
            self._look_at_store(home)
        running = read_running(home)
        if running is not None:
            asyncio.run(self._ask(home, running, canary=canary))
            if canary:
                asyncio.run(self._fly(home, running, names))
        elif canary:
            why = "nothing can be sent through a hub that does not run"
            self._findings.append(wrong("canary", "no hub is running here", why, f"tieline serve --home {home}"))

    async def _fly(self, home: Path, running: "Running", names: list[str]) -> None:
        from tieline.cli.doctor_canary import canary
        from tieline.client import HubError

        try:
            self._trips, found = await canary(home, running, names)
        except HubError as error:
            why = "nothing can be sent through a hub that does not answer"
            found = [wrong("canary", str(error), why, f"tieline serve --home {home}")]
        self._findings += found

    def _look_at_store(self, home: Path) -> None:
        from tieline.cli.doctor_store import audit, databases

        self._findings += databases(home, deep=self._deep)
        self._findings += audit(home, deep=self._deep)

    async def _ask(self, home: Path, running: "Running", *, canary: bool) -> None:
        from tieline.cli.doctor_home import inbox_paths, notifies
        from tieline.cli.doctor_members import look_at_members, look_at_ways, ways
        from tieline.client import HubError

        try:
            async with await Link(home=home).open_operator() as operator:
                members = await operator.members()
                reaches = {member.name: await operator.reach(member.name) for member in members}
        except (HubError, Failure) as error:
            why = "the command line and the SDK cannot use it"
            self._findings.append(wrong("hub", f"the hub does not answer: {error}", why, "look at what it logs"))
            return
        if running.channels_dir is not None:
            self._findings += inbox_paths(running.channels_dir, [member.name for member in members])
        self._findings += look_at_members(members)
        self._findings += look_at_ways(reaches, notifies=notifies(home))
        if canary:
            self._findings += ways(members, reaches)

    # Telling.

    def _document(self, root: Path, report: "Report", repaired: "list[SpoolFinding]") -> dict[str, object]:
        spool = [
            {
                "about": "spool",
                "fault": finding.fault.value,
                "path": finding.path,
                "what": finding.what,
                "repairable": finding.repairable,
                "repaired": finding in repaired,
                "do": _spool_advice(finding),
            }
            for finding in report.findings
        ]
        bad: list[dict[str, Any]] = [
            {"about": one.about, "what": one.what, "why": one.why, "do": one.do}
            for one in self._findings
            if one.grade is Grade.WRONG
        ]
        looked = [{"about": one.about, "grade": one.grade.value, "what": one.what} for one in self._findings]
        counts = {"agents": report.agents, "unread": report.unread, "kept": report.kept}
        document = {"spool": str(root), **counts, "findings": [*bad, *spool], "checks": looked}
        return {**document, "canary": self._trips} if self._trips else document

    def _print(self, root: Path, report: "Report", repaired: "list[SpoolFinding]") -> None:
        for finding in self._findings:
            if finding.about != "canary" or finding.grade is not Grade.WELL:
                _print_finding(finding)
        if self._trips:
            rows = [(trip.protocol, _ms(trip.there_ms), _ms(trip.back_ms)) for trip in self._trips]
            print_table(("protocol", "there", "back"), rows, empty="")
        kept = f", {report.kept} kept or left by a killed reader of another program" if report.kept else ""
        say(neutral_line(f"The spool in {root}: {report.agents} agents, {report.unread} unread messages{kept}."))
        for each in report.findings:
            done = "repaired: " if each in repaired else ""
            say(neutral_line(f"  {done}{each.path}: {each.what}"))
            if each not in repaired:
                say(neutral_line(f"         do:  {_spool_advice(each)}"))


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value} ms"


def _print_finding(finding: Finding) -> None:
    say(neutral_line(f"{finding.grade.value:<5}  {finding.about}: {finding.what}"), style=_STYLES[finding.grade])
    if finding.why:
        say(neutral_line(f"         why: {finding.why}"))
    if finding.do:
        say(neutral_line(f"         do:  {finding.do}"))


# The spool.


def _spool_advice(finding: "SpoolFinding") -> str:
    from tieline.protocols.backchannel.upkeep import Fault

    match finding.fault:
        case Fault.OPEN_TO_OTHERS:
            return f"chmod 700 {finding.path}"
        case Fault.NO_RECORD:
            return f"tieline inbox --as {Path(finding.path).name}, which makes the agent known; or remove the folder"
        case Fault.UNFINISHED_CLAIM | Fault.UNFINISHED_WRITE | Fault.LOOSE_LOCK:
            return "tieline doctor --repair"
        case Fault.STRANGE_NAME | Fault.UNREADABLE_MESSAGE | Fault.UNREADABLE_RECORD:
            return f"look at {finding.path}, and correct or remove it"


def _refused_files(root: Path) -> Iterator[Finding]:
    """What the hub did not take from its spool, and kept for a person to look at."""
    for folder in sorted(root.glob("spool/*/refused")):
        files = sorted(folder.glob("*.json"))
        if files:
            codes = ", ".join(sorted({path.stem.partition(".")[2] for path in files}))
            what = f"{folder} holds what was not accepted ({len(files)} of: {codes})"
            why = "whoever left them there takes them for sent"
            yield wrong("spool", what, why, f"ls {folder}; send them again as they should be, and remove them")
