"""`tieline connect` and `tieline disconnect`: connect an agent program on this machine to the hub, or disconnect it.

Used by: the command line. Uses: `agents.connection`, which makes Tieline's entries in a program's settings;
`program_settings`, which changes the files; and `connect_canary`, which tests the connection. `connect` makes no member
and writes no file before the user agrees.
"""

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from tieline.agents.hooks import FORMS, Program, way
from tieline.cli.completion import complete_member
from tieline.cli.failure import Exit, Failure
from tieline.cli.hooks import print_diff
from tieline.cli.output import neutral_line, print_json, say, warn
from tieline.cli.program_settings import SettingsFile, can_wake, executable_of, settings_folder, tieline_path, write
from tieline.cli.session import HomeOption, JsonOption, Link, ended_by, speaker_of, talks

if TYPE_CHECKING:
    from tieline.agents.connection import Connection, SettingsPart
    from tieline.cli.documents import ConnectedProgram

_TOKEN_FILE = ".tieline-token"

ProgramArgument = Annotated[
    Program | None, typer.Argument(help="Agent program. Default: all that are installed.", show_default=False)
]
ConfigHomeOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Settings folder of the program, if it is not the usual one.", show_default=False),
]


class _Edit(Struct, frozen=True):
    """Planned change of one settings file: the file, its new content, and its content without Tieline's entries."""

    file: SettingsFile
    after: bytes
    base: bytes

    @property
    def is_needed(self) -> bool:
        """True if the new content differs from the current content of the file."""
        return self.after != self.file.before


class _Plan(Struct, frozen=True):
    """Plan to connect one agent program: the member, the token, and the change of each settings file."""

    connection: "Connection"
    link: Link
    folder: Path
    parts: "list[SettingsPart]"
    edits: list[_Edit]
    is_new: bool
    """True if the program's member does not exist on the hub yet and must be created."""
    near: tuple[str, ...]
    """Names of other members that are similar to the name of the new member."""
    token: str | None
    """Token of the member, which is written into a separate file. `None` if the commands use the hub's home on this
    machine and need no token."""

    @property
    def token_file(self) -> Path:
        """Path of the file for the member's token."""
        return self.folder / _TOKEN_FILE

    @property
    def is_needed(self) -> bool:
        """True if a file must be changed or the member must be created."""
        stale = self.token is not None and _token_in(self.token_file) != self.token
        return self.is_new or stale or any(edit.is_needed for edit in self.edits)


@talks
async def connect(
    link: Link,
    program: ProgramArgument = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Make the change without a question.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the change.")] = False,
    ask: Annotated[
        bool, typer.Option("--ask", help="Let the program ask you before it uses one of the hub's tools.")
    ] = False,
    member: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="NAME",
            help="Member of the program. Default: claude, codex or gemini.",
            autocompletion=complete_member,
            show_default=False,
        ),
    ] = None,
    config_home: ConfigHomeOption = None,
    json: JsonOption = False,
) -> None:
    """Connect an agent program to the hub: its member, the hub's tools, and hooks that show it its messages.

    The change to the program's settings is shown first, and made when you say yes. Then a
    test message goes to the program, which must acknowledge it. 'tieline disconnect' restores the settings byte for
    byte.
    """
    if yes and dry_run:
        raise Failure(Exit.USAGE, "--yes and --dry-run exclude each other")
    link = replace(link, member=member)
    programs = [program] if program is not None else _installed()
    if len(programs) > 1 and (member or config_home):
        found = " and ".join(programs)
        raise Failure(Exit.USAGE, f"--as and --config-home are for one program; {found} are installed", "name one")
    plans = [await _plan(link, each, config_home, ask=ask) for each in programs]
    documents = [await _connect(plan, yes=yes, dry_run=dry_run, json=json) for plan in plans]
    if json:
        from tieline.cli.documents import Connected

        print_json(Connected(documents))
    if any(document.problems for document in documents):
        raise typer.Exit(Exit.FAILED)


def disconnect(
    program: Annotated[Program, typer.Argument(help="Agent program.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the change.")] = False,
    config_home: ConfigHomeOption = None,
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Undo 'tieline connect': restore the program's settings byte for byte.

    If another program has changed a file since, only our entries are removed from it. The member and its messages stay.
    An MCP server of ours that the program has started ends within seconds. A program that runs keeps its hooks until it
    is started again. Works without a hub. With --home, only a connection to the hub of this home is undone.
    """
    ended_by(lambda: _disconnect(program, config_home, home, dry_run=dry_run, json=json), json=json)


def _installed() -> list[Program]:
    found = [program for program in Program if executable_of(program) is not None]
    if not found:
        words = ", ".join(f"{FORMS[program].executable} ({program})" for program in Program)
        raise Failure(Exit.FAILED, f"no agent program is installed: none of {words} is in PATH", "install one first")
    return found


# The plan.


async def _plan(link: Link, program: Program, config_home: Path | None, *, ask: bool) -> _Plan:
    """Return the plan to connect an agent program. Raises `Failure` if that is not possible.

    `config_home` is the program's settings folder, if it is not the usual one. With `ask`, the program will ask its
    user before it uses the hub's tools.
    """
    from tieline.agents.connection import MEMBERS, Connection, member_of, parts_of, server_of

    if executable_of(program) is None:
        form = FORMS[program]
        hint = f"install it, or name its executable in {form.path_variable}"
        raise Failure(Exit.FAILED, f"{program} is not installed: {form.executable} is not in PATH", hint)
    folder, is_usual = settings_folder(program, config_home)
    parts = parts_of(program, folder, is_usual=is_usual)
    files = [SettingsFile(part.path) for part in parts]
    with _readable(parts[0].path):
        entry = server_of(parts[0].path, files[0].text)
    member = link.member or (member_of(entry) if entry is not None else None) or MEMBERS[program]
    link, is_new, near, token = await _speaker(link, member)
    url, _ = link.way()
    where: tuple[str, ...] = ("--url", url) if url is not None else ("--home", str(link.folder))
    if token is not None:
        where = (*where, "--token-file", str(folder / _TOKEN_FILE))
    named, wake = link.member or member, can_wake(program)
    connection = Connection(program, tieline_path(), named, where, files[0].record, wake=wake, ask=ask)
    edits = [_edit(part, file, connection) for part, file in zip(parts, files, strict=True)]
    return _Plan(connection, link, folder, parts, edits, is_new, near, token)


async def _speaker(link: Link, member: str) -> tuple[Link, bool, tuple[str, ...], str | None]:
    """Find the member of an agent program. Return its link, true if the member is new, similar names, and its token.

    A link says how a command reaches the hub, and as which member. A new member does not exist on the hub yet. The
    similar names belong to other members. The token is `None` if the key in the hub's home is used.
    """
    from tieline.cli.hub_or_spool import named_token
    from tieline.client import HubRefused
    from tieline.contract.identifiers import parse_member_name
    from tieline.contract.refusal import Code, Refusal

    url, stored = link.way()
    token = named_token(link) or stored
    if url is not None or token is not None:
        # The token decides which member it is.
        async with await link.open() as client:
            return replace(link, member=speaker_of(client)), False, (), token
    name = parse_member_name(member)
    if isinstance(name, Refusal):
        raise HubRefused(name.code, name.message)
    named = replace(link, member=member)
    try:
        await (await named.open()).close()
    except HubRefused as error:
        if error.code is not Code.UNKNOWN_MEMBER:
            raise
        return named, True, error.near, None
    return named, False, (), None


def _edit(part: "SettingsPart", file: SettingsFile, connection: "Connection") -> _Edit:
    """Return the change of one settings file that adds Tieline's entries."""
    from tieline.agents.hooks import without_hooks

    with _readable(part.path):
        original = file.original()
        if original is not None:
            base, text = original, original.decode()
        elif file.is_changed:
            text = part.remove(file.text, file.original_text())
            base = text.encode()
        else:
            # Without a record of our change, the user has written the entries. But hooks like ours only we write.
            text = file.text
            base = (without_hooks(text) if part.path.suffix == ".json" else text).encode()
        return _Edit(file, part.add(text, connection).encode(), base)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn an error in the `with` block into a `Failure`, if it means that the settings file `path` cannot be read."""
    from tieline.agents.settings import BadSettings

    try:
        yield
    except (BadSettings, UnicodeDecodeError) as error:
        raise Failure(Exit.FAILED, f"{path} is not changed, because it cannot be read: {error}") from error


# Connecting.


async def _connect(plan: _Plan, *, yes: bool, dry_run: bool, json: bool) -> "ConnectedProgram":
    """Show a plan, carry it out if the user agrees, and test the connection. Return the result as a JSON document.

    With `yes`, the user is not asked. With `dry_run`, the plan is only shown.
    """
    from tieline.cli.connect_canary import NOT_PROVED, try_connection
    from tieline.cli.documents import ConnectedProgram, PlannedFile

    if not json:
        _show(plan)
    program = plan.connection.program
    document = ConnectedProgram(
        program=program.value,
        member=plan.connection.member,
        new_member=plan.is_new,
        hub=plan.link.way()[0] or str(plan.link.folder),
        files=[PlannedFile(str(edit.file.path), edit.is_needed, edit.file.diff(edit.after)) for edit in plan.edits],
        advice=FORMS[program].advice,
    )
    if dry_run or (plan.is_needed and not yes and not _agrees(json=json)):
        if not json:
            say("Nothing is changed.")
        return document
    await _apply(plan)
    if not json:
        say(f"{program} is connected as {plan.connection.member}; 'tieline disconnect {program}' undoes it.")
        say(f"{program}: {way(program, wake=plan.connection.wake)}.")
    proved, problems = await try_connection(plan.link, plan.connection, plan.parts)
    document.applied, document.not_proved, document.next = True, [NOT_PROVED], _next_steps(plan)
    document.proved, document.problems = proved, problems
    if not json:
        _show_result(document)
    return document


def _show(plan: _Plan) -> None:
    connection = plan.connection
    where = plan.link.way()[0] or plan.link.folder
    new = " (a new member)" if plan.is_new else ""
    say(neutral_line(f"{connection.program}: member {connection.member}{new} of the hub at {where}"), style="bold")
    if plan.near:
        warn(neutral_line(f"There are members with a similar name: {', '.join(plan.near)}. Choose with --as."))
    for edit in plan.edits:
        if edit.is_needed:
            print_diff(edit.file, edit.after)
        else:
            say(f"{edit.file.path} needs no change.")
    if plan.token is not None:
        say(f"{plan.token_file} gets the token, for you alone.")
    if plan.is_needed:
        for line in _summary(plan):
            say(neutral_line(line), style="bold")


def _summary(plan: _Plan) -> Iterator[str]:
    """Yield a plan in three lines, for a person who does not read the diff."""
    program, member = plan.connection.program, plan.connection.member
    files = [str(edit.file.path) for edit in plan.edits if edit.is_needed]
    yield f"Changed: {', '.join(files) or 'no settings'}."
    wait = ", and a longer wait for them at its start" if program is Program.CLAUDE_CODE else ""
    yield f"Added: hooks, which show {program} the messages for {member}; an MCP server with the hub's tools{wait}."
    if plan.connection.ask:
        yield f"Allowed: nothing. {program} asks you before it uses one of these tools."
    else:
        yield f"Allowed: {program} may use these tools without asking you. No other permission changes."


def _agrees(*, json: bool) -> bool:
    """Ask the user, and return true if the user agrees to the change. Raise `Failure` if no user can be asked."""
    import signal

    if json or not sys.stdin.isatty() or not sys.stdout.isatty():
        hint = "add --yes to make the change, or --dry-run to only see it"
        raise Failure(Exit.USAGE, "nothing is changed, because nobody is there to be asked", hint)
    # The event loop's own handler would wait for the end of the line.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return input("Make this change? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGINT, before)


async def _apply(plan: _Plan) -> None:
    """Carry out a plan: create the member and change the settings files."""
    from tieline.cli.new_member import make_member, say_made

    for edit in plan.edits:
        edit.file.refuse_unchangeable()
    if plan.is_new and await make_member(plan.link, plan.connection.member):
        say_made(plan.connection.member, plan.near)
    for edit in plan.edits:
        if edit.is_needed:
            edit.file.change(edit.after, edit.base)
    if plan.token is not None:
        plan.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(plan.token_file, plan.token.encode(), 0o600)
    else:
        plan.token_file.unlink(missing_ok=True)


def _next_steps(plan: _Plan) -> list[str]:
    """Return two commands for the user to try next: one starts the agent program, one sends a message to it."""
    from tieline.cli.output import own_name
    from tieline.client.connection import MEMBER_VARIABLE

    form = FORMS[plan.connection.program]
    start = shlex.quote(os.environ.get(form.path_variable) or form.executable)
    if form.variable and settings_folder(plan.connection.program, None)[0] != plan.folder:
        start = f"{form.variable}={shlex.quote(str(plan.folder))} {start}"
    speaker = "" if os.environ.get(MEMBER_VARIABLE) else " --as me"
    # A program that no hook can wake sees a message only at the next prompt of its user, and the wait might not end.
    wait = " --wait-for seen" if plan.connection.wake else ""
    return [start, f'{own_name()} send @{plan.connection.member} "Who are you?"{speaker}{wait}']


def _show_result(document: "ConnectedProgram") -> None:
    for line in document.proved:
        say(f"  proved: {line}", style="green")
    for line in document.problems:
        warn(neutral_line(f"  failed: {line}"))
    for line in document.not_proved:
        say(f"  not proved: {line}")
    if document.advice:
        say(document.advice)
    start, send = document.next
    say(f"Start it, again if it runs: {start}")
    say(f"Write to it: {send}")


def _token_in(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


# Disconnecting.


def _disconnect(program: Program, config_home: Path | None, home: Path | None, *, dry_run: bool, json: bool) -> None:
    from tieline.agents.connection import parts_of

    folder, is_usual = settings_folder(program, config_home)
    parts = parts_of(program, folder, is_usual=is_usual)
    if home is not None:
        _refuse_other_hub(program, parts[0].path, home)
    edits = []
    for part in parts:
        file = SettingsFile(part.path)
        with _readable(part.path):
            original = file.original()
            after = part.remove(file.text, file.original_text()).encode() if original is None else original
        edits.append(_Edit(file, after, after))
    token_file = folder / _TOKEN_FILE
    undone = [edit for edit in edits if edit.is_needed or edit.file.is_changed]
    if not json:
        for edit in undone:
            if edit.file.is_changed and not edit.file.is_ours:
                warn(f"{edit.file.path} was changed by somebody else: only our entries are removed.")
            print_diff(edit.file, edit.after)
    if not dry_run:
        for edit in undone:
            edit.file.refuse_unchangeable()
        token_file.unlink(missing_ok=True)
        # In reverse order, so that a folder that we made is empty when its first file is removed.
        for edit in reversed(undone):
            edit.file.restore(edit.after)
    if json:
        from tieline.cli.documents import DisconnectedProgram, RestoredFile

        files = [RestoredFile(str(edit.file.path), edit.file.is_ours) for edit in undone]
        print_json(DisconnectedProgram(program.value, files, bool(undone) and not dry_run))
    elif not undone:
        say(f"{program} is not connected here.")
    else:
        say("Nothing is changed." if dry_run else f"{program} is disconnected. Its member and its messages stay.")
        if not dry_run:
            say(f"If {program} runs now, it keeps its hooks until you start it again.")


def _refuse_other_hub(program: Program, path: Path, home: Path) -> None:
    """Raise `Failure` if a program is connected to another hub than that of `home`.

    `path` is the settings file with the entry of Tieline's MCP server.
    """
    from tieline.agents.connection import hub_of, server_of
    from tieline.wire.home import find_home

    with _readable(path):
        entry = server_of(path, SettingsFile(path).text)
    hub = hub_of(entry) if entry is not None else None
    if hub is not None and hub != str(find_home(home)):
        raise Failure(Exit.FAILED, f"{program} is connected to the hub at {hub}", "leave --home out to disconnect it")
