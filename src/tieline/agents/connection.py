"""The connection of an agent program to the hub: Tieline's entries in the settings files of the program.

Used by: `tieline connect` and `disconnect`. Uses: `hooks`, `settings` and `toml_settings`. This module does no I/O: its
functions get the text of a settings file and return the changed text. Three entries connect a program: Tieline's MCP
server, which gives the agent its tools; Tieline's hooks, which show the agent its messages; and the permission to use
these tools without a question to the user. Claude Code also gets a variable, so that its one-shot mode waits for the
tools.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any

from msgspec import Struct

from tieline.agents import hooks, settings, toml_settings
from tieline.agents.hooks import FORMS, TOOLS_OPTION, Program

SERVER = "tieline"
"""Name of Tieline's MCP server in the settings of an agent program."""

RULE = f"mcp__{SERVER}"
"""Permission rule of Claude Code that allows all tools of Tieline's MCP server."""

WAIT_VARIABLE = "MCP_CONNECT_TIMEOUT_MS"
WAIT_MS = "30000"
"""Value for the environment variable `WAIT_VARIABLE` of Claude Code. In one-shot mode Claude Code waits so many
milliseconds for MCP servers with `alwaysLoad`, by default 5 seconds. Then the agent works without their tools. After 30
seconds Claude Code gives up on a server."""

MEMBERS = {Program.CLAUDE_CODE: "claude", Program.CODEX: "codex", Program.GEMINI: "gemini"}
"""Default member name of each agent program."""

_VARIABLES = "env"
_JSON_SERVERS = "mcpServers"
_TOML_SERVERS = "mcp_servers"


class Connection(Struct, frozen=True):
    """Entries that connect an agent program to the hub, as they are written into the program's settings file.

    It is configuration, not an open connection.
    """

    program: Program
    tieline: str
    """Path of the command `tieline`."""
    member: str
    where: tuple[str, ...]
    """Command line options that name the hub. They contain no secret, because other users can see a command line."""
    record: Path
    """File that exists until `tieline disconnect` removes the entry of Tieline's MCP server. Then the server ends."""
    wake: bool = False
    """True if a hook can wake the installed version of the program when it is idle."""
    ask: bool = False
    """True if the program must ask its user before it uses the hub's tools."""

    @property
    def hook(self) -> str:
        """The command that Tieline's hooks run (`tieline drain --hook …`)."""
        return hooks.command_line(self.program, self.tieline, member=self.member, where=self.where, tools=True)

    @property
    def server(self) -> dict[str, Any]:
        """The entry of Tieline's MCP server in the program's settings.

        This server pushes no messages, because the program would drop them silently. Hooks show the messages instead.
        """
        entry: dict[str, Any] = {
            "command": self.tieline,
            "args": ["mcp", "--as", self.member, *self.where, "--no-push", "--while", str(self.record)],
        }
        match self.program:
            case Program.CLAUDE_CODE:
                # Without it the program does not wait for the tools, and a model would have to search for them.
                return {"type": "stdio", **entry, "alwaysLoad": True}
            case Program.CODEX:
                return entry if self.ask else {**entry, "default_tools_approval_mode": "approve"}
            case Program.GEMINI:
                return entry if self.ask else {**entry, "trust": True}


class SettingsPart(Struct, frozen=True):
    """Description of one settings file of a program: its path, and functions that add or remove Tieline's entries."""

    path: Path
    add: Callable[[str, Connection], str]
    """Function that returns the text of the file with Tieline's entries. Raises `BadSettings`."""
    remove: Callable[[str, str], str]
    """Function that returns the text of the file without Tieline's entries. Its second argument is the text before
    Tieline added them. Raises `BadSettings`."""


def parts_of(program: Program, folder: Path, *, is_usual: bool) -> list[SettingsPart]:
    """Return the settings files of a program whose settings folder is `folder`.

    `is_usual` is true for the program's default folder. Claude Code keeps one file beside its default folder, and not
    in it.
    """
    main = folder / FORMS[program].file
    match program:
        case Program.CLAUDE_CODE:
            servers = (folder.parent if is_usual else folder) / ".claude.json"
            return [
                SettingsPart(servers, _add_server, _remove_server),
                SettingsPart(main, _add_claude_code, _remove_claude_code),
            ]
        case Program.CODEX:
            return [
                SettingsPart(folder / "config.toml", _add_table, _remove_table),
                SettingsPart(main, _add_hooks, _remove_hooks),
            ]
        case Program.GEMINI:
            return [
                SettingsPart(
                    main,
                    lambda text, connection: _add_hooks(_add_server(text, connection), connection),
                    lambda text, before: _remove_hooks(_remove_server(text, before), before),
                )
            ]


def server_of(path: Path, text: str) -> Mapping[str, Any] | None:
    """Return the entry of Tieline's MCP server in the text of a settings file; `None` if there is none.

    `path` is the path of the file. Raises `BadSettings` if the text is not valid.
    """
    if path.suffix == ".toml":
        found = toml_settings.table(text, _TOML_SERVERS, SERVER)
    else:
        holder = settings.child(settings.parse_object(text), _JSON_SERVERS) if text.strip() else None
        node = settings.child(holder, SERVER) if holder is not None else None
        found = node.value if node is not None else None
    return found if _is_ours(found) else None


def member_of(entry: Mapping[str, Any]) -> str | None:
    """Return the member name in a settings entry of Tieline's MCP server; `None` if the entry names no member."""
    return _option(entry, "--as")


def hub_of(entry: Mapping[str, Any]) -> str | None:
    """Return the address or the home of the hub in a settings entry of Tieline's MCP server; `None` if it has none."""
    return _option(entry, "--url", "--home")


def _option(entry: Mapping[str, Any], *names: str) -> str | None:
    words = [str(word) for word in entry.get("args", ())]
    return next((after for word, after in pairwise(words) if word in names), None)


def is_connected(program: Program, text: str) -> bool:
    """Return true if the settings have hooks of `tieline connect`.

    Only the commands of these hooks have the option `--tools`, which means that the agent has the hub's tools.
    """
    hook = hooks.command_in(text, program)
    return hook is not None and TOOLS_OPTION in hook.split()


def _is_ours(entry: Any) -> bool:
    """True if a settings entry of an MCP server runs `tieline mcp`."""
    if not isinstance(entry, dict) or not isinstance(entry.get("args"), list):
        return False
    return PurePath(str(entry.get("command"))).name == SERVER and entry["args"][:1] == ["mcp"]


def _refuse_other(entry: Any) -> None:
    if entry is not None and not _is_ours(entry):
        raise settings.BadSettings(f"it has another MCP server with the name {SERVER!r}")


# MCP servers, in JSON.


def _add_server(text: str, connection: Connection) -> str:
    text = text if text.strip() else "{}\n"
    holder = settings.child(settings.parse_object(text), _JSON_SERVERS)
    if holder is not None and not isinstance(holder.value, dict):
        raise settings.BadSettings(f"{_JSON_SERVERS!r} is no object")
    found = holder.value.get(SERVER) if holder is not None else None
    if found == connection.server:
        return text
    _refuse_other(found)
    if found is not None:
        text = _without_child(text, keep=True)
    root = settings.parse_object(text)
    holder = settings.child(root, _JSON_SERVERS)
    if holder is None:
        return settings.add_child(text, root, {SERVER: connection.server}, _JSON_SERVERS)
    return settings.add_child(text, holder, connection.server, SERVER)


def _remove_server(text: str, before: str) -> str:
    holder = settings.child(settings.parse_object(text), _JSON_SERVERS) if text.strip() else None
    if holder is None or not isinstance(holder.value, dict) or not _is_ours(holder.value.get(SERVER)):
        return text
    return _without_child(text, keep=bool(before.strip()) and _JSON_SERVERS in settings.parse_object(before).value)


def _without_child(text: str, *, keep: bool) -> str:
    """Return the text of a settings file without the entry of Tieline's MCP server.

    If there is no other server, the object that contains the servers is removed too, unless `keep`.
    """
    root = settings.parse_object(text)
    place = max(place for place, each in enumerate(root.children) if each.key == _JSON_SERVERS)
    holder = root.children[place].node
    if len(holder.children) == 1 and not keep:
        return settings.remove_child(text, root, place)
    within = max(at for at, each in enumerate(holder.children) if each.key == SERVER)
    return settings.remove_child(text, holder, within)


# MCP servers, in TOML.


def _add_table(text: str, connection: Connection) -> str:
    _refuse_other(toml_settings.table(text, _TOML_SERVERS, SERVER))
    return toml_settings.with_table(text, _TOML_SERVERS, SERVER, connection.server)


def _remove_table(text: str, _before: str) -> str:
    if not _is_ours(toml_settings.table(text, _TOML_SERVERS, SERVER)):
        return text
    return toml_settings.without_table(text, _TOML_SERVERS, SERVER)


# Hooks, the permission for our tools, and a variable.


def _add_hooks(text: str, connection: Connection) -> str:
    return hooks.with_hooks(text, connection.program, connection.hook, wake=connection.wake)


def _remove_hooks(text: str, _before: str) -> str:
    return hooks.without_hooks(text)


def _add_claude_code(text: str, connection: Connection) -> str:
    text = _with_variable(_add_hooks(text, connection))
    return text if connection.ask else hooks.with_permission(text, RULE)


def _remove_claude_code(text: str, before: str) -> str:
    text = _without_variable(hooks.without_hooks(text), before)
    return text if hooks.has_permission(before, RULE) else hooks.without_permission(text, RULE)


# The wait of Claude Code for our tools.


def _with_variable(text: str) -> str:
    """Return the text of Claude Code's settings with `WAIT_VARIABLE`.

    If the user has set the variable, the user's value stays.
    """
    root = settings.parse_object(text)
    holder = settings.child(root, _VARIABLES)
    if holder is None:
        return settings.add_child(text, root, {WAIT_VARIABLE: WAIT_MS}, _VARIABLES)
    if not isinstance(holder.value, dict):
        raise settings.BadSettings(f"{_VARIABLES!r} is no object")
    return text if WAIT_VARIABLE in holder.value else settings.add_child(text, holder, WAIT_MS, WAIT_VARIABLE)


def _without_variable(text: str, before: str) -> str:
    """Return the text of Claude Code's settings without the `WAIT_VARIABLE` that Tieline added.

    `before` is the text before Tieline's change. The object `env` is removed too if Tieline added this object.
    """
    known = settings.parse_object(before).value.get(_VARIABLES) if before.strip() else None
    root = settings.parse_object(text) if text.strip() else None
    holder = settings.child(root, _VARIABLES) if root is not None else None
    if (
        root is None
        or holder is None
        or not isinstance(holder.value, dict)
        or holder.value.get(WAIT_VARIABLE) != WAIT_MS
    ):
        return text
    if isinstance(known, dict) and WAIT_VARIABLE in known:
        return text
    if len(holder.children) == 1 and known is None:
        place = max(place for place, each in enumerate(root.children) if each.key == _VARIABLES)
        return settings.remove_child(text, root, place)
    within = max(at for at, each in enumerate(holder.children) if each.key == WAIT_VARIABLE)
    return settings.remove_child(text, holder, within)
