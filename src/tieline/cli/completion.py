"""Completion: lets a shell complete commands, options, and the names of members, channels and objectives.

Used by: the scripts that `tieline completion` prints for bash, zsh and fish, and the arguments of commands. Uses: a
session with a hub, for names. A shell waits for the answer, so a hub that does not answer soon gives no names, and no
error is printed.
"""

import contextlib
import shlex
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tieline.client import Client, Message

_ANSWER_SECONDS = 1.5
"""Longest wait for the hub's answer: a person waits for it at the prompt."""
_NAMES_MAX = 200
"""Largest number of names in an answer. A shell asks before it shows more than about a hundred."""
_HELP_CHARS = 60

_Found = list[tuple[str, str]]


class Shell(StrEnum):
    """A shell that can complete words."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


# Bash cuts words also at @, : and =, so the pieces of a word are joined first. Bash replaces only the end of the word,
# so the answers must begin there. It gives this end as $2: the text after a quote, : or =, or from the last @ on.
_SCRIPTS = {
    Shell.BASH: r"""
_tieline() {
    local line=$COMP_LINE word head="" answer i
    local -a words=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((i > 0)) && [[ $line != [[:space:]]* ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
            line=${line#"${line%%[![:space:]]*}"}
        fi
        line=${line#"$word"}
    done
    word=${words[${#words[@]} - 1]}
    [[ $word == *"$2" ]] && head=${word%"$2"}
    COMPREPLY=()
    while IFS=$'\t' read -r answer _; do
        answer=${answer#"${head//[\\\"\']/}"}
        [[ $head != *[\"\'] ]] && printf -v answer '%q' "$answer"
        COMPREPLY+=("$answer")
    done < <("$1" complete-words -- "${words[@]:1}" 2>/dev/null)
}
complete -o default -F _tieline tieline
""",
    Shell.ZSH: r"""#compdef tieline
_tieline() {
    local -a found
    local name text
    while IFS=$'\t' read -r name text; do
        found+=("${name//:/\\:}:$text")
    done < <("${(Q)words[1]}" complete-words -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( $#found )); then
        _describe -V tieline found
    else
        _files
    fi
}
if [ "$funcstack[1]" = "_tieline" ]; then
    _tieline "$@"
else
    compdef _tieline tieline
fi
""",
    Shell.FISH: r"""
function __tieline_words
    set -l word (commandline -ct)
    set -l words (commandline -opc) "$word"
    set -l found ($words[1] complete-words -- $words[2..] 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c tieline -f -k -a '(__tieline_words)'
""",
}


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.", show_default=False)],
) -> None:
    """Print a script that lets your shell complete commands, options and names.

    Put it where the shell finds it, and open a new terminal. For bash as below; that needs the package bash-completion,
    which a bare Debian lacks. For zsh as the file _tieline in a folder of $fpath, and ~/.zshrc must run compinit
    ('autoload -U compinit; compinit') after it has set $fpath. For fish as ~/.config/fish/completions/tieline.fish.
    Names come from the hub of the command line, so members, channels and objectives are those that you may see.
    """
    print(_SCRIPTS[shell].strip())


def complete_words(
    words: Annotated[list[str] | None, typer.Argument(help="Words after 'tieline'; the last is incomplete.")] = None,
) -> None:
    """Print the words that fit, one in a line, each with a description after a tab. Shells call this."""
    from typer._completion_classes import BashComplete
    from typer.main import get_command

    from tieline.cli.main import make_app

    *before, incomplete = map(_unquoted, words or [""])
    app = get_command(make_app(before[0] if before else ""))
    option, equals, _ = incomplete.rpartition("=")
    head = f"{option}=" if equals and option.startswith("--") else ""
    # Any shell's class would do: it only finds the words.
    for item in BashComplete(app, {}, "tieline", "").get_completions(before, incomplete):
        if item.type == "plain":
            print(f"{head}{item.value}", " ".join((item.help or "").split())[:_HELP_CHARS], sep="\t")


def _unquoted(word: str) -> str:
    """Return a word of the command line without its quotes and backslashes, as the command would get it.

    The last word may have a quote that is not closed yet.
    """
    for closed in (word, f"{word}'", f'{word}"', word.rstrip("\\")):
        with contextlib.suppress(ValueError):
            return "".join(shlex.split(closed))
    return word


# Names of the hub.


def complete_member(ctx: typer.Context, incomplete: str) -> _Found:
    """Return the members whose names begin with the text."""
    return _ask(ctx, incomplete, _members)


def complete_channel(ctx: typer.Context, incomplete: str) -> _Found:
    """Return the channels whose names begin with the text, with or without `#`, as it was typed."""
    return _ask(ctx, incomplete, _channels, mark="" if incomplete[:1] != "#" else "#")


def complete_objective(ctx: typer.Context, incomplete: str) -> _Found:
    """Return the open objectives whose short ids begin with the text."""
    return _ask(ctx, incomplete, _objectives)


def complete_target(ctx: typer.Context, incomplete: str) -> _Found:
    """Return the targets that begin with the text: members, channels and the threads of objectives."""
    marks: dict[str, tuple[_Source, str]] = {"@": (_members, "@"), "#": (_channels, "#"), "o": (_objectives, "obj:")}
    if not incomplete:
        return [found for source, mark in marks.values() for found in _ask(ctx, "", source, mark=mark)]
    source, mark = marks.get(incomplete[0], (_members, ""))
    return _ask(ctx, incomplete, source, mark=mark) or _ask(ctx, incomplete, _members)


def complete_conversation(ctx: typer.Context, incomplete: str) -> _Found:
    """Return the conversations that begin with the text: targets, threads, and pairs of members such as `@a+@b`."""
    one, plus, other = incomplete.rpartition("+")
    if plus:
        return [(f"{one}+{name}", text) for name, text in _ask(ctx, other, _members, mark="@")]
    threads = _ask(ctx, incomplete, _threads, mark="thread:") if incomplete[:1] == "t" else []
    return threads or complete_target(ctx, incomplete)


def complete_thread(ctx: typer.Context, incomplete: str) -> _Found:
    """Return the short names of threads that begin with the text. Only the threads of recent messages are searched."""
    return _ask(ctx, incomplete, _threads)


def complete_reader(ctx: typer.Context, incomplete: str) -> _Found:
    """Return the readers of the log whose names begin with the text."""
    return _ask(ctx, incomplete, _readers)


def complete_waiting(ctx: typer.Context, incomplete: str) -> _Found:
    """Return the message numbers that begin with the text, for the messages in the inbox."""
    return _ask(ctx, incomplete, _waiting)


def complete_message(ctx: typer.Context, incomplete: str) -> _Found:
    """Return the message numbers that begin with the text: first those in the inbox, then those of recent messages."""
    return _ask(ctx, incomplete, _messages)


def complete_own_message(ctx: typer.Context, incomplete: str) -> _Found:
    """Return the message numbers that begin with the text, for the member's own recent messages."""
    return _ask(ctx, incomplete, _own_messages)


_Source = Callable[["Client"], Any]


async def _members(client: "Client") -> _Found:
    return [(member.name, member.kind) for member in await client.members()]


async def _channels(client: "Client") -> _Found:
    return [(channel.name, f"members: {len(channel.subscribers)}") for channel in await client.channels()]


async def _objectives(client: "Client") -> _Found:
    from tieline.cli.short_ids import short_objective
    from tieline.contract.objective import Status

    page = await client.objectives(statuses=(Status.ACTIVE, Status.BLOCKED), limit=_NAMES_MAX)
    return [(short_objective(one.id), one.title) for one in page.objectives]


async def _readers(client: "Client") -> _Found:
    return [(reader.name, reader.log) for reader in (await client.readers()).readers]


async def _threads(client: "Client") -> _Found:
    from tieline.cli.short_ids import short_id

    recent = await client.history(limit=_NAMES_MAX)
    # The oldest message of a thread says best what it is about.
    return list({short_id(one.thread): f"{one.sender}: {one.body}" for one in recent if one.thread}.items())


async def _waiting(client: "Client") -> _Found:
    return [_shown(item.message) for item in (await client.inbox(limit=_NAMES_MAX)).items]


async def _messages(client: "Client") -> _Found:
    member = client.welcome is not None and client.welcome.member is not None
    waiting = await _waiting(client) if member else []
    recent = [_shown(message) for message in await client.history(limit=_NAMES_MAX)]
    return list(dict([*waiting, *recent]).items())


async def _own_messages(client: "Client") -> _Found:
    from tieline.cli.session import speaker_of

    recent = await client.history(limit=_NAMES_MAX)
    return [_shown(message) for message in recent if message.sender == speaker_of(client)]


def _shown(message: "Message") -> tuple[str, str]:
    from tieline.cli.short_ids import short_message

    return short_message(message), f"{message.sender}: {message.body}"


def _ask(ctx: typer.Context, incomplete: str, source: _Source, *, mark: str = "") -> _Found:
    """Return the names from `source` that begin with the incomplete word. Return nothing if the hub does not answer.

    `mark`, such as `@`, is put before each name.
    """
    import asyncio

    from tieline.cli.session import Link

    link = Link(**{name: ctx.params.get(name) for name in ("home", "url", "token", "member")})

    async def ask() -> _Found:
        async with asyncio.timeout(_ANSWER_SECONDS), await link.or_stored().open() as client:
            found: _Found = await source(client)
            return found

    try:
        found = asyncio.run(ask())
    except Exception:  # noqa: BLE001 - whatever it is, nobody can read it at the prompt
        return []
    return list(_fitting(found, incomplete, mark))[:_NAMES_MAX]


def _fitting(found: _Found, incomplete: str, mark: str) -> Iterator[tuple[str, str]]:
    from tieline.cli.output import neutral_line

    for name, text in found:
        if f"{mark}{name}".lower().startswith(incomplete.lower()):
            yield f"{mark}{name}", neutral_line(text[:_HELP_CHARS])
