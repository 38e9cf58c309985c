"""Hooks: settings that make an agent program run a command of ours at the boundaries of its turns.

Above: `tieline hooks`. Below: `settings`. It does no I/O: text of settings in, text out. The answer of such a command
is made in `unread`.
"""

import re
import shlex
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from tieline.agents import settings

_HOOKS = "hooks"
_SECONDS_MAX = 10
"""Timeout after which the program stops waiting for a hook. Our command gives up well before."""
_OURS = re.compile(r"tieline\S* drain --hook (?:claude-code|codex|gemini)(?:\s|$)")

STOP = "Stop"


class Program(StrEnum):
    """The agent programs whose hooks are supported."""

    CLAUDE_CODE = "claude-code"
    CODEX = "codex"
    GEMINI = "gemini"


class Form(Struct, frozen=True):
    """The location of a program's hooks, and the events at which our hook runs."""

    folder: str
    """Folder of the program's configuration, in the user's home."""
    variable: str
    """Environment variable that names another folder, if it is set."""
    file: str
    events: tuple[str, ...]
    prompted: str
    """The event after a prompt of the user. This event is assumed if the program names none."""
    timeout: int = _SECONDS_MAX
    advice: str = ""
    """Advice to the user about further steps."""


_CLAUDE_EVENTS = ("SessionStart", "UserPromptSubmit", "PostToolUse", STOP)

FORMS: dict[Program, Form] = {
    Program.CLAUDE_CODE: Form(".claude", "CLAUDE_CONFIG_DIR", "settings.json", _CLAUDE_EVENTS, "UserPromptSubmit"),
    Program.CODEX: Form(
        ".codex",
        "CODEX_HOME",
        "hooks.json",
        _CLAUDE_EVENTS,
        "UserPromptSubmit",
        advice="Codex runs a new hook after you have looked at it and trusted it: /hooks, in Codex.",
    ),
    Program.GEMINI: Form(
        ".gemini",
        "",
        "settings.json",
        ("SessionStart", "BeforeAgent", "AfterTool"),
        "BeforeAgent",
        # Gemini's timeout is in milliseconds.
        timeout=1000 * _SECONDS_MAX,
    ),
}


def command_line(program: Program, tieline: str, *, member: str | None = None, home: str | None = None) -> str:
    """The command that a hook runs, quoted for the program's shell."""
    words = [tieline, "drain", "--hook", program.value]
    words += ["--as", member] if member else []
    words += ["--home", home] if home else []
    return shlex.join(words)


def with_hooks(text: str, program: Program, command: str) -> str:
    """Settings with our hooks. Older hooks of ours are replaced. Raises `BadSettings`."""
    form = FORMS[program]
    hook = {"type": "command", "command": command, "timeout": form.timeout}
    if _has_all(text, form, hook):
        return text
    text = without_hooks(text)
    if not text.strip():
        made = {_HOOKS: {event: [_group(hook)] for event in form.events}}
        return f"{msgspec.json.format(msgspec.json.encode(made)).decode()}\n"
    for event in form.events:
        root = _root(text)
        hooks = settings.child(root, _HOOKS)
        if hooks is None:
            text = settings.add_child(text, root, {event: [_group(hook)]}, _HOOKS)
            continue
        groups = settings.child(hooks, event)
        if groups is None:
            text = settings.add_child(text, hooks, [_group(hook)], event)
        else:
            text = settings.add_child(text, groups, _group(hook))
    return text


def _has_all(text: str, form: Form, hook: dict[str, Any]) -> bool:
    """True if each event of the form has exactly this hook of ours once, and no other event has a hook of ours."""
    hooks = settings.child(_root(text), _HOOKS) if text.strip() else None
    if hooks is None:
        return False
    found = [
        (event.key, each.value)
        for event in hooks.children
        for group in event.node.children
        for inner in [settings.child(group.node, _HOOKS)]
        for each in (item.node for item in (inner.children if inner else ()))
        if _is_ours(each.value)
    ]
    return sorted(key or "" for key, _ in found) == sorted(form.events) and all(value == hook for _, value in found)


def without_hooks(text: str) -> str:
    """Settings without our hooks. Everything else is unchanged. Raises `BadSettings`."""
    while True:
        shorter = _without_one(text)
        if shorter is None:
            return text
        text = shorter


def _group(hook: dict[str, Any]) -> dict[str, Any]:
    return {_HOOKS: [hook]}


def _root(text: str) -> settings.Node:
    root = settings.parse(text)
    if not isinstance(root.value, dict):
        raise settings.BadSettings("the settings are no object")
    hooks = settings.child(root, _HOOKS)
    if hooks is not None:
        if not isinstance(hooks.value, dict):
            raise settings.BadSettings(f"{_HOOKS!r} is no object")
        for event in hooks.children:
            if event.key and event.key[:1].isupper() and not isinstance(event.node.value, list):
                raise settings.BadSettings(f"{event.key!r} of {_HOOKS!r} is no list")
    return root


def _without_one(text: str) -> str | None:
    """The text without our first hook, and without containers that held only this hook. `None` if there is no hook."""
    if not text.strip():
        return None
    root = _root(text)
    for place, member in enumerate(root.children):
        if member.key == _HOOKS:
            found = _find_ours(member.node)
            if found is None:
                continue
            inner, within = found[-1]
            if len(inner.children) > 1:
                return settings.remove_child(text, inner, within)
            # A group without a hook has no effect, and neither has an event without a group.
            holder, at = next(
                ((node, at) for node, at in reversed(found[:-1]) if len(node.children) > 1), (root, place)
            )
            return settings.remove_child(text, holder, at)
    return None


def _find_ours(hooks: settings.Node) -> list[tuple[settings.Node, int]] | None:
    """The path from the hooks object to our first hook: event, group, hook. Each step is a container and an index."""
    for event_place, event in enumerate(hooks.children):
        for group_place, group in enumerate(event.node.children):
            inner = settings.child(group.node, _HOOKS)
            for place, hook in enumerate(inner.children if inner else ()):
                if inner is not None and _is_ours(hook.node.value):
                    return [(hooks, event_place), (event.node, group_place), (inner, place)]
    return None


def _is_ours(hook: Any) -> bool:
    return isinstance(hook, dict) and isinstance(hook.get("command"), str) and bool(_OURS.search(hook["command"]))
