"""`tieline doctor`: finds faults, says what to do, and repairs faults that can be repaired without loss.

Used by: a person. Uses: one module for each part that is checked, and the checks of the protocols.
Without `--repair` and `--canary` (the test by messages) it changes nothing. It works with the hub running or not.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tieline.cli.doctor_finding import DoctorFinding, Examined, Grade, note, wrong
from tieline.cli.extension import extensions
from tieline.cli.failure import Exit, Failure
from tieline.cli.output import neutral_line, print_json, print_table, say
from tieline.cli.session import HomeOption, JsonOption, Link, SpoolOption, ended_by

if TYPE_CHECKING:
    from msgspec import Struct

    from tieline.cli.doctor_canary import RoundTrip
    from tieline.wire.home import Running

_STYLES = {Grade.WELL: "", Grade.NOTE: "yellow", Grade.WRONG: "red"}


def doctor(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="With --canary: members that get one harmless status message each."),
    ] = None,
    canary: Annotated[
        bool,
        typer.Option("--canary", help="Send a test message through each protocol of the running hub, and one back."),
    ] = False,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Check the whole databases and the whole audit chain, even if they are large."),
    ] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Repair what killed processes left behind.")] = False,
    home: HomeOption = None,
    spool: SpoolOption = None,
    json: JsonOption = False,
) -> None:
    """Check the installation, the hub of this machine and its spool, and say how to fix what is wrong.

    With --spool, only that spool is checked. Exit code 0 if nothing is wrong or everything was repaired, else 1.
    """
    if names and not canary:
        raise typer.BadParameter("members can be named only with --canary", param_hint="NAME")
    examination = _Examination(Link(home=home, spool=spool), deep=deep)
    ended_by(lambda: examination.make(names or [], canary=canary, repair=repair, json=json), json=json)


class _Examination:
    """One run of `tieline doctor`: makes the checks, and collects their findings."""

    def __init__(self, link: Link, *, deep: bool) -> None:
        self._link = link
        self._deep = deep
        self._findings: list[DoctorFinding] = []
        self._trips: list[RoundTrip] = []
        # Results of checking the data that protocols keep beside the hub.
        self._examined: list[Examined] = []

    def make(self, names: list[str], *, canary: bool, repair: bool, json: bool) -> None:
        """Run the checks and print the findings. Raise `Failure` if something is wrong.

        With `canary`, test each protocol by messages, and send one message to each member in `names`. With `repair`,
        repair faults in the data of the protocols.
        """
        if self._link.spool is None:
            try:
                self._look(names, canary=canary)
            except OSError as error:
                where = error.filename or self._link.folder
                raise Failure(Exit.FAILED, f"{where}: {error.strerror or error}") from error
        for extension in extensions():
            examined = extension.look_at_data(self._link, repair=repair)
            if examined is not None:
                self._examined.append(examined)
                self._findings += examined.findings
        left = [fault for examined in self._examined for fault in examined.faults if not fault.repaired]
        bad = [finding for finding in self._findings if finding.grade is Grade.WRONG]
        if json:
            print_json(self._document())
        else:
            self._print()
        count = len(left) + len(bad)
        if count:
            hint = "--repair repairs what killed processes left behind" if any(each.repairable for each in left) else ""
            raise Failure(Exit.FAILED, f"{count} {'finding' if count == 1 else 'findings'}", hint)
        if not json:
            say("Nothing is wrong.")

    # Looking.

    def _look(self, names: list[str], *, canary: bool) -> None:
        import asyncio

        from tieline.cli.doctor_home import has_hub, look_at_home, look_at_place, look_at_process
        from tieline.cli.doctor_installation import installation
        from tieline.cli.doctor_pipeline import pipeline
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
        if has_hub(home):
            self._findings += pipeline(home, running)
        if running is not None:
            asyncio.run(self._ask(home, running, canary=canary))
            if canary:
                asyncio.run(self._send_canaries(home, running, names))
        elif canary:
            why = "nothing can be sent through a hub that does not run"
            self._findings.append(wrong("canary", "no hub is running here", why, f"tieline serve --home {home}"))

    async def _send_canaries(self, home: Path, running: "Running", names: list[str]) -> None:
        from tieline.cli.doctor_canary import canary
        from tieline.client import HubError

        try:
            self._trips, found = await canary(home, running, names)
        except HubError as error:
            why = "nothing can be sent through a hub that does not answer"
            found = [wrong("canary", str(error), why, f"tieline serve --home {home}")]
        self._findings += found

    def _look_at_store(self, home: Path) -> None:
        from tieline.cli.doctor_log import logs
        from tieline.cli.doctor_store import audit, backups, databases
        from tieline.server.config import ConfigError
        from tieline.server.storage import in_database, store_url

        try:
            url = store_url(home)
        except ConfigError:
            # The check of the home has said so.
            url = ""
        if in_database(url):
            from tieline.cli.doctor_database import database

            self._findings += database(home, url, deep=self._deep)
            return
        self._findings += databases(home, deep=self._deep)
        self._findings += audit(home, deep=self._deep)
        self._findings += logs(home)
        self._findings += backups(home)

    async def _ask(self, home: Path, running: "Running", *, canary: bool) -> None:
        from tieline.cli.doctor_home import notifies
        from tieline.cli.doctor_members import look_at_invitations, look_at_members, look_at_ways, ways
        from tieline.client import HubError

        try:
            async with await Link(home=home).open_operator() as operator:
                members = await operator.members()
                invitations = await operator.invitations()
                reaches = {member.name: await operator.reach(member.name) for member in members}
        except (HubError, Failure) as error:
            why = "the command line and the SDK cannot use it"
            self._findings.append(wrong("hub", f"the hub does not answer: {error}", why, "look at what it logs"))
            return
        for extension in extensions():
            self._findings += extension.look_at_members(running.places, [member.name for member in members])
        self._findings += look_at_members(members)
        self._findings += look_at_invitations(invitations)
        self._findings += look_at_ways(reaches, notifies=notifies(home))
        if canary:
            self._findings += ways(members, reaches)

    # Telling.

    def _document(self) -> "Struct":
        from tieline.cli.documents import OPTIONAL, CheckResult, Examination, Fault, fill

        faults = [fill(Fault, fault) for examined in self._examined for fault in examined.faults]
        bad = [
            Fault(about=one.about, what=one.what, why=one.why, do=one.do)
            for one in self._findings
            if one.grade is Grade.WRONG
        ]
        looked = [fill(CheckResult, one) for one in self._findings]
        found = Examination(findings=[*bad, *faults], checks=looked, canary=self._trips or OPTIONAL)
        counts = {name: count for examined in self._examined for name, count in examined.counts.items()}
        return fill(examination(), found, **counts)

    def _print(self) -> None:
        for finding in self._findings:
            if finding.about != "canary" or finding.grade is not Grade.WELL:
                _print_finding(finding)
        if self._trips:
            rows = [(trip.protocol, _ms(trip.there_ms), _ms(trip.back_ms)) for trip in self._trips]
            print_table(("protocol", "there", "back"), rows, empty="")
        for examined in self._examined:
            _print_examined(examined)


def examination() -> "type[Struct]":
    """Return the type of the document that `doctor --json` prints.

    It has the fields of `Examination`. Before them it has fields with counts, which the protocols add.
    """
    from msgspec import UnsetType

    from tieline.cli.documents import OPTIONAL, Examination, derive

    counts = [(name, kind | UnsetType, OPTIONAL) for each in extensions() for name, kind in each.counts.items()]
    return derive(Examination, "DoctorExamination", Examination.__doc__ or "", first=counts)


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value} ms"


def _print_finding(finding: DoctorFinding) -> None:
    say(neutral_line(f"{finding.grade.value:<5}  {finding.about}: {finding.what}"), style=_STYLES[finding.grade])
    if finding.why:
        say(neutral_line(f"         why: {finding.why}"))
    if finding.do:
        say(neutral_line(f"         do:  {finding.do}"))


def _print_examined(examined: Examined) -> None:
    say(neutral_line(examined.summary))
    for fault in examined.faults:
        done = "repaired: " if fault.repaired else ""
        say(neutral_line(f"  {done}{fault.path}: {fault.what}"))
        if not fault.repaired:
            say(neutral_line(f"         do:  {fault.do}"))
