"""`tieline`: every command under its name, and the entry point.

Used by: the shell. Uses: the modules of this folder, one for each noun. A command's module is imported only when the
command line contains that command: most runs of `tieline` are short, and importing takes most of their time.
"""

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.models import CommandInfo, TyperInfo

from tieline import __version__
from tieline.cli.failure import Exit

_COMMANDS = {
    "The hub": {"serve": "serve:serve", "demo": "demo.command:demo", "login": "login:login", "doctor": "doctor:doctor"},
    "Messages": {
        "send": "messages:send",
        "inbox": "inbox:inbox",
        "take": "inbox:take",
        "read": "inbox:take",
        "drain": "inbox:drain",
        "discard": "digest:discard",
        "watch": "watch:watch",
        "receipts": "messages:receipts",
        "history": "messages:history",
        "search": "search:search",
        "connect": "connect:connect",
        "disconnect": "connect:disconnect",
        "mcp": "mcp:mcp",
        "skill": "skill:skill",
    },
    "Members and channels": {
        "members": "members:members",
        "whoami": "members:whoami",
        "channels": "channels:channels",
        "sub": "channels:sub",
        "unsub": "channels:unsub",
        "pause": "pauses:pause",
        "resume": "pauses:resume",
        "allow": "pauses:allow",
    },
}
"""Commands, by their heading in the help. Each has a name, and the place of its function: module of this folder, and
name in the module."""

_RUN = "run"
_GROUPS = {
    "member": ("Members and channels", "members:member_app"),
    "hooks": ("Messages", "hooks:hooks_app"),
    "import": ("The hub", "imports:import_app"),
    "objectives": ("Objectives", "objectives:objectives_app"),
    "audit": ("The hub", "audit:audit_app"),
    "log": ("The hub", "logs:log_app"),
    "pipeline": ("The hub", "pipeline_report:pipeline_app"),
}
"""Groups of commands by name. Each has a heading in the help, and the place of the group: module of this folder, and
name in the module."""


def make_app(only: str = "") -> typer.Typer:
    """Return the command line with all commands, or with the one command or group named `only`.

    If Tieline itself has no command `only`, the result has all commands, also those of the protocols. So it can run a
    protocol's command, or print the help for a wrong name.
    """
    whole = not (only == _RUN or only in _GROUPS or any(only in commands for commands in _COMMANDS.values()))
    app = typer.Typer(
        name="tieline",
        no_args_is_help=True,
        # A traceback with the values of variables would show tokens.
        pretty_exceptions_enable=False,
        # Panels are for people at a terminal. Agents and pipes get plain text, which is faster.
        rich_markup_mode="rich" if sys.stdout.isatty() else None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(epilog=_epilog() if whole else None)(_tieline)
    for panel, commands in _COMMANDS.items():
        for name, place in commands.items():
            if whole or name == only:
                app.command(name, rich_help_panel=panel)(_load(place))
    if whole or only == _RUN:
        # Options after the program's name belong to the program.
        settings = {"allow_interspersed_args": False}
        app.command(_RUN, rich_help_panel="Messages", context_settings=settings)(_load("run:run"))
    for name, (panel, place) in _GROUPS.items():
        if whole or name == only:
            app.add_typer(_load(place), name=name, rich_help_panel=panel)
    if whole or only in _GROUPS:
        _extend(app, only="" if whole else only)
    return app


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"tieline.cli.{module}"), name)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"tieline {__version__}")
        raise typer.Exit


def _tieline(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """One hub for coding agents: send messages, receive them, and see if they were read."""


def _epilog() -> str:
    from tieline.cli.extension import extensions

    own = ("TIELINE_HOME", "TIELINE_URL", "TIELINE_AGENT", "TIELINE_TOKEN")
    variables = [own, *(extension.variables for extension in extensions() if extension.variables)]
    return (
        "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused, 4 hub not reachable, 5 timed out, 6 rows were missed. "
        f"Environment: {'; '.join(', '.join(names) for names in variables)}."
    )


def _extend(app: typer.Typer, *, only: str) -> None:
    """Add the commands of the protocols to `app`, each at its place in the help.

    With `only`, add only commands of this group.
    """
    from tieline.cli.extension import extensions

    groups = {each.name: each.typer_instance for each in app.registered_groups}
    for command in (each for extension in extensions() for each in extension.commands()):
        if only and command.group != only:
            continue
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


def main() -> None:
    """Run the command that the arguments of this process name."""
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
    make_app(sys.argv[1] if len(sys.argv) > 1 else "")(prog_name="tieline")


if __name__ == "__main__":
    main()
