"""Hooks: installing hooks in an agent program, and running a hook.

Above: the command line, and the agent programs. Below: `agents.hooks`, which knows their settings and answers. A
settings file belongs to its user: it is changed only on request and in one step. A copy of the original is kept beside
the file until the change is undone. An error in a hook goes to stderr, and the agent's turn continues.
"""

import base64
import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from tieline.agents.hooks import FORMS, Program
from tieline.cli.failure import Exit, Failure, failure_of
from tieline.cli.output import complain, say, warn
from tieline.cli.session import HomeOption, ended_by

if TYPE_CHECKING:
    from tieline.agents.unread import Asked, Shown
    from tieline.cli.context import Context
    from tieline.cli.session import Link
    from tieline.client import Message

hooks_app = typer.Typer(help="Let agent programs show unread messages at turn boundaries.", no_args_is_help=True)

_SECONDS_MAX = 4.0
"""Timeout: a working hub answers in milliseconds, and an agent's turn must not wait longer for a broken one."""
_INPUT_BYTES_MAX = 64 * 1024 * 1024
"""Limit of a hook's input: it may include the output of a tool."""
_UNREAD_MAX = 1000
"""Most unread messages that one hook reads. The next hook reads the rest."""
_MARK = ".before-tieline"


class _Kept(Struct, frozen=True):
    """Data to undo a change."""

    before: str | None
    """Bytes of the file before the change, in base64; `None` if there was no file."""
    after: str
    """Digest of the content that we wrote."""
    made_folder: bool = False
    """True if we also made the program's folder."""


# Installing.


@hooks_app.command("install")
def install(
    program: Annotated[Program, typer.Argument(help="Whose settings.", show_default=False)],
    preview: Annotated[bool, typer.Option("--preview", help="Only show the change (the default).")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Make the change.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take it back.")] = False,
    member: Annotated[str | None, typer.Option("--as", metavar="NAME", help="Whose messages the hooks show.")] = None,
    config_home: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The program's own folder, if not where it usually is.")
    ] = None,
    home: HomeOption = None,
) -> None:
    """Show the change to a program's settings that lets it show unread messages; with --apply, make it.

    The hooks run 'tieline drain --hook'. What was shown counts as seen. --undo restores the file byte for byte, unless
    somebody else has changed it since: then only our entries are removed.
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
    from tieline.agents.settings import BadSettings

    file = _SettingsFile(_folder(program, config_home) / FORMS[program].file)
    try:
        if undo:
            after = file.original()
            if after is None:
                after = _encoded(hooks.without_hooks(file.text))
        else:
            command = hooks.command_line(program, _tieline(), member=_speaker(member), home=_home(home))
            base = file.original() if file.is_ours else None
            after = _encoded(hooks.with_hooks(file.text if base is None else base.decode(), program, command))
    except (BadSettings, UnicodeDecodeError) as error:
        raise Failure(Exit.FAILED, f"{file.path} is not changed, because it cannot be read: {error}") from error
    _decide(file, after, program, apply=apply, undo=undo)


def _decide(file: "_SettingsFile", after: bytes, program: Program, *, apply: bool, undo: bool) -> None:
    if undo and file.kept is not None and not file.is_ours:
        warn(f"{file.path} was changed since by somebody else: only our entries are removed.")
    if after == file.before and not (undo and file.kept is not None):
        say(f"{file.path} {'has no hooks of ours.' if undo else 'has these hooks already.'}")
        return
    for line in _diff(file, after):
        say(line, style={"+": "green", "-": "red"}.get(line[:1], ""))
    if undo:
        file.restore(after)
        say(f"{file.path} is {'as it was' if file.path.exists() else 'gone again'}.")
    elif apply:
        file.change(after)
        say(f"{file.path} is changed; 'tieline hooks install {program} --undo' takes it back.")
        if FORMS[program].advice:
            say(FORMS[program].advice)
    else:
        say("Nothing is changed yet: add --apply.")


def _folder(program: Program, config_home: Path | None) -> Path:
    form = FORMS[program]
    named = config_home or (os.environ.get(form.variable) if form.variable else None)
    return Path(named).expanduser().absolute() if named else Path.home() / form.folder


def _tieline() -> str:
    """Return the path of this program, so that it does not depend on the hook's PATH."""
    import shutil

    beside = Path(sys.executable).with_name("tieline")
    return str(beside) if beside.exists() else shutil.which("tieline") or "tieline"


def _speaker(member: str | None) -> str | None:
    from tieline.client.client import MEMBER_VARIABLE

    return member or os.environ.get(MEMBER_VARIABLE) or None


def _home(home: Path | None) -> str | None:
    """Return the home that is named here: the agent program may be started where none is named."""
    from tieline.wire.home import HOME_VARIABLE

    named = home or os.environ.get(HOME_VARIABLE)
    return str(Path(named).expanduser().absolute()) if named else None


def _encoded(text: str) -> bytes:
    return text.encode()


def _diff(file: "_SettingsFile", after: bytes) -> list[str]:
    from difflib import unified_diff

    from tieline.contract.text import neutral

    before, now = (neutral(part.decode()).splitlines() for part in (file.before, after))
    names = (str(file.path) if file.before else os.devnull, str(file.path))
    return list(unified_diff(before, now, *names, lineterm=""))


class _SettingsFile:
    """A program's settings file, and the copy that we keep beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Target of a symbolic link: the link stays, and the target is changed.
        self._real = path.resolve()
        try:
            self.before = path.read_bytes()
            self._existed = True
        except FileNotFoundError:
            self.before, self._existed = b"", False
        self._beside = path.with_name(f".{path.name}{_MARK}")
        self.kept = self._read_kept()

    @property
    def text(self) -> str:
        """Current content of the file."""
        return self.before.decode()

    @property
    def is_ours(self) -> bool:
        """True if the file is unchanged since we wrote it."""
        return self.kept is not None and self.kept.after == sha256(self.before).hexdigest()

    def original(self) -> bytes | None:
        """Return the content before our change; empty if there was no file.

        `None` if another program has changed the file since.
        """
        if self.kept is None or not self.is_ours:
            return None
        return b"" if self.kept.before is None else base64.b64decode(self.kept.before)

    def change(self, after: bytes) -> None:
        """Write the new content, and keep the original."""
        import msgspec

        from tieline.agents.hooks import without_hooks

        self._refuse_read_only()
        if self.is_ours and self.kept is not None:
            before = self.kept.before
        elif self._existed:
            before = base64.b64encode(without_hooks(self.text).encode()).decode()
        else:
            before = None
        made = not self.path.parent.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._real.parent.mkdir(parents=True, exist_ok=True)
        kept = _Kept(before, sha256(after).hexdigest(), made or (self.kept is not None and self.kept.made_folder))
        # The original is kept first. A stop between the two writes loses nothing, because the file is not ours yet.
        _write(self._beside, msgspec.json.encode(kept), 0o600)
        _write(self._real, after, stat.S_IMODE(self._real.stat().st_mode) if self._existed else 0o600)

    def restore(self, after: bytes) -> None:
        """Write this content back. Remove a file that we made."""
        self._refuse_read_only()
        gone = self.kept is not None and self.is_ours and self.kept.before is None
        if gone:
            self._real.unlink()
        elif after != self.before:
            _write(self._real, after, stat.S_IMODE(self._real.stat().st_mode))
        with contextlib.suppress(FileNotFoundError):
            self._beside.unlink()
        if gone and self.kept is not None and self.kept.made_folder:
            with contextlib.suppress(OSError):
                self.path.parent.rmdir()

    def _refuse_read_only(self) -> None:
        if self._existed and not self._real.stat().st_mode & 0o222:
            hint = "somebody made it so; change it yourself as the preview shows, or make it writable"
            raise Failure(Exit.FAILED, f"{self._real} is read-only, and stays as it is", hint)

    def _read_kept(self) -> _Kept | None:
        import msgspec

        try:
            return msgspec.json.decode(self._beside.read_bytes(), type=_Kept)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace a file in one step."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".tieline-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


# Running.


async def show_unread(link: "Link", program: Program, context: "Context", tokens_max: int) -> None:
    """Print the answer that the program shows to its model; nothing if nothing is unread or an error occurs."""
    import asyncio

    from tieline.agents import unread

    try:
        question = unread.asked(program, _read_input())
        async with asyncio.timeout(_SECONDS_MAX):
            mailbox = link.mailbox()
            if mailbox is not None:
                mailbox.show_unread(context, program, question, tokens_max)
            else:
                await _show_from_hub(link, program, question, context, tokens_max)
    except Exception as error:  # noqa: BLE001 - said on stderr, whatever it is
        # The exit code stays 0: any other would stop the turn, or show a warning that does not concern the agent.
        failure = failure_of(error)
        complain(failure.message if failure else f"{type(error).__name__}: {error}")


async def _show_from_hub(
    link: "Link", program: Program, question: "Asked", context: "Context", tokens_max: int
) -> None:
    from tieline.agents import unread
    from tieline.agents.echo import should_suppress_self_echo
    from tieline.cli.session import speaker_of

    async with await link.open_member() as client:
        page = await client.inbox(limit=_UNREAD_MAX, unseen=True)
        member = speaker_of(client)
        items = [
            item
            for item in page.items
            if context.takes(item.message.scope) and not should_suppress_self_echo(item.message, member=member)
        ]
        shown = unread.show(items, member=member, now_ms=_now_ms(), tokens_max=tokens_max, more=not page.complete)
        if say_shown(program, question, shown):
            # Reported after printing: before that, the messages are not seen.
            client.see(*shown.items, evidence=f"hook {question.hook_event_name} of {program}")


def print_framed(messages: "Iterable[Message]", member: str) -> None:
    """Print messages for an agent, each in full and in its frame. The caller has taken the messages."""
    from tieline.agents.framing import channel_text

    for message in messages:
        say(channel_text(message, member=member, now_ms=_now_ms(), whole=True))


def say_shown(program: Program, question: "Asked", shown: "Shown") -> bool:
    """Answer the program, if there is anything to show. Return true if there was."""
    import msgspec

    from tieline.agents import unread

    if not unread.may_speak(program, question, shown):
        return False
    print(msgspec.json.encode(unread.answer(question, shown.text)).decode(), flush=True)
    return True


def _read_input() -> bytes:
    """Read the program's input from stdin; empty if stdin is a terminal, where a person tries the hook."""
    return b"" if sys.stdin.isatty() else sys.stdin.buffer.read(_INPUT_BYTES_MAX)


def _now_ms() -> int:
    import time

    return time.time_ns() // 1_000_000
