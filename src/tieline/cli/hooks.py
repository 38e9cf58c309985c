"""`tieline hooks`: installs Tieline's hooks in an agent program, and removes them.

Used by: the command line. Uses: `agents.hooks`, which knows the settings of programs, and `program_settings`, which
changes their files. The hooks themselves run `hook_answer`.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from tieline.agents.hooks import FORMS, Program
from tieline.cli.completion import complete_member
from tieline.cli.failure import Exit, Failure
from tieline.cli.output import say, warn
from tieline.cli.program_settings import SettingsFile, can_wake, settings_folder, tieline_path
from tieline.cli.session import HomeOption, ended_by

hooks_app = typer.Typer(help="Let agent programs show unread messages at turn boundaries.", no_args_is_help=True)


@hooks_app.command("install")
def install(
    program: Annotated[Program, typer.Argument(help="Agent program.", show_default=False)],
    preview: Annotated[bool, typer.Option("--preview", help="Only show the change (the default).")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Make the change.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Undo the change.")] = False,
    member: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="NAME", help="Member whose messages the hooks show.", autocompletion=complete_member
        ),
    ] = None,
    config_home: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Settings folder of the program, if it is not the usual one.")
    ] = None,
    home: HomeOption = None,
) -> None:
    """Show the change to a program's settings that makes it show unread messages. With --apply, make the change.

    The hooks run 'tieline drain --hook'. If a hook can wake the installed version of the program, one hook waits for
    messages while the program is idle. --undo restores the file byte for byte. If somebody else has changed the file
    since, --undo removes only our entries.
    """
    ended_by(lambda: _install(program, preview, apply, undo, member, config_home, home))


def _install(
    program: Program,
    preview: bool,
    apply: bool,
    undo: bool,
    member: str | None,
    config_home: Path | None,
    home: Path | None,
) -> None:
    if preview + apply + undo > 1:
        raise Failure(Exit.USAGE, "--preview, --apply and --undo exclude each other")
    from tieline.agents import hooks
    from tieline.agents.connection import is_connected
    from tieline.agents.settings import BadSettings

    file = SettingsFile(settings_folder(program, config_home)[0] / FORMS[program].file)
    wake = not undo and can_wake(program)
    try:
        if is_connected(program, file.text):
            hint = f"'tieline disconnect {program}' removes the connection"
            raise Failure(Exit.REFUSED, f"{program} is connected, and has these hooks by its connection", hint)
        original = file.original()
        base = hooks.without_hooks(file.text).encode() if original is None else original
        if undo:
            after = base
        else:
            command = hooks.command_line(program, tieline_path(), member=_speaker(member), where=_where(home))
            text = file.text if original is None else original.decode()
            after = hooks.with_hooks(text, program, command, wake=wake).encode()
    except (BadSettings, UnicodeDecodeError) as error:
        raise Failure(Exit.FAILED, f"{file.path} is not changed, because it cannot be read: {error}") from error
    if undo:
        _undo(file, after)
    else:
        say(f"{program}: {hooks.way(program, wake=wake)}.")
        _change(file, after, base, program, apply=apply)


def _undo(file: SettingsFile, after: bytes) -> None:
    if file.is_changed and not file.is_ours:
        warn(f"{file.path} was changed by somebody else: only our entries are removed.")
    if after == file.before and not file.is_changed:
        say(f"{file.path} has no hooks of ours.")
        return
    print_diff(file, after)
    file.restore(after)
    say(f"{file.path} is {'restored' if file.path.exists() else 'removed again'}.")


def _change(file: SettingsFile, after: bytes, base: bytes, program: Program, *, apply: bool) -> None:
    if after == file.before:
        say(f"{file.path} has these hooks already.")
        return
    print_diff(file, after)
    if not apply:
        say("Nothing is changed yet. To make the change, add --apply.")
        return
    file.change(after, base)
    say(f"{file.path} is changed; 'tieline hooks install {program} --undo' undoes it.")
    if FORMS[program].advice:
        say(FORMS[program].advice)


def print_diff(file: SettingsFile, after: bytes) -> None:
    """Print the lines that would change in a settings file. `after` is the new content of the file."""
    for line in file.diff(after):
        say(line, style={"+": "green", "-": "red"}.get(line[:1], ""))


def _speaker(member: str | None) -> str | None:
    from tieline.client.connection import MEMBER_VARIABLE

    return member or os.environ.get(MEMBER_VARIABLE) or None


def _where(home: Path | None) -> tuple[str, ...]:
    """Return the command line option `--home` with the hub's home, if `home` or the environment names one.

    The hooks in the settings need this option, because the agent program may start later in an environment that does
    not name the home.
    """
    from tieline.wire.home import HOME_VARIABLE

    named = home or os.environ.get(HOME_VARIABLE)
    return ("--home", str(Path(named).expanduser().absolute())) if named else ()
