"""`tieline`: every command under its name, and the entry point.

Used by: the shell. Uses: the modules of this folder, one for each noun. A command's module is imported only when the
command line contains that command: most runs of `tieline` are short, and importing takes most of their time.
"""

import sys
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tieline import __version__, commit
from tieline.cli.failure import Exit

if TYPE_CHECKING:
    from tieline.cli.overview import Overview

_RUN = "run"

_Named = dict[str, str]
_COMMANDS: dict[str, tuple[tuple[_Named, str], ...]] = {
    "Messages": (
        (
            {"send": "messages:send", "reply": "messages:reply"},
            "Write to a member, a channel, all; answer a message.",
        ),
        ({"inbox": "inbox:inbox"}, "Show the messages that wait for you."),
        (
            {"take": "inbox:take", "drain": "inbox:drain", "discard": "digest:discard"},
            "Take one message, take all, or drop some.",
        ),
        ({"watch": "watch:watch"}, "Take messages as they come; print or run a program."),
        ({"receipts": "messages:receipts"}, "See what became of a message, for each recipient."),
        ({"history": "messages:history", "search": "search:search"}, "Read earlier messages, or find some by words."),
        ({"redact": "redact:redact"}, "Erase the content of a message for good."),
    ),
    "Agents": (
        (
            {"connect": "connect:connect", "disconnect": "connect:disconnect"},
            "Connect Claude Code, Codex or Gemini to the hub.",
        ),
        ({_RUN: "run:run"}, "Run an agent here, and bring messages to it."),
        (
            {"hooks": "hooks:hooks_app", "mcp": "mcp:mcp", "skill": "skill:skill"},
            "The parts of 'connect', one by one.",
        ),
    ),
    "Team": (
        (
            {"members": "members:members", "member": "members:member_app", "whoami": "members:whoami"},
            "List, make and change members; show your own name.",
        ),
        (
            {"channels": "channels:channels", "sub": "channels:sub", "unsub": "channels:unsub"},
            "List channels; join or leave one.",
        ),
        ({"objectives": "objectives:objectives_app"}, "Work with an outcome: create, follow and complete it."),
        (
            {"pause": "pauses:pause", "resume": "pauses:resume", "allow": "pauses:allow"},
            "Hold a conversation, deliver it, or lift its limits.",
        ),
    ),
    "Operate": (
        ({"serve": "serve:serve", "status": "status:status", "stop": "stop:stop"}, "Run the hub, look at it, stop it."),
        ({"login": "login:login"}, "Print a link that opens the console in a browser."),
        (
            {"logs": "hub_log:logs", "doctor": "doctor:doctor", "cluster": "cluster:cluster_app"},
            "Read the log; find faults; see which hub leads.",
        ),
        (
            {"backup": "backup:backup", "restore": "backup:restore", "store": "store:store_app"},
            "Keep everything in a file, or copy it to a database.",
        ),
        (
            {"service": "service:service_app", "config": "configuration:config_app"},
            "Run the hub by systemd; show its settings.",
        ),
        ({"completion": "completion:completion", "man": "man_pages:man"}, "Complete names in your shell; man pages."),
        ({"demo": "demo.command:demo"}, "Watch five agents on five protocols finish some work."),
    ),
    "Data": (
        ({"pipeline": "pipeline_tables:pipeline_app"}, "Turn the logs into tables and reports, on Spark."),
        (
            {"audit": "audit:audit_app", "log": "logs:log_app", "import": "imports:import_app"},
            "Check the audit chain; readers of logs; import data.",
        ),
    ),
}
"""Commands by their heading in the help. The commands of one line are related. Each command has a name, and the place
of its function or group: module of this folder, and name in the module."""

_ALIASES = {"read": "take", "complete-words": "completion:complete_words"}
"""Commands that no help lists: another name of a command, or the place of a function that only scripts call."""


def make_app(only: str = "") -> typer.Typer:
    """Return the command line with all commands, or with the one command or group named `only`.

    If Tieline itself has no command `only`, the result has all commands, also those of the protocols. So it can run a
    protocol's command, or print the help for a wrong name.
    """
    places = {name: place for lines in _COMMANDS.values() for named, _ in lines for name, place in named.items()}
    whole = only not in places and only not in _ALIASES
    app = typer.Typer(
        name="tieline",
        cls=_overview() if whole else None,
        no_args_is_help=True,
        # A command of its own prints completions, because typer's know nothing of @ and : in bash.
        add_completion=False,
        # A traceback with the values of variables would show tokens.
        pretty_exceptions_enable=False,
        # Plain text is the same on a terminal and in a pipe, fits 80 columns, and is faster.
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_tieline)
    for heading, lines in _COMMANDS.items():
        for name, place in (each for named, _ in lines for each in named.items()):
            if whole or name == only:
                _add(app, name, _load(place), heading)
    for name, place in _ALIASES.items():
        if whole or name == only:
            app.command(name, hidden=True)(_load(places.get(place, place)))
    more: dict[str, tuple[str, ...]] = {}
    if app.registered_groups:
        more = _extend(app, only="" if whole else only)
    from tieline.cli.examples import add_examples

    add_examples(app, more)
    return app


def _add(app: typer.Typer, name: str, what: Any, heading: str) -> None:
    if isinstance(what, typer.Typer):
        app.add_typer(what, name=name, rich_help_panel=heading)
    else:
        # Options after the program's name belong to the program.
        settings = {"allow_interspersed_args": False} if name == _RUN else None
        app.command(name, rich_help_panel=heading, context_settings=settings)(what)


def _overview() -> type["Overview"]:
    """Return the class of the command `tieline` itself. Its help lists all commands, also those of the protocols."""
    from tieline.cli.extension import extensions
    from tieline.cli.overview import Overview

    lines = {heading: [(", ".join(named), text) for named, text in each] for heading, each in _COMMANDS.items()}
    for command in (each for extension in extensions() for each in extension.commands()):
        if not command.group:
            assert command.panel, "a command without a group has a heading"
            if command.summary:
                lines[command.panel].append((command.name, command.summary))
            else:
                names, text = lines[command.panel].pop()
                lines[command.panel].append((f"{names}, {command.name}", text))
    own = ("TIELINE_HOME", "TIELINE_URL", "TIELINE_AGENT", "TIELINE_TOKEN")
    variables = [own, *(extension.variables for extension in extensions() if extension.variables)]
    environment = f"Environment: {', '.join(chain.from_iterable(variables))}."
    return type("Overview", (Overview,), {"lines": lines, "notes": (environment,)})


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"tieline.cli.{module}"), name)


def _print_version(asked: bool) -> None:
    if asked:
        print(" ".join(filter(None, ("tieline", __version__, f"({known})" if (known := commit()) else ""))))
        raise typer.Exit


def _tieline(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and the commit."),
    ] = False,
) -> None:
    """One hub for coding agents: send messages, get them, and see if they were read."""


def _extend(app: typer.Typer, *, only: str) -> dict[str, tuple[str, ...]]:
    """Add the commands of the protocols to `app`. Return their examples.

    With `only`, add only commands of this group.
    """
    from tieline.cli.extension import extensions

    groups = {each.name: each.typer_instance for each in app.registered_groups}
    examples: dict[str, tuple[str, ...]] = {}
    for command in (each for extension in extensions() for each in extension.commands()):
        if only and command.group != only:
            continue
        group = groups[command.group] if command.group else app
        assert group is not None, "groups are added with their commands"
        _add(group, command.name, command.run, command.panel)
        path = f"{command.group} {command.name}".strip()
        examples |= {f"{path} {name}".strip(): lines for name, lines in command.examples.items()}
    return examples


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
