"""The reaction: the command that `watch --exec` runs for a message.

Used by: `watch`, with a hub and without. Uses: the shell, or the program itself. A message is not trusted, so no part
of it may become code. The message is on stdin and in environment variables (`TIELINE_BODY`), which a shell does not
read as code.

A command with templates (`{{body}}`) never goes to a shell. It is split into words here, the templates in the words are
replaced, and the program is started with these words. Such a command is refused if it has shell syntax. It is also
refused if a template stands where a word may become code: the value of an option (`git -c {{body}}`), the command of a
wrapper (`env {{body}}`), or a word of a program that is known to read code (`sh -c {{body}}`). A message that would
itself become an option is not passed to the program. These checks do not catch everything, because no list of programs
that read a word as code can be complete.
"""

import contextlib
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tieline.cli.extension import extensions
from tieline.cli.failure import Exit, Failure
from tieline.cli.output import warn

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from tieline.client import Message

_BODY_BYTES_MAX = 100_000
"""Maximum number of bytes of a message's body in an environment variable, which holds less than 128 KiB on Linux. The
standard input has the whole body."""

_TEMPLATE = re.compile(r"\{\{(id|from|to|body|priority|scope|thread)\}\}")
_PREFIX = "TIELINE_"
"""Prefix of the environment variables that carry the parts of a message, such as `TIELINE_BODY`."""

_SHELL_ONLY = frozenset(";&|<>()$`*?[]\n\r")
"""Characters that, outside of quotes, only a shell understands."""
_SHELL_AT_FIRST = frozenset("#~!")
"""Characters that, at the start of a word, only a shell understands."""
_SHELL_IN_QUOTES = frozenset("$`")
_ESCAPED_IN_QUOTES = frozenset('"\\$`')

_CODE_READERS = """
    at batch cmd eval exec expect gdb gmake make mariadb mysql osascript parallel powershell psql pwsh run runuser
    screen script source sqlite ssh su tmux watch
"""
_READS_CODE = frozenset(_CODE_READERS.split())
"""Programs that read each of their arguments as code, or pass it to a shell."""
_PROGRAM_STARTERS = """
    bwrap capsh chpst chroot chrt command dbus-run-session doas docker eatmydata entr env faketime fakeroot firejail
    flock gosu ionice kubectl logsave ltrace nice nohup npx nsenter numactl perf pipx pkexec podman prlimit proxychains
    rlwrap runcon setarch setpriv setsid setuidgid stdbuf strace sudo systemd-inhibit systemd-run taskset time timeout
    torsocks unbuffer unshare uvx valgrind xargs xvfb-run
"""
_WRAPPERS = frozenset(_PROGRAM_STARTERS.split())
"""Programs that start another program. The name of that program is among their arguments."""
_CODE_RUNNERS = """
    ash awk bash bun busybox csh dash deno fish gawk julia ksh lua luajit mawk nawk node nodejs perl php pypy python
    R Rscript ruby sed sh tclsh tcsh zsh
"""
_INTERPRETERS = frozenset(_CODE_RUNNERS.split())
"""Programs whose first argument is code or a file of code. The further arguments are passed to that code."""
_VERSION = "0123456789.-"
_END = ("--",)
"""The word `--`, after which most programs read no options."""

_CANNOT_START = 126
"""Exit code that is returned if the command cannot be started, as in a shell."""


class Reaction:
    """The command of `watch --exec`. It is checked once, and then run for each message."""

    def __init__(self, command: str) -> None:
        self._command = command
        # `None` without templates: then the shell splits the command itself.
        self._words = words_of(command) if _TEMPLATE.search(command) else None

    def objection(self, message: "Message") -> str | None:
        """Return the reason why the command must not run for a message; `None` if it may run.

        A part of the message that begins with a dash could become an option of the command, and an option may be code.
        """
        environment = variables(message)
        for word in self._words or []:
            if word == _END:
                break
            if len(word) > 1 and filled([word], environment)[0].startswith("-"):
                name = word[1]
                return (
                    f"its {name} begins with a dash, which the program may read as an option: write -- before "
                    f"{{{{{name}}}}} if the program knows that, or hand it over as input, "
                    f"""printf %s "${_PREFIX}{name.upper()}" | PROGRAM"""
                )
        return None

    async def run(self, message: "Message", environment: dict[str, str]) -> int:
        """Run the command for a message and return its exit code.

        The command gets the variables in `environment`, and variables with the parts of the message. An interrupt ends
        the command and its child processes.
        """
        from tieline.wire.native.client import to_json

        sys.stdout.flush()
        try:
            process = await self._start({**environment, **variables(message)})
        except OSError as error:
            warn(f"The command cannot be started: {error.strerror or error}")
            return _CANNOT_START
        try:
            await process.communicate(to_json(message) + b"\n")
        finally:
            _end(process)
        return process.returncode or 0

    async def _start(self, environment: dict[str, str]) -> "Process":
        import asyncio
        from asyncio.subprocess import PIPE

        # The command has its own process group, so that it can be ended with its children.
        if self._words is None:
            start = asyncio.create_subprocess_shell(self._command, stdin=PIPE, env=environment, process_group=0)
        else:
            words = filled(self._words, environment)
            start = asyncio.create_subprocess_exec(*words, stdin=PIPE, env=environment, process_group=0)
        starting = asyncio.ensure_future(start)
        try:
            # Shielded: an interrupt during the start would make asyncio wait for ever.
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            _end(await starting)
            raise


def _end(process: "Process") -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


def variables(message: "Message") -> dict[str, str]:
    """Return the parts of a message as environment variables.

    Each part is in several variables: one with the prefix `TIELINE_`, and one with each protocol's prefix.
    """
    said = {
        "ID": message.id,
        "FROM": message.sender,
        "TO": message.target,
        "BODY": message.body.encode()[:_BODY_BYTES_MAX].decode(errors="ignore"),
        "PRIORITY": message.priority.value,
        "SCOPE": message.scope or "",
        "THREAD": message.thread or "",
    }
    # A variable ends at its first NUL, so NULs are removed. Stdin has the unchanged text.
    prefixes = (_PREFIX, *other_prefixes())
    return {f"{prefix}{name}": value.replace("\0", "") for prefix in prefixes for name, value in said.items()}


def other_prefixes() -> list[str]:
    """Return the prefixes that protocols add for the environment variables of a message.

    Commands that were written for the programs of these protocols expect these prefixes.
    """
    return [prefix for extension in extensions() for prefix in extension.prefixes]


Word = tuple[str, ...]
"""A word of a command, split at its templates such as `{{body}}`. Every second part is the name of a template."""


def filled(words: list[Word], environment: Mapping[str, str]) -> list[str]:
    """Return the words of a command. Each template, such as `{{body}}`, is replaced by that part of the message.

    `environment` has the parts of the message as variables.
    """
    return [
        "".join(environment[f"{_PREFIX}{part.upper()}"] if at % 2 else part for at, part in enumerate(word))
        for word in words
    ]


def words_of(command: str) -> list[Word]:
    """Split a command with templates (such as `{{body}}`) into words, and return them.

    Raise `Failure` for shell syntax, and for a template in a place where a message could become code.
    """
    words = [_TEMPLATE.split(text) for text in _split(command)]
    made = [tuple(word) for word in words]
    _check_program(made)
    for at, word in enumerate(made):
        _check_reader(word, made[at + 1 : at + 2])
        _check_option(word, made[at - 1])
    return made


def _split(command: str) -> list[str]:
    """Split a command into words, with a shell's rules of quoting. Raise `Failure` for other shell syntax."""
    words: list[str] = []
    word: list[str] = []
    quote = ""
    begun = False
    position = 0
    while position < len(command):
        template = _TEMPLATE.match(command, position)
        char = command[position]
        position += 1
        if template:
            if quote and not _alone(command, template, quote):
                message = f"{template[0]} stands inside quotes with other text, which another program may run as code"
                raise Failure(Exit.USAGE, message, f"write {template[0]} outside of quotes: it stays one word")
            word.append(template[0])
            position = template.end()
            begun = True
        elif char == quote:
            quote = ""
        elif quote == "'":
            word.append(char)
        elif char == "\\" and (not quote or command[position : position + 1] in _ESCAPED_IN_QUOTES):
            word.append(command[position : position + 1])
            position += 1
            begun = True
        elif quote:
            _refuse_shell(char, char in _SHELL_IN_QUOTES)
            word.append(char)
        elif char in "'\"":
            quote = char
            begun = True
        elif char in " \t":
            if begun:
                words.append("".join(word))
            word, begun = [], False
        else:
            _refuse_shell(char, char in _SHELL_ONLY or (char in _SHELL_AT_FIRST and not begun))
            word.append(char)
            begun = True
    if quote:
        raise Failure(Exit.USAGE, f"a quote is not closed in the command: {quote}")
    return [*words, "".join(word)] if begun else words


def _alone(command: str, template: "re.Match[str]", quote: str) -> bool:
    return command[template.start() - 1] == quote and command[template.end() : template.end() + 1] == quote


def _refuse_shell(char: str, refused: bool) -> None:
    if refused:
        shown = "a line end" if char in "\r\n" else char
        message = (
            f"the command needs a shell ({shown}), but a command with templates such as {{{{body}}}} runs without one"
        )
        raise Failure(Exit.USAGE, message, _INSTEAD)


_INSTEAD = 'use "$TIELINE_BODY", "$TIELINE_FROM" and so on in place of the templates: a shell reads them as text'
_AS_INPUT = """use a program that takes text, and best as its input: printf %s "$TIELINE_BODY" | PROGRAM"""


def _check_program(words: list[Word]) -> None:
    program, *rest = words[0]
    if rest:
        raise Failure(Exit.USAGE, "a message must not choose the program", _INSTEAD)
    if "=" in program or shutil.which(program) is None:
        message = f"there is no program {program!r}; a command with templates runs without a shell"
        raise Failure(Exit.USAGE, message, _INSTEAD)


def _check_reader(word: Word, following: list[Word]) -> None:
    """Raise `Failure` if a word names a program that reads its arguments as code, or that starts another program.

    `following` has the next word, if there is one.
    """
    if len(word) > 1:
        return
    path = word[0].removesuffix(".exe")
    name = path.rpartition("/")[2]
    name = name.rstrip(_VERSION) or name
    if name in _WRAPPERS:
        raise Failure(Exit.USAGE, f"{word[0]} starts another program, and a message must not choose it", _AS_INPUT)
    code = name in _READS_CODE or path == "."
    if not code and name in _INTERPRETERS:
        # Only a file of code is allowed: after an option, the meaning of the next word is unknown.
        code = not following or len(following[0]) > 1 or following[0][0].startswith("-")
    if code:
        raise Failure(Exit.USAGE, f"{word[0]} would run a message as code", _AS_INPUT)


def _check_option(word: Word, before: Word) -> None:
    """Raise `Failure` if `word` has a template and is the value of an option. Many programs read such a value as code.

    `before` is the word before.
    """
    if len(word) == 1:
        return
    for option in (word, before):
        if option[0].startswith("-") and option != _END:
            message = f"a message must not be the value of an option ({option[0]}): the program may run it as code"
            raise Failure(Exit.USAGE, message, _AS_INPUT)
