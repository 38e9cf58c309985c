"""Hooks: settings that make an agent program run a command of Tieline at the boundaries of its turns.

Used by: `tieline hooks`, `connection`, and the runner of Claude Code. Uses: `settings`. This module does no I/O: its
functions get the text of a settings file and return the changed text. The module `unread`
makes the text that the command prints for the program.

Some programs can also run a hook in the background, and begin a turn when the hook ends with a certain exit code. Such
a hook waits for a message and so wakes an idle agent.
"""

import re
import shlex
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from tieline.agents import settings

_HOOKS = "hooks"
_RULES = ("permissions", "allow")
_SECONDS_MAX = 10
"""Seconds after which an agent program stops waiting for a hook. Tieline's command gives up well before."""
_OURS = re.compile(r"tieline\S* drain --hook (?:claude-code|codex|gemini)(?:\s|$)")

_WAIT_SECONDS_MAX = 7 * 24 * 3600
"""Seconds after which an agent program ends a hook that waits for a message. Programs store it as milliseconds in 32
bits, so it cannot be much longer."""

TOOLS_OPTION = "--tools"
"""Option of the hook's command `tieline drain`. It says that the agent has the hub's tools."""

SESSION_START = "SessionStart"
STOP = "Stop"


class Program(StrEnum):
    """The agent programs whose hooks are supported."""

    CLAUDE_CODE = "claude-code"
    CODEX = "codex"
    GEMINI = "gemini"


class Form(Struct, frozen=True):
    """Facts about the hooks of one agent program: its settings file, the events that run a hook, and its features."""

    folder: str
    """Folder of the program's configuration, in the user's home."""
    variable: str
    """Environment variable with which the user can name another folder for the configuration; empty if the program has
    none."""
    file: str
    events: tuple[str, ...]
    prompted: str
    """Name of the program's event after a prompt of the user. Tieline assumes this event if the program names no known
    event."""
    timeout: int = _SECONDS_MAX
    advice: str = ""
    """Text for the user about further steps after the hooks were installed."""
    wakes_at: tuple[str, ...] = ()
    """Events at which the program can start a hook that waits for a message. Empty if no hook can wake the program."""
    executable: str = ""
    path_variable: str = ""
    """Name of the environment variable that can name another command for the program. `executable` is its usual
    command."""
    wakes_since: tuple[int, ...] = ()
    """The first version of the program that supports hooks that wait for a message. An older version would not continue
    until the hook ends."""
    answer_mark: str = ""
    """Text that marks an answer of the model in the program's transcript."""
    tool_mark: str = ""
    """Text that marks the result of a tool in the transcript of a program that also shows pushed messages."""
    transcript_optional: bool = False
    """True if the program may run without a transcript. Then the proof is the model's answer in the hook's input at the
    end of a turn."""
    stopped: str = STOP
    """Name of the program's event at the end of a turn. At this event a hook can ask for another turn."""
    escapes: bool = False
    """True if the program itself escapes `<` and `>` in the text of a hook, but not `&`."""


_CLAUDE_EVENTS = (SESSION_START, "UserPromptSubmit", "PostToolUse", STOP)

FORMS: dict[Program, Form] = {
    Program.CLAUDE_CODE: Form(
        ".claude",
        "CLAUDE_CONFIG_DIR",
        "settings.json",
        _CLAUDE_EVENTS,
        "UserPromptSubmit",
        wakes_at=(SESSION_START, STOP),
        executable="claude",
        path_variable="CLAUDE_PATH",
        wakes_since=(2, 1, 70),
        answer_mark='"type":"assistant"',
        tool_mark='"type":"tool_result"',
    ),
    Program.CODEX: Form(
        ".codex",
        "CODEX_HOME",
        "hooks.json",
        _CLAUDE_EVENTS,
        "UserPromptSubmit",
        executable="codex",
        path_variable="CODEX_PATH",
        answer_mark='"role":"assistant"',
        transcript_optional=True,
        advice="Codex runs a new hook after you have trusted it: in its dialog 'Hooks need review', or by t in /hooks.",
    ),
    Program.GEMINI: Form(
        ".gemini",
        "",
        "settings.json",
        (SESSION_START, "BeforeAgent", "AfterTool", "AfterAgent"),
        "BeforeAgent",
        # Gemini's timeout is in milliseconds.
        timeout=1000 * _SECONDS_MAX,
        advice="Gemini CLI runs hooks and MCP servers only in folders that you trust.",
        executable="gemini",
        path_variable="GEMINI_PATH",
        answer_mark='"type":"gemini"',
        transcript_optional=True,
        stopped="AfterAgent",
        escapes=True,
    ),
}


def command_line(
    program: Program, tieline: str, *, member: str | None = None, where: Sequence[str] = (), tools: bool = False
) -> str:
    """Return the command that a hook runs (`tieline drain --hook …`), quoted for a shell.

    `tieline` is the path of the command. `where` are the options that name the hub. With `tools`, the agent has the
    hub's tools and is told to answer with them.
    """
    words = [tieline, "drain", "--hook", program.value]
    words += ["--as", member] if member else []
    words += where
    words += [TOOLS_OPTION] if tools else []
    return shlex.join(words)


def can_wake(program: Program, version: str) -> bool:
    """True if a hook can wake this version of the program. `version` is the output of the program's `--version`."""
    form = FORMS[program]
    found = re.search(r"[0-9]+(?:\.[0-9]+)+", version)
    return found is not None and bool(form.wakes_at) and tuple(map(int, found[0].split("."))) >= form.wakes_since


def way(program: Program, *, wake: bool) -> str:
    """Return a text for the user: how messages reach the program by its hooks.

    `wake` is true if a hook wakes the program.
    """
    if wake:
        return "messages come at turn boundaries and wake it when idle"
    it = "this version" if FORMS[program].wakes_at else "it"
    return f"messages come at turn boundaries; {it} cannot be woken when idle"


def with_hooks(text: str, program: Program, command: str, *, wake: bool = False) -> str:
    """Return the text of settings with Tieline's hooks, which run `command`.

    Raises `BadSettings` if the settings are not valid. The new hooks replace earlier hooks of Tieline. With `wake`, add
    also the hooks that wait for a message and wake an idle agent.
    """
    wanted = _wanted(program, command, wake=wake)
    if _has_all(text, wanted):
        return text
    text = without_hooks(text)
    if not text.strip():
        made: dict[str, list[Any]] = {}
        for event, hook in wanted:
            made.setdefault(event, []).append(_group(hook))
        return f"{msgspec.json.format(msgspec.json.encode({_HOOKS: made})).decode()}\n"
    for event, hook in wanted:
        text = _with(text, _group(hook), _HOOKS, event)
    return text


def with_permission(text: str, rule: str) -> str:
    """Return the text of settings with the permission `rule` added. Raises `BadSettings` if they are not valid.

    A rule names tools that the program may use without a question to the user.
    """
    text = text if text.strip() else "{}\n"
    return text if _rule_at(text, rule) is not None else _with(text, rule, *_RULES)


def without_permission(text: str, rule: str) -> str:
    """Return the text of settings without the permission `rule`. Raises `BadSettings` if they are not valid.

    An object or list that contained only this rule is removed too.
    """
    found = _rule_at(text, rule) if text.strip() else None
    if found is None:
        return text
    holder, at = next(((node, at) for node, at in reversed(found) if len(node.children) > 1), found[0])
    return settings.remove_child(text, holder, at)


def has_permission(text: str, rule: str) -> bool:
    """True if the text of settings has the permission `rule`. Raises `BadSettings` if they are not valid."""
    return bool(text.strip()) and _rule_at(text, rule) is not None


def _rule_at(text: str, rule: str) -> list[tuple[settings.Node, int]] | None:
    """Return the path to a permission rule in settings; `None` if there is no such rule.

    Each step of the path is a JSON object or list, and the index of the next step in it.
    """
    node: settings.Node = _root(text)
    path = []
    for key in _RULES:
        index = next((index for index, each in enumerate(node.children) if each.key == key), None)
        if index is None:
            return None
        path.append((node, index))
        node = node.children[index].node
    if not isinstance(node.value, list) or rule not in node.value:
        return None
    return [*path, (node, node.value.index(rule))]


def _wanted(program: Program, command: str, *, wake: bool) -> list[tuple[str, dict[str, Any]]]:
    """Return the hooks that Tieline needs in a program's settings, each as a pair: the name of an event, and the hook.

    With `wake`, hooks that wait for a message and wake an idle agent are among them.
    """
    form = FORMS[program]
    shows = {"type": "command", "command": command, "timeout": form.timeout}
    if not wake:
        return [(event, shows) for event in form.events]
    # `async` keeps a version that does not know `asyncRewake` from waiting for the hook.
    waits = {"type": "command", "command": f"{command} --wait", "timeout": _WAIT_SECONDS_MAX}
    waits |= {"async": True, "asyncRewake": True}
    # A new session is idle, and would read the text of a hook only at its first prompt. So only the waiting hook runs.
    shown_at = [event for event in form.events if event != SESSION_START]
    return [*((event, shows) for event in shown_at), *((event, waits) for event in form.wakes_at)]


def _with(text: str, value: Any, outer: str, inner: str) -> str:
    """Return the text of settings with `value` added to the list `inner` in the object `outer`.

    Object and list are made if they are missing.
    """
    root = _root(text)
    holder = settings.child(root, outer)
    if holder is None:
        return settings.add_child(text, root, {inner: [value]}, outer)
    items = settings.child(holder, inner)
    if items is None:
        return settings.add_child(text, holder, [value], inner)
    if not isinstance(items.value, list):
        raise settings.BadSettings(f"{inner!r} of {outer!r} is no list")
    return settings.add_child(text, items, value)


def _has_all(text: str, wanted: list[tuple[str, dict[str, Any]]]) -> bool:
    """True if the hooks of Tieline in the settings are exactly the `wanted` hooks, each once.

    Then no change is needed.
    """
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
    return len(found) == len(wanted) and all(one in found for one in wanted)


def without_hooks(text: str) -> str:
    """Return the text of settings without Tieline's hooks. Everything else is unchanged.

    Raises `BadSettings` if the settings are not valid.
    """
    while True:
        shorter = _without_one(text)
        if shorter is None:
            return text
        text = shorter


def command_in(text: str, program: Program) -> str | None:
    """Return the command of Tieline's hook for the event after a prompt of the user; `None` without such a hook."""
    hooks = settings.child(_root(text), _HOOKS) if text.strip() else None
    groups = settings.child(hooks, FORMS[program].prompted) if hooks is not None else None
    for group in groups.children if groups is not None else ():
        inner = settings.child(group.node, _HOOKS)
        for hook in inner.children if inner is not None else ():
            if _is_ours(hook.node.value):
                return str(hook.node.value["command"])
    return None


def _group(hook: dict[str, Any]) -> dict[str, Any]:
    return {_HOOKS: [hook]}


def _root(text: str) -> settings.Node:
    root = settings.parse_object(text)
    hooks = settings.child(root, _HOOKS)
    if hooks is not None:
        if not isinstance(hooks.value, dict):
            raise settings.BadSettings(f"{_HOOKS!r} is no object")
        for event in hooks.children:
            if event.key and event.key[:1].isupper() and not isinstance(event.node.value, list):
                raise settings.BadSettings(f"{event.key!r} of {_HOOKS!r} is no list")
    return root


def _without_one(text: str) -> str | None:
    """Return the text of settings without the first hook of Tieline.

    An object or list that contained only this hook is removed too. Return `None` if the settings have no hook of
    Tieline.
    """
    if not text.strip():
        return None
    root = _root(text)
    for index, member in enumerate(root.children):
        if member.key == _HOOKS:
            found = _find_ours(member.node)
            if found is None:
                continue
            inner, within = found[-1]
            if len(inner.children) > 1:
                return settings.remove_child(text, inner, within)
            # A group without a hook has no effect, and neither has an event without a group.
            holder, at = next(
                ((node, at) for node, at in reversed(found[:-1]) if len(node.children) > 1), (root, index)
            )
            return settings.remove_child(text, holder, at)
    return None


def _find_ours(hooks: settings.Node) -> list[tuple[settings.Node, int]] | None:
    """Return the path to the first hook of Tieline in the object `hooks`; `None` if there is none.

    The path has three steps: event, group, hook. Each step is a JSON object or list, and the index of the next step in
    it.
    """
    for event_index, event in enumerate(hooks.children):
        for group_index, group in enumerate(event.node.children):
            inner = settings.child(group.node, _HOOKS)
            for index, hook in enumerate(inner.children if inner else ()):
                if inner is not None and _is_ours(hook.node.value):
                    return [(hooks, event_index), (event.node, group_index), (inner, index)]
    return None


def _is_ours(hook: Any) -> bool:
    return isinstance(hook, dict) and isinstance(hook.get("command"), str) and bool(_OURS.search(hook["command"]))
