"""Examples: at least one command line for each command, at the end of its help and of its man page.

Used by: `main`, which adds them to the commands, and the man pages. A protocol has the examples of its own commands in
its extension. A test parses every example.
"""

from collections.abc import Mapping
from typing import Any

import typer

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "send": (
        "tieline send @bob 'The build is green.'",
        "make test 2>&1 | tail -20 | tieline send '#dev' - --urgent",
        "tieline send bob 'May I merge?' --wait-for acked --timeout 600",
    ),
    "reply": ("tieline reply 12 'Yes, merge it.'",),
    "inbox": ("tieline inbox --as bob", "tieline inbox --digest"),
    "take": ("tieline take 12 --as bob",),
    "drain": ("tieline drain --as bob", "tieline drain claude-code --hook"),
    "discard": ("tieline discard 12 --because 'done by hand'", "tieline discard --obsolete"),
    "watch": ("tieline watch --as bob", 'tieline watch --exec \'notify-send "$TIELINE_FROM" "$TIELINE_BODY"\''),
    "receipts": ("tieline receipts 12",),
    "history": ("tieline history", "tieline history '#dev' --limit 200", "tieline history obj:3"),
    "search": ("tieline search 'token leak' --from bob --since 2d",),
    "redact": ("tieline redact 12 --reason 'a password'",),
    "connect": ("tieline connect claude-code", "tieline connect codex --as fixer"),
    "disconnect": ("tieline disconnect claude-code",),
    "mcp": ("tieline mcp --as bob",),
    "skill": ("tieline skill > .claude/skills/tieline/SKILL.md",),
    "run": ("tieline run claude-code --as bob", "tieline run --as helper -- python3 agent.py"),
    "hooks install": ("tieline hooks install claude-code",),
    "members": ("tieline members",),
    "whoami": ("tieline whoami",),
    "channels": ("tieline channels",),
    "sub": ("tieline sub dev --as bob",),
    "unsub": ("tieline unsub dev --as bob",),
    "pause": ("tieline pause '#dev'", "tieline pause @ada+@bob", "tieline pause"),
    "resume": ("tieline resume '#dev'",),
    "allow": ("tieline allow obj:3 --for 4h",),
    "member add": ("tieline member add bob", "tieline member add ada --kind human --permission members.manage"),
    "member list": ("tieline member list",),
    "member remove": ("tieline member remove bob",),
    "member rotate": ("tieline member rotate bob",),
    "member tokens": ("tieline member tokens bob", "tieline member tokens bob --revoke 99ad3625"),
    "member kind": ("tieline member kind nightly script",),
    "member alias": ("tieline member alias bob robert",),
    "member reach": ("tieline member reach bob --way push=30 --way hook --way notify --notify ada",),
    "objectives create": ("tieline objectives create 'Ship 1.2' --outcome 'Users have it' --assignee bob",),
    "objectives list": ("tieline objectives list --assignee bob",),
    "objectives view": ("tieline objectives view 3",),
    "objectives block": ("tieline objectives block 3 'No access to the server.'",),
    "objectives unblock": ("tieline objectives unblock 3",),
    "objectives complete": ("tieline objectives complete 3 'Released as 1.2.0.'",),
    "objectives cancel": ("tieline objectives cancel 3 --reason 'Not needed any more.'",),
    "objectives reassign": ("tieline objectives reassign 3 ada",),
    "objectives discuss": ("tieline objectives discuss 3 'How far is it?'",),
    "objectives watch": ("tieline objectives watch 3 ada",),
    "objectives unwatch": ("tieline objectives unwatch 3 ada",),
    "serve": ("tieline serve", "tieline serve --home ~/hub --http 127.0.0.1:8000"),
    "status": ("tieline status",),
    "stop": ("tieline stop",),
    "login": ("tieline login", "tieline login ada"),
    "logs": ("tieline logs",),
    "doctor": ("tieline doctor",),
    "backup": ("tieline backup tieline.tar.gz",),
    "cluster status": ("tieline cluster status", "tieline cluster status --json"),
    "cluster promote": ("tieline cluster promote --home /var/lib/tieline",),
    "store copy": (
        "tieline store copy sqlite:$HOME/hub postgresql://tieline@db.example/tieline",
        "tieline store copy postgresql://tieline@db.example/tieline sqlite:$HOME/hub",
    ),
    "restore": ("tieline restore tieline.tar.gz --home ~/restored",),
    "service install": ("tieline service install",),
    "service status": ("tieline service status",),
    "service uninstall": ("tieline service uninstall",),
    "config show": ("tieline config show --origin",),
    "demo": ("tieline demo",),
    "completion": (
        "d=~/.local/share/bash-completion/completions; mkdir -p $d && tieline completion bash > $d/tieline",
    ),
    "pipeline run": ("tieline pipeline run --once",),
    "pipeline status": ("tieline pipeline status",),
    "pipeline sql": ("tieline pipeline sql 'select * from edges'",),
    "pipeline rebuild": ("tieline pipeline rebuild edges",),
    "pipeline rewind": ("tieline pipeline rewind",),
    "pipeline report": ("tieline pipeline report --html report.html",),
    "pipeline verify": ("tieline pipeline verify",),
    "pipeline tables": ("tieline pipeline tables edges",),
    "audit verify": ("tieline audit verify",),
    "audit export": ("tieline audit export audit.jsonl",),
    "audit checkpoint": ("tieline audit checkpoint",),
    "log readers": ("tieline log readers",),
    "log forget": ("tieline log forget pipeline",),
    "man": ("tieline man ~/.local/share/man/man1",),
}
"""Examples of each command, by its words after `tieline`."""


def add_examples(app: typer.Typer, more: Mapping[str, tuple[str, ...]]) -> None:
    """Add examples to the end of the help of every command in `app`.

    `more` has the examples of the protocols' commands.
    """
    known = {**EXAMPLES, **more}
    for group in app.registered_groups:
        assert group.typer_instance is not None, "every group was added with its commands"
        assert group.name, "every group has a name"
        for command in group.typer_instance.registered_commands:
            _add(command, known.get(f"{group.name} {_name(command)}", ()))
        _add(group, known.get(group.name, ()))
    for command in app.registered_commands:
        _add(command, known.get(_name(command), ()))


def _name(command: Any) -> str:
    """Return the name of a command. Typer makes it from the function if none was given."""
    return str(command.name or command.callback.__name__.replace("_", "-"))


def _add(command: Any, examples: tuple[str, ...]) -> None:
    if examples:
        title = "Example:" if len(examples) == 1 else "Examples:"
        # The character \b keeps the lines of a paragraph as they are.
        command.epilog = "\n".join(("\b", title, *(f"  {each}" for each in examples)))
