"""`tieline serve`: runs the hub as a process in the foreground.

Used by: a person, a service manager or `make run`. Uses: `server.hub`. The command adds the parts of a process: logs on
stderr, a short overview on stdout with addresses and next steps, signals, and an exit code.
"""

import contextlib
import errno
import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tieline import __version__
from tieline.cli.failure import Exit, Failure
from tieline.cli.hub_log import LogFile, LogLevel
from tieline.cli.output import own_name
from tieline.cli.session import ended_by
from tieline.protocols import protocols
from tieline.wire.protocol import Flag

if TYPE_CHECKING:
    from tieline.server.hub import Options
    from tieline.services.login_sessions import LoginSessions
    from tieline.wire.home import Running


_USUAL_STORE = "sqlite"
_HTTP = "http"
"""Section of the HTTP port in `tieline.toml`."""
_WORKERS = "workers"
"""Section of the workers in `tieline.toml`."""

_CLUSTER = "cluster"
"""Section of the hubs of a team in `tieline.toml`."""

_HTTP_FLAGS = (
    Flag(
        ("--tls",),
        "Speak TLS, with a certificate that the hub makes once for its home.",
        lambda _: {"tls": True, "tls_cert": "", "tls_key": ""},
        excludes="--tls-cert",
    ),
    Flag(
        ("--tls-cert",),
        "Speak TLS with this certificate. A new one is used at once.",
        lambda file: {"tls": False, "tls_cert": str(file)},
        metavar="FILE",
        is_path=True,
    ),
    Flag(
        ("--tls-key",),
        "Private key of --tls-cert.",
        lambda file: {"tls_key": str(file)},
        metavar="FILE",
        is_path=True,
    ),
    Flag(
        ("--insecure-http",),
        "Listen without TLS, also where other machines can reach the hub.",
        lambda _: {"insecure": True},
    ),
    Flag(
        ("--base-url",),
        "Address by which others reach the hub, if a proxy is before it.",
        lambda url: {"base_url": url},
        metavar="URL",
    ),
    Flag(
        ("--trusted-proxy",),
        "Proxies whose X-Forwarded-For and X-Forwarded-Proto are believed.",
        lambda text: {"trusted_proxies": tuple(text.split(","))},
        metavar="CIDR[,CIDR…]",
    ),
)
"""Options of `tieline serve` that replace settings in the section `[http]`."""

_WORKERS_FLAGS = (
    Flag(
        ("--workers",),
        "Processes that serve clients, beside the hub's own. Default: 0.",
        lambda text: {"count": _worker_count(text)},
        metavar="N",
    ),
)
"""Options of `tieline serve` that replace settings in the section `[workers]`."""


_CLUSTER_FLAGS = (
    Flag(
        ("--cluster",),
        "Be one of several hubs of a team, which reach this one here.",
        lambda text: {"address": text},
        metavar="HOST:PORT",
    ),
)
"""Options of `tieline serve` that replace settings in the section `[cluster]`."""


def _worker_count(text: str) -> int:
    """Return the number in the option `--workers`. Raises `ValueError` if it is no number."""
    if not text.isdecimal():
        raise ValueError(f"{text!r} is no number of processes")
    return int(text)


def _all_flags() -> Iterator[tuple[str, Flag]]:
    """Yield all options of `tieline serve` that replace settings, each with its section or protocol."""
    yield from ((_HTTP, flag) for flag in _HTTP_FLAGS)
    yield from ((_WORKERS, flag) for flag in _WORKERS_FLAGS)
    yield from ((_CLUSTER, flag) for flag in _CLUSTER_FLAGS)
    yield from ((protocol.name, flag) for protocol in protocols() for flag in protocol.flags)


def serve(
    home: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Home folder of the hub. Default: TIELINE_HOME, else the platform's state folder."
        ),
    ] = None,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Address of the HTTP port. Port 0 picks a free port.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="'sqlite', 'postgresql://…', or 'memory' to delete all at the end."),
    ] = None,
    pipeline: Annotated[
        str | None,
        typer.Option(
            metavar="EVERY", help="Run the pipeline so often, as a child process, for example 5m.", show_default=False
        ),
    ] = None,
    log_level: Annotated[LogLevel, typer.Option(help="Level of the logs on stderr.")] = LogLevel.INFO,
    backup: Annotated[
        str | None, typer.Option(metavar="EVERY", help="Make a backup every 30m, 6h, 1d…; needs --backup-dir.")
    ] = None,
    backup_dir: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the backups.")] = None,
    backup_keep: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Number of backups to keep there.", show_default="7")
    ] = None,
    **flags: Any,
) -> None:
    """Run the hub until Ctrl-C or SIGTERM."""
    import uvloop

    from tieline.server.hub import Options
    from tieline.wire.address import parse_address
    from tieline.wire.home import HOME_VARIABLE, find_home

    if http is not None:
        try:
            parse_address(http)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--http") from error
    backups = {
        "every": backup,
        "folder": str(backup_dir.expanduser().absolute()) if backup_dir else None,
        "keep": backup_keep,
    }
    options = Options(
        home=find_home(home),
        http=http,
        store=store,
        home_named=home is not None or bool(os.environ.get(HOME_VARIABLE)),
        pipeline=pipeline,
        flags=_settings(flags),
        backup={name: value for name, value in backups.items() if value is not None},
    )
    log_file = LogFile(options.home)
    configure_logs(log_level, log_file)
    ended_by(lambda: uvloop.run(_run(options, log_file)))


def _parameter(flag: Flag) -> str:
    return flag.names[0].removeprefix("--").replace("-", "_")


def _settings(given: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the settings that the command line options override, by protocol (or section) and field.

    `given` are the values of all options.
    """
    found: dict[str, dict[str, Any]] = {}
    for owner, flag in _all_flags():
        value = given[_parameter(flag)]
        # A switch with only one name is off unless it is given.
        if value is None or (not flag.metavar and len(flag.names) == 1 and not value):
            continue
        if flag.excludes and given.get(_parameter(Flag((flag.excludes,), "", dict))):
            raise typer.BadParameter(f"it cannot be given with {flag.excludes}", param_hint=flag.names[0])
        if flag.is_path:
            value = value.expanduser().absolute()
        try:
            found.setdefault(owner, {}).update(flag.sets(value))
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint=flag.names[0]) from error
    return found


def _add_flags() -> None:
    """Add the command line options that replace settings to the signature of `serve`."""
    own = [each for each in inspect.signature(serve).parameters.values() if each.kind is not each.VAR_KEYWORD]
    added = []
    for _, flag in _all_flags():
        kind: Any = bool if not flag.metavar else Path if flag.is_path else str
        option = typer.Option("/".join(flag.names), metavar=flag.metavar or None, help=flag.help)
        parameter = inspect.Parameter(
            _parameter(flag),
            inspect.Parameter.KEYWORD_ONLY,
            default=False if kind is bool and len(flag.names) == 1 else None,
            annotation=Annotated[kind if kind is bool and len(flag.names) == 1 else kind | None, option],
        )
        added.append(parameter)
    serve.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]


_add_flags()


def configure_logs(level: LogLevel, file: LogFile | None = None) -> None:
    """Send the logs of Tieline and of libraries to stderr: coloured lines on a terminal, JSON lines elsewhere.

    Also write them to `file`, if it is given, always as JSON lines.
    """
    import logging

    import structlog

    number = logging.getLevelNamesMapping()[level.upper()]
    stamp: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    as_json: list[Any] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    last: list[Any] = [structlog.dev.ConsoleRenderer(colors=True)] if sys.stderr.isatty() else as_json

    def write(logger: Any, name: str, event: Any) -> Any:
        if file is not None:
            line = dict(event)
            for process in as_json:
                line = process(logger, name, line)
            file.write(str(line))
        return event

    last = [write, *last]
    structlog.configure(
        processors=[*stamp, *last],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    strip = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=stamp, processors=[strip, *last]))
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[handler])


async def _run(options: "Options", log_file: LogFile) -> None:
    import asyncio

    from tieline.cli.backup_schedule import make_folder, scheduled_backups
    from tieline.cli.upgrade import prepare_upgrade
    from tieline.server.cluster.member import make_hub
    from tieline.server.config import ConfigError
    from tieline.server.home import HomeBusy
    from tieline.server.runtime import spare_collector, stop_signals, suspend_collector

    suspend_collector()
    asked = stop_signals()
    upgraded = ""

    async def prepare() -> None:
        nonlocal upgraded
        make_folder(hub.backup)
        upgraded = await asyncio.to_thread(prepare_upgrade, options.home)

    hub = make_hub(options, prepare)
    try:
        running = await hub.start()
    except HomeBusy as error:
        raise _busy(options.home, str(error)) from error
    except ConfigError as error:
        raise Failure(Exit.FAILED, str(error), "correct it and start again") from error
    except OSError as error:
        raise _failed_start(options, error) from error
    try:
        welcome = [
            line
            for server in hub.servers.values()
            for line in server.welcome(running.invited_to, first=hub.first_start)
        ]
        if upgraded:
            _print(upgraded)
        if _is_journal():
            # More people may read the journal than the home, so it gets no tokens and no links.
            _print(f"Tieline {__version__} is running in {options.home}, at {running.public}.")
        else:
            _print(_ready(running, options.home, welcome, first=hub.first_start))
            if hub.first_start and hub.owner and hub.services is not None:
                _print(_first_visit(running, hub.services.logins, hub.owner))
        spare_collector()
        log_file.note("the hub started", pid=running.pid, version=__version__, http=running.http)
        tell_service_manager("READY=1")
        async with scheduled_backups(options.home, hub.backup):
            code = await hub.wait(asked)
        tell_service_manager("STOPPING=1")
    finally:
        await hub.stop()
        log_file.note("the hub stopped", pid=running.pid)
    if code:
        raise Failure(Exit.FAILED, "the hub stopped because it cannot use its store any more; the log above says why")
    _print("The hub has stopped; everything it accepted is kept.")


def _is_journal() -> bool:
    """Return true if the output of this process goes to the journal of systemd.

    The variable `JOURNAL_STREAM` names the stream to the journal. Terminals on a desktop that systemd started inherit
    the variable, but their output is another stream. So the stream is compared.
    """
    named = os.environ.get("JOURNAL_STREAM", "")
    found = [os.fstat(number) for number in (1, 2)] if named else []
    return any(f"{one.st_dev}:{one.st_ino}" == named for one in found)


def _busy(home: Path, message: str) -> Failure:
    from tieline.wire.home import read_running

    running = read_running(home)
    hint = f"it runs as process {running.pid} at {running.http}" if running else ""
    return Failure(Exit.FAILED, message, hint)


def _failed_start(options: "Options", error: OSError) -> Failure:
    from tieline.server.config import load_config
    from tieline.server.home import HalfRestored
    from tieline.wire.folder import NotOurs
    from tieline.wire.unix import SocketCheckTimeout, SocketInUse, SocketPathTooLong

    match error:
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            hint = f"free some space (df -h {options.home}); nothing that was accepted is lost"
            return Failure(Exit.FAILED, f"the disk of {error.filename or options.home} is full", hint)
        case OSError(errno=errno.EROFS):
            hint = "check how it is mounted, or name another home with --home DIR"
            return Failure(Exit.FAILED, f"the disk of {error.filename or options.home} is read-only", hint)
        case NotOurs() | HalfRestored():
            return Failure(Exit.FAILED, str(error))
        case OSError() if hasattr(error, "hint"):
            return Failure(Exit.FAILED, str(error), error.hint)
        case SocketPathTooLong():
            return Failure(Exit.FAILED, str(error), "name a home with a shorter path: --home DIR")
        case SocketInUse() | SocketCheckTimeout():
            return Failure(Exit.FAILED, str(error), "stop what listens there, or name another home with --home DIR")
        case OSError(filename=str(name)):
            return Failure(Exit.FAILED, f"{name}: {error.strerror}", "name another home with --home DIR")
        case _:
            # Any other error came from binding the port: `bind` does not name the address.
            listen = options.http or load_config(options.home).http.listen
            message = f"cannot listen on {listen}: {error.strerror or error}"
            stop = _stop_holder(listen) if error.errno == errno.EADDRINUSE else "stop what listens there"
            return Failure(Exit.FAILED, message, f"{stop}, or choose another with --http HOST:PORT")


def _stop_holder(listen: str) -> str:
    """Return what a person can do about the program that listens on an address already."""
    import shlex

    from tieline.cli.port_holder import find_home_of, is_hub
    from tieline.wire.address import parse_address

    address = parse_address(listen)
    home = find_home_of(address)
    if home is not None:
        return f"the hub of {home} listens there: stop it with 'tieline stop --home {shlex.quote(str(home))}'"
    if is_hub(address):
        return "a Tieline hub of another home or user listens there: stop it"
    return "stop what listens there"


def _ready(running: "Running", home: Path, welcome: list[str], *, first: bool) -> str:
    from tieline.console.documentation import PREFIX, is_built
    from tieline.wire.home import CONFIG_FILE, HOME_VARIABLE, default_home

    lines = [
        f"Tieline {__version__} is running as process {running.pid}; Ctrl-C stops it.",
        f"  home      {home}",
        f"  http      {running.public}  (the console; {own_name()} login NAME prints a way in)",
    ]
    if is_built():
        lines.insert(3, f"  docs      {running.public}{PREFIX}/")
    if running.url:
        lines.insert(3, f"  listens   {running.http}")
    if running.fingerprint:
        lines.insert(3, f"  tls       its own certificate, SHA-256 {running.fingerprint}")
    labels = {place: label for protocol in protocols() for place, label in protocol.places.items() if label}
    places = {labels[name]: place for name, place in running.places.items() if name in labels and place}
    places = {"socket": running.hub_socket, **places, "store": running.store}
    for label, place in places.items():
        # At the first start only what is elsewhere: a newcomer needs no socket of the home, and `status` lists them.
        if not first or (place != _USUAL_STORE and home not in Path(place).parents):
            lines.append(f"  {label:<10}{place}")
    if first:
        lines.append(
            f"This is its first start: all it keeps is in that home, its configuration in {CONFIG_FILE} there."
        )
    lines += welcome
    if first:
        lines.append("To a first message, from another terminal:")
    elif home != default_home():
        lines.append("For commands in another terminal:")
    if home != default_home():
        import shlex

        lines.append(f"  export {HOME_VARIABLE}={shlex.quote(str(home))}")
    return "\n".join([*lines, *(_first_steps() if first else ())])


def _first_steps() -> list[str]:
    """Return the lines that the first start prints: the commands that send a first message, and further commands."""
    tieline = own_name()
    return [
        f"  {tieline} member add me --kind human",
        f"  {tieline} init me",
        f"  {tieline} member add bob",
        f'  {tieline} send @bob "hello"',
        f"  {tieline} drain --as bob",
        f"To connect your Claude Code, Codex or Gemini CLI: {tieline} connect",
        f"To let somebody join from another machine: {tieline} invite",
        f"Five agents on five protocols at work, in a hub of their own: {tieline} demo",
    ]


def _first_visit(running: "Running", logins: "LoginSessions", owner: str) -> str:
    """Return a text with the link by which the owner of the hub logs in to the console and becomes a member."""
    from tieline.contract.identifiers import MemberName

    link = f"{running.public}/#/enter/{logins.first_code(MemberName(owner))}"
    return f"To look on and join in, as {owner}, in a browser (once, within 15 minutes):\n  {link}"


def tell_service_manager(state: str) -> None:
    """Tell systemd the state of this process, if systemd started it and wants to know (`Type=notify`)."""
    import socket

    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    # A name that begins with @ is no file: its first byte is zero.
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.sendto(state.encode(), address.replace("@", "\0", 1) if address.startswith("@") else address)


def _print(text: str) -> None:
    # If the reader of stdout is gone, the hub neither stops nor ends with an error.
    with contextlib.suppress(OSError):
        print(text, flush=True)
