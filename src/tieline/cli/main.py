"""`tieline`: every command under its name, and the entry point.

Above: the shell. Below: the modules of this folder, one for each noun.
"""

import sys
from collections.abc import Callable
from typing import Annotated

import typer
from typer.models import CommandInfo, TyperInfo

from tieline import __version__
from tieline.cli.audit import audit_app
from tieline.cli.channels import channels, sub, unsub
from tieline.cli.connect import connect, disconnect
from tieline.cli.demo.command import demo
from tieline.cli.digest import discard
from tieline.cli.doctor import doctor
from tieline.cli.extension import Command, extensions
from tieline.cli.failure import Exit
from tieline.cli.hooks import hooks_app
from tieline.cli.imports import import_app
from tieline.cli.inbox import drain, inbox, take
from tieline.cli.login import login
from tieline.cli.logs import log_app
from tieline.cli.mcp import mcp
from tieline.cli.members import member_app, members, whoami
from tieline.cli.messages import history, receipts, send
from tieline.cli.objectives import objectives_app
from tieline.cli.pauses import allow, pause, resume
from tieline.cli.pipeline import pipeline_app
from tieline.cli.pipeline_report import report
from tieline.cli.run import run
from tieline.cli.search import search
from tieline.cli.serve import serve
from tieline.cli.skill import skill
from tieline.cli.watch import watch

_EXTENSIONS = extensions()
_VARIABLES = [
    ", ".join(names)
    for names in (
        ("TIELINE_HOME", "TIELINE_URL", "TIELINE_AGENT", "TIELINE_TOKEN"),
        *(extension.variables for extension in _EXTENSIONS if extension.variables),
    )
]
_EPILOG = (
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused, 4 hub not reachable, 5 timed out. "
    f"Environment: {'; '.join(_VARIABLES)}."
)

app = typer.Typer(
    name="tieline",
    no_args_is_help=True,
    # A traceback with the values of variables would show tokens.
    pretty_exceptions_enable=False,
    # Panels are for people at a terminal. Agents and pipes get plain text, which is faster.
    rich_markup_mode="rich" if sys.stdout.isatty() else None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"tieline {__version__}")
        raise typer.Exit


@app.callback(epilog=_EPILOG)
def tieline(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """One hub for coding agents: send messages, receive them, and see if they were read."""


_PANELS: dict[str, dict[str, Callable[..., None]]] = {
    "The hub": {"serve": serve, "demo": demo, "login": login, "doctor": doctor},
    "Messages": {
        "send": send,
        "inbox": inbox,
        "take": take,
        "read": take,
        "drain": drain,
        "discard": discard,
        "watch": watch,
        "receipts": receipts,
        "history": history,
        "search": search,
        "connect": connect,
        "disconnect": disconnect,
        "mcp": mcp,
        "skill": skill,
    },
    "Members and channels": {
        "members": members,
        "whoami": whoami,
        "channels": channels,
        "sub": sub,
        "unsub": unsub,
        "pause": pause,
        "resume": resume,
        "allow": allow,
    },
}
for panel, commands in _PANELS.items():
    for name, command in commands.items():
        app.command(name, rich_help_panel=panel)(command)
# Options after the program's name belong to the program.
app.command("run", rich_help_panel="Messages", context_settings={"allow_interspersed_args": False})(run)
app.add_typer(member_app, name="member", rich_help_panel="Members and channels")
pipeline_app.command("report")(report)
app.add_typer(hooks_app, name="hooks", rich_help_panel="Messages")
app.add_typer(import_app, name="import", rich_help_panel="The hub")
app.add_typer(objectives_app, name="objectives", rich_help_panel="Objectives")
app.add_typer(audit_app, name="audit", rich_help_panel="The hub")
app.add_typer(log_app, name="log", rich_help_panel="The hub")
app.add_typer(pipeline_app, name="pipeline", rich_help_panel="The hub")


def _add(command: Command) -> None:
    """Add a protocol's command to its group, at its place in the help."""
    groups = {each.name: each.typer_instance for each in app.registered_groups}
    group = groups[command.group] if command.group else app
    assert group is not None, "groups are added with their commands"
    added: list[CommandInfo] | list[TyperInfo]
    if isinstance(command.run, typer.Typer):
        group.add_typer(command.run, name=command.name, rich_help_panel=command.panel)
        added = group.registered_groups
    else:
        group.command(command.name, rich_help_panel=command.panel)(command.run)
        added = group.registered_commands
    names = [each.name for each in added]
    if command.after in names:
        added.insert(names.index(command.after) + 1, added.pop())  # type: ignore[arg-type]


for extension in _EXTENSIONS:
    for each in extension.commands():
        _add(each)


def main() -> None:
    """Run the command line."""
    # A name or a body may have characters that the terminal's encoding lacks.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        for argument in sys.argv[1:]:
            argument.encode()
    except UnicodeEncodeError:
        print("tieline: the arguments are not UTF-8 text", file=sys.stderr)
        raise SystemExit(Exit.USAGE) from None
    app(prog_name="tieline")


if __name__ == "__main__":
    main()
