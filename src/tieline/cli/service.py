"""`tieline service`: runs the hub as a service of systemd, for this user or for the whole system.

Used by: a person who wants the hub to run without a terminal. Uses: `systemctl`. Every command can be repeated: it does
only what is not done yet, and prints what it has changed.
"""

import os
import pwd
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import Struct

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import neutral_line, own_name, print_json, print_table, say, warn
from tieline.cli.session import HomeOption, JsonOption, ended_by
from tieline.cli.systemd_unit import STATE_FOLDER, Unit

_NAME = "tieline.service"
_SYSTEM_USER = "tieline"
_COMMAND_SECONDS_MAX = 330.0
"""Longest time in seconds for one command of `systemctl`. It waits until the hub is ready."""
_BOOTED = Path("/run/systemd/system")
"""Folder that exists if systemd runs this machine."""
_LINGER = Path("/var/lib/systemd/linger")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

service_app = typer.Typer(help="Run the hub as a service of systemd.", no_args_is_help=True)

SystemOption = Annotated[
    bool, typer.Option("--system", help="A service of the whole system, as root, instead of your own.")
]


@service_app.command("install")
def install(
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- OPTION]...", help="Options of 'tieline serve', after two dashes."),
    ] = None,
    system: SystemOption = False,
    run_as: Annotated[
        str, typer.Option("--run-as", metavar="USER", help="With --system: the user that runs the hub.")
    ] = _SYSTEM_USER,
    only_print: Annotated[bool, typer.Option("--print", help="Print the unit and change nothing.")] = False,
    home: HomeOption = None,
) -> None:
    """Write the unit, start the hub, and start it again at each login or boot. A changed unit restarts the hub."""
    ended_by(lambda: _install(Service(system=system), home, tuple(options or ()), run_as, only_print=only_print))


@service_app.command("status")
def status(system: SystemOption = False, json: JsonOption = False) -> None:
    """Show if the service is installed, enabled and running. Exit code 0 if it runs, else 1."""
    ended_by(lambda: _status(Service(system=system), json=json), json=json)


@service_app.command("uninstall")
def uninstall(system: SystemOption = False) -> None:
    """Stop the service and remove its unit. The home of the hub, with all its data, stays."""
    ended_by(lambda: _uninstall(Service(system=system)))


class State(Struct, frozen=True):
    """State of the service: the unit file, and the answers of systemd."""

    unit: str
    """Path of the unit file."""
    installed: bool
    enabled: str
    """Answer of systemd: `enabled`, `disabled`, or empty if it does not know the unit or does not run here."""
    active: str
    """Answer of systemd: `active`, `inactive`, `failed`…; empty if it does not run here."""
    lingers: bool | None
    """True if a user's service also runs while the user is not logged in; `None` for a service of the system."""


class Service:
    """The service of a hub in systemd: of the whole system, or of this user."""

    def __init__(self, *, system: bool) -> None:
        self.system = system
        config = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
        folder = Path("/etc/systemd/system") if system else Path(config).expanduser() / "systemd/user"
        self.path = folder / _NAME

    @property
    def runs_here(self) -> bool:
        """True if systemd runs on this machine, so that it can start services."""
        return _BOOTED.is_dir() and shutil.which("systemctl") is not None

    def command(self, verb: str) -> str:
        """Return a command line for a person to type, such as `systemctl --user start NAME`, with `verb` as its end."""
        return f"systemctl {verb}" if self.system else f"systemctl --user {verb}"

    def tell(self, *arguments: str) -> None:
        """Run `systemctl` with these arguments. If it fails, raise a `Failure` with its error message."""
        done = self._systemctl(*arguments)
        if done.returncode:
            said = done.stderr.strip().splitlines()
            raise Failure(Exit.FAILED, said[0] if said else f"systemctl ended with {done.returncode}", self._advice())

    def ask(self, question: str) -> str:
        """Return the state of the service that `systemctl` prints for a `question` such as `is-active`.

        It is one word; empty if systemd does not run on this machine.
        """
        if not self.runs_here:
            return ""
        said = self._systemctl(question, _NAME).stdout.split()
        return said[0] if said else ""

    def state(self) -> State:
        """Return the present state of the service."""
        user = pwd.getpwuid(os.getuid()).pw_name
        lingers = None if self.system else (_LINGER / user).exists()
        return State(str(self.path), self.path.exists(), self.ask("is-enabled"), self.ask("is-active"), lingers)

    def _systemctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        scope = () if self.system else ("--user",)
        command = ["systemctl", *scope, *arguments]
        try:
            return subprocess.run(  # noqa: S603 - a fixed command
                command, check=False, capture_output=True, text=True, timeout=_COMMAND_SECONDS_MAX
            )
        except subprocess.TimeoutExpired as error:
            said = f"the hub is not ready after {_COMMAND_SECONDS_MAX:.0f} seconds, and systemd still waits for it"
            hint = f"before an upgrade the hub backs up its home, which may take long; {self._advice()}"
            raise Failure(Exit.FAILED, said, hint) from error

    def _advice(self) -> str:
        if self.system:
            return f"'journalctl -u {_NAME} -n 50' shows its log" if os.geteuid() == 0 else "run it as root"
        return (
            f"'journalctl --user -u {_NAME} -n 50' shows its log; "
            "if there is no bus: log in as this user directly, or use --system as root"
        )


def _install(service: Service, home: Path | None, options: tuple[str, ...], run_as: str, *, only_print: bool) -> None:
    unit = _unit(service, home, options, run_as)
    if only_print:
        print(unit.text(), end="")
        return
    if shutil.which("systemctl") is None:
        raise _no_systemd(unit)
    if service.system:
        _check_system(unit)
    before = service.path.read_text(encoding="utf-8") if service.path.exists() else ""
    changed = before != unit.text()
    if changed:
        service.path.parent.mkdir(parents=True, exist_ok=True)
        service.path.write_text(unit.text(), encoding="utf-8")
    say(neutral_line(f"{service.path} {'was written' if changed else 'is up to date'}."))
    if not service.runs_here:
        say("systemd does not run here, so the hub was not started. After the next boot:")
        say(f"  {service.command('enable --now tieline')}")
        return
    service.tell("daemon-reload")
    service.tell("enable", _NAME)
    service.tell("restart" if changed else "start", _NAME)
    say(neutral_line(f"The hub runs, with its home in {unit.home}, and starts again by itself."))
    if service.state().lingers is False:
        say("It stops when you log out. To keep it running: loginctl enable-linger")
    as_user = f"sudo -u {run_as} " if service.system else ""
    named = f" --home {unit.home}" if "--home" in unit.command else ""
    say(neutral_line(f"Look at it: {as_user}{own_name()} status{named}; {as_user}{own_name()} logs --follow{named}"))


def _unit(service: Service, home: Path | None, options: tuple[str, ...], run_as: str) -> Unit:
    from tieline.wire.home import HOME_VARIABLE, find_home

    given = _check(options)
    program = shutil.which(sys.argv[0]) or sys.argv[0]
    command = [str(Path(program).absolute()), "serve"]
    folder = STATE_FOLDER / "tieline" if service.system and home is None else find_home(home)
    # Without --home the hub has the platform's default home, and adopts the user's own spool.
    if service.system or home is not None or os.environ.get(HOME_VARIABLE):
        command += ["--home", str(folder)]
    if any(_CONTROL.search(word) for word in (*command, *options)):
        raise Failure(Exit.USAGE, "a unit cannot have a line end or another control character in its command")
    user = run_as if service.system else ""
    programs = (Path(sys.prefix), Path(sys.base_prefix))
    # A user's own service can write wherever the user can.
    backups = _backups(folder, given) if service.system else None
    return Unit(command=(*command, *options), home=folder, backups=backups, user=user, programs=programs)


def _backups(home: Path, given: dict[str, Any]) -> Path | None:
    """Return the folder for regular backups; `None` if no folder is set, or if it is inside the hub's home.

    An option in `given` (the options of `tieline serve`) has priority over the configuration file.
    """
    from tieline.server.config import BackupSection, ConfigError, load_config
    from tieline.wire.home import CONFIG_FILE

    section = BackupSection()
    try:
        # Without a file, `load_config` would write one.
        if (home / CONFIG_FILE).exists():
            section = load_config(home).backup
    except ConfigError as error:
        raise Failure(Exit.FAILED, str(error), "correct it and install again") from error
    except PermissionError:
        warn(neutral_line(f"You may not read {home / CONFIG_FILE}, so its folder for backups is not considered."))
    folder = given["backup_dir"] or section.folder
    if not folder or not (given["backup"] or section.every):
        return None
    if not Path(folder).is_absolute():
        hint = "begin it with / in --backup-dir, or in folder in [backup]"
        raise Failure(Exit.USAGE, f"a service needs the whole path of its folder for backups, and not {folder}", hint)
    return None if Path(folder).is_relative_to(home) else Path(folder)


def _check(options: tuple[str, ...]) -> dict[str, Any]:
    """Refuse options that `tieline serve` does not have, or that a unit must not have. Return their values."""
    from tieline.cli.serve import serve
    from tieline.server.storage import has_password

    app = typer.Typer(add_completion=False)
    app.command()(serve)
    given = typer.main.get_command(app).make_context("tieline serve", list(options)).params
    if given["home"]:
        raise Failure(Exit.USAGE, "the home of a service is named before the two dashes", "--home DIR -- OPTION…")
    if has_password(given["store"] or ""):
        hint = "put it into ~/.pgpass of the user who runs the hub, or into url in [store] of tieline.toml"
        raise Failure(Exit.USAGE, "every user of this machine could read the password of --store in the unit", hint)
    return given


def _check_system(unit: Unit) -> None:
    """Raise `Failure` if a service of the system cannot be installed: without root, or without its user or folders."""
    import shlex

    user = unit.user
    if os.geteuid() != 0:
        raise Failure(Exit.FAILED, "a service of the system needs root", "use sudo, or leave --system out")
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        make = f"useradd --system --home-dir {STATE_FOLDER / 'tieline'} --shell /usr/sbin/nologin {user}"
        raise Failure(
            Exit.FAILED, f"there is no user {user} to run the hub", f"{make}; or name one with --run-as"
        ) from None
    # systemd makes only folders in its state folder.
    homes = () if unit.home.parent == STATE_FOLDER else (unit.home,)
    for folder in (*homes, *((unit.backups,) if unit.backups else ())):
        named = shlex.quote(str(folder))
        if not folder.is_dir():
            raise Failure(Exit.FAILED, f"there is no folder {folder}", f"install -d -o {user} -m 700 {named}")
        if folder.stat().st_uid != account.pw_uid:
            hint = f"chown {user} {named}, or make one for it: install -d -o {user} -m 700 DIR"
            raise Failure(Exit.FAILED, f"{folder} does not belong to {user}, the user who runs the hub", hint)
    _try_program(unit.command[0], account)


def _try_program(program: str, account: pwd.struct_passwd) -> None:
    """Run the program as the user of the service. Raise `Failure` if that user cannot run it."""
    # Only root can change its groups.
    groups = os.getgrouplist(account.pw_name, account.pw_gid) if os.getuid() == 0 else None
    try:
        done = subprocess.run(  # noqa: S603 - the program that the service will run
            [program, "--version"],
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=groups,
            cwd="/",
            # As systemd starts it: without the variables of the person who installs it.
            env={"PATH": os.defpath, "HOME": account.pw_dir},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stderr.strip().splitlines()[-1:] if done.returncode else None
    except OSError as error:
        said = [error.strerror or str(error)]
    if said is not None:
        hint = "install it where that user can read it, such as /opt/tieline, and not in a folder of another person"
        raise Failure(Exit.FAILED, f"{account.pw_name} cannot run {program}: {' '.join(said)}", hint)


def _no_systemd(unit: Unit) -> Failure:
    import shlex

    command = shlex.join(unit.command)
    return Failure(
        Exit.FAILED,
        "this machine has no systemd",
        f"let your own supervisor (launchd, runit, a container…) run '{command}'; SIGTERM stops it cleanly",
    )


def _status(service: Service, *, json: bool) -> None:
    state = service.state()
    if json:
        print_json(state)
    else:
        unknown = "disabled" if service.runs_here else "unknown: systemd does not run here"
        rows = [
            ("unit", state.unit if state.installed else f"{state.unit} (not installed)"),
            (
                "at login" if state.lingers is False else "at boot",
                state.enabled or unknown,
            ),
            ("now", state.active or unknown),
        ]
        if state.lingers is False:
            rows.append(("after logout", "stops; 'loginctl enable-linger' keeps it running"))
        print_table(("service", "state"), rows, empty="")
    if state.active != "active":
        hint = "" if state.installed else f"tieline service install{' --system' if service.system else ''}"
        raise Failure(Exit.FAILED, "the service does not run", hint)


def _uninstall(service: Service) -> None:
    if not service.path.exists():
        say(neutral_line(f"There is no {service.path}."))
        return
    if service.runs_here:
        service.tell("disable", "--now", _NAME)
    service.path.unlink()
    if service.runs_here:
        service.tell("daemon-reload")
    say(neutral_line(f"{service.path} was removed. The home of the hub, with all its data, is still there."))
