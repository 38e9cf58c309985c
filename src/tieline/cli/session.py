"""The session of a command: its hub, its member, and its exit code.

Above: every command that talks to a hub. Below: the SDK. `talks` adds the options for the hub and the speaker to a
command, so that they are the same everywhere. `talks_anywhere` does so for commands that also work without a hub, on a
spool.
"""

import inspect
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

import typer

from tieline.cli.failure import Exit, Failure, document_of, failure_of

if TYPE_CHECKING:
    from tieline.cli.mailbox import Mailbox
    from tieline.client import Client

P = ParamSpec("P")

_PANEL = "Which hub, and as whom"

HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home", metavar="DIR", help="The hub's folder; else TIELINE_HOME.", rich_help_panel=_PANEL, show_default=False
    ),
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="The hub's address; else TIELINE_URL.", rich_help_panel=_PANEL, show_default=False
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="T",
        help="A member's token; else TIELINE_TOKEN, which other users of the machine cannot see.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
AsOption = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="NAME",
        help="The member that speaks; else TIELINE_AGENT, else the one that 'init' or 'join' stored.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
SpoolOption = Annotated[
    Path | None,
    typer.Option(
        "--spool",
        metavar="DIR",
        help="Work on this Maildir spool, without a hub.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
_LINK_OPTIONS = {"home": HomeOption, "url": UrlOption, "token": TokenOption, "member": AsOption}
JsonOption = Annotated[bool, typer.Option("--json", help="Print the hub's JSON instead of text.")]

_ANSWER_SECONDS = 10.0
"""Timeout: a working hub answers a connection at once, so a slower one hangs."""


@dataclass(frozen=True)
class Link:
    """Hub and speaker as the command line names them. The environment has the rest."""

    home: Path | None = None
    url: str | None = None
    token: str | None = None
    member: str | None = None
    spool: Path | None = None
    """A spool to work on instead of any hub."""

    @property
    def address(self) -> str | None:
        """Address of a remote hub, or `None` for the hub of a home. A flag overrides the environment."""
        from tieline.client.client import URL_VARIABLE

        url = self.url or (os.environ.get(URL_VARIABLE) if self.home is None else None)
        if url and "://" not in url:
            return f"http://{url}"
        return url or None

    @property
    def folder(self) -> Path:
        """The home of the hub."""
        from tieline.wire.home import find_home

        return find_home(self.home)

    def mailbox(self) -> "Mailbox | None":
        """Return the mailbox to use without a hub; `None` if there is a hub."""
        from tieline.cli.hub_or_spool import find_mailbox

        return find_mailbox(self)

    def environment(self, speaker: str) -> dict[str, str]:
        """Return the environment of a child program. In it, `tieline` talks to this hub as this member."""
        from tieline.client.client import MEMBER_VARIABLE, TOKEN_VARIABLE, URL_VARIABLE
        from tieline.wire.home import HOME_VARIABLE

        here = {**os.environ, MEMBER_VARIABLE: speaker}
        url, token = self.way()
        if token is not None:
            here[TOKEN_VARIABLE] = token
        if url is not None:
            here[URL_VARIABLE] = url
        else:
            # An address in the environment would override the home, and we do not talk to that address.
            here.pop(URL_VARIABLE, None)
            here[HOME_VARIABLE] = str(self.folder)
        return here

    async def open(self, *, receive: bool = False, window: int = 256) -> "Client":
        """Open a session with the hub, of a member or of the operator."""
        import asyncio

        from tieline.client import connect

        url, token = self.way()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await connect(
                    member=self.member,
                    token=token,
                    url=url,
                    home=self.home,
                    receive=receive,
                    window=window,
                )
        except TimeoutError as error:
            where = url or self.folder
            raise Failure(Exit.UNREACHABLE, f"the hub at {where} takes connections and does not answer") from error

    def way(self) -> tuple[str | None, str | None]:
        """Return the address and the token that are named or that `join` stored; `None` for those of the home."""
        from tieline.cli.hub_or_spool import joined_hub
        from tieline.client.client import TOKEN_VARIABLE

        joined = joined_hub(self)
        if joined is None:
            return self.address, self.token
        # The stored token is for the stored address alone.
        return joined.url, self.token or os.environ.get(TOKEN_VARIABLE) or joined.token

    async def open_member(self, *, receive: bool = False, window: int = 256) -> "Client":
        """Open a session of the member that `--as`, a token or the environment names, or that `init` stored."""
        return await self.with_speaker().open(receive=receive, window=window)

    def with_speaker(self) -> "Link":
        """Return this link with a member. Fail before the hub is asked if no member is named or stored."""
        from tieline.client.client import MEMBER_VARIABLE, TOKEN_VARIABLE

        link = self.or_stored()
        if link.member or self._is_named():
            return link
        message = "nobody is named who does this"
        hint = f"add --as NAME, set {MEMBER_VARIABLE} or {TOKEN_VARIABLE}, or store a name with 'tieline init NAME'"
        raise Failure(Exit.USAGE, message, hint)

    def or_stored(self) -> "Link":
        """Return this link with the member that `init` or `join` stored, unless a member is named."""
        from tieline.cli.hub_or_spool import stored_identity

        stored = None if self._is_named() else stored_identity(self)
        return self if stored is None else replace(self, member=stored.agent)

    def _is_named(self) -> bool:
        from tieline.client.client import MEMBER_VARIABLE, TOKEN_VARIABLE

        named = (self.member, self.token, os.environ.get(MEMBER_VARIABLE), os.environ.get(TOKEN_VARIABLE))
        return any(named)

    async def open_operator(self) -> "Client":
        """Open a session that manages members: the operator's by the key of the home, else that of the named member.

        On the hub's machine `TIELINE_AGENT` and `TIELINE_TOKEN` name the usual speaker, not the manager of members:
        the command may be about to make the member that they name.
        """
        from tieline.client.client import MEMBER_VARIABLE, TOKEN_VARIABLE

        if self.address is None and self.token is None and self.member is None:
            os.environ.pop(MEMBER_VARIABLE, None)
            os.environ.pop(TOKEN_VARIABLE, None)
        return await self.open()


def speaker_of(client: "Client") -> str:
    """Return the name that the hub stamps on the messages of a session."""
    assert client.welcome is not None, "an open session was welcomed"
    return client.welcome.speaker


def talks(command: Callable[Concatenate[Link, P], Awaitable[None]]) -> Callable[..., None]:
    """Make a Typer command of a coroutine that takes a `Link`, with the options that fill the link.

    A command that has an option of the same name keeps its own.
    """
    return _talking(command, _LINK_OPTIONS)


def talks_anywhere(command: Callable[Concatenate[Link, P], Awaitable[None]]) -> Callable[..., None]:
    """Make a Typer command like `talks`, for a command that also works on a spool.

    Such a command asks its link for a mailbox first.
    """
    return _talking(command, {**_LINK_OPTIONS, "spool": SpoolOption})


def _talking(command: Callable[Concatenate[Link, P], Awaitable[None]], options: dict[str, Any]) -> Callable[..., None]:
    own = list(inspect.signature(command).parameters.values())[1:]
    taken = {parameter.name for parameter in own}
    added = {name: option for name, option in options.items() if name not in taken}

    @wraps(command)
    def run(**values: Any) -> None:
        import asyncio

        link = Link(**{name: values.pop(name) for name in added})

        async def main() -> None:
            # Typer passes every value by its name.
            await command(link, **values)  # type: ignore[call-arg]

        ended_by(lambda: asyncio.run(main()), json=values.get("json", False))

    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own),
            *(
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
                for name, option in added.items()
            ),
        ]
    )
    return run


def ended_by(work: Callable[[], None], *, json: bool = False) -> None:
    """Run a command. An error becomes one sentence or a JSON document on stderr, and an exit code."""
    try:
        work()
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        from tieline.cli.output import complain, print_json

        if json:
            print_json({"error": document_of(failure, error)}, sys.stderr)
        else:
            complain(failure.message, failure.hint)
        raise typer.Exit(failure.code) from error
