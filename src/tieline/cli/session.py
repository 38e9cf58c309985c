"""The session of a command: its hub, its member, and its exit code.

Used by: every command that talks to a hub. Uses: the SDK. `talks` adds the options that name the hub and the member to
a command, so that they are the same everywhere. `talks_anywhere` does so for commands that also work without a hub, on
a spool.
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

from tieline.cli.completion import complete_member
from tieline.cli.failure import Exit, Failure, NobodyNamed, document_of, failure_of

if TYPE_CHECKING:
    from tieline.cli.mailbox import Mailbox
    from tieline.client import Client

P = ParamSpec("P")

_PANEL = "Hub and member"

HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="DIR",
        help="Home folder of the hub. Default: TIELINE_HOME.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Address of the hub. Default: TIELINE_URL.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="T",
        help="Token of a member. Default: TIELINE_TOKEN, which other users of the machine cannot see.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="File with the token, which only you can read. A command line can be seen by other users.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
AsOption = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="NAME",
        help="Member to act as. Default: TIELINE_AGENT, else the name that 'init' or 'join' stored.",
        autocompletion=complete_member,
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
SpoolOption = Annotated[
    Path | None,
    typer.Option(
        "--spool",
        metavar="DIR",
        help="Use this Maildir spool instead of a hub.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
_LINK_OPTIONS = {
    "home": HomeOption,
    "url": UrlOption,
    "token": TokenOption,
    "token_file": TokenFileOption,
    "member": AsOption,
}
JsonOption = Annotated[bool, typer.Option("--json", help="Print the hub's JSON instead of text.")]

_ANSWER_SECONDS = 10.0
"""Longest wait, in seconds, for the hub's answer to a new connection. A working hub answers at once, so a slower hub
hangs."""


@dataclass(frozen=True)
class Link:
    """Options of a command that name the hub and the member. Environment variables can replace missing options."""

    home: Path | None = None
    url: str | None = None
    token: str | None = None
    member: str | None = None
    spool: Path | None = None
    """Spool (a folder of messages) to use instead of any hub; `None` if no spool is named."""

    @property
    def address(self) -> str | None:
        """Address of a remote hub; `None` for the hub in a home folder of this machine.

        A command line option overrides the environment. Without a scheme, an address with a fingerprint gets
        `https://`, and any other `http://`.
        """
        from tieline.wire.address import PIN

        url = self.named_url
        if url and "://" not in url:
            return f"https://{url}" if PIN in url else f"http://{url}"
        return url

    @property
    def named_url(self) -> str | None:
        """Address of a remote hub as the user wrote it, perhaps without a scheme; `None` if no address is named."""
        from tieline.client.connection import URL_VARIABLE

        return self.url or (os.environ.get(URL_VARIABLE) if self.home is None else None) or None

    @property
    def folder(self) -> Path:
        """The home folder of the hub."""
        from tieline.wire.home import find_home

        return find_home(self.home)

    def mailbox(self) -> "Mailbox | None":
        """Return the mailbox (messages in a folder) to use without a hub; `None` if there is a hub."""
        from tieline.cli.hub_or_spool import find_mailbox

        return find_mailbox(self)

    def environment(self, speaker: str) -> dict[str, str]:
        """Return the environment for a child program.

        In this environment, `tieline` talks to this hub as the member `speaker`.
        """
        from tieline.client.connection import MEMBER_VARIABLE, TOKEN_VARIABLE, URL_VARIABLE
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
        """Open and return a session with the hub for the member that the options name.

        If they name no member, the session is the operator's, who may do everything. With `receive`, the session gets
        deliveries. `window` is the maximum number of unacknowledged deliveries that the hub may send.
        """
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
            where = (url or str(self.folder)).partition("#")[0]
            raise Failure(Exit.UNREACHABLE, f"the hub at {where} accepts connections but does not answer") from error

    def way(self) -> tuple[str | None, str | None]:
        """Return the hub's address and the token.

        They come from options, the environment, or `tieline join` in this folder. Without an address (`None`) the hub
        in the home folder is used. Without a token (`None`) the SDK takes it from the environment, or uses the key in
        the home folder.
        """
        from tieline.cli.hub_or_spool import joined_hub
        from tieline.client.connection import TOKEN_VARIABLE

        joined = joined_hub(self)
        if joined is None:
            return self.address, self.token
        # The stored token is for the stored address alone.
        return joined.pinned_url, self.token or os.environ.get(TOKEN_VARIABLE) or joined.token

    async def open_member(self, *, receive: bool = False, window: int = 256, make: bool = False) -> "Client":
        """Open and return a session of the member of `--as`, a token or the environment, or else the stored one.

        With `make`, create the member first if its name is new. This works only on the hub's machine.
        """
        speaking = self.with_speaker()
        if make:
            from tieline.cli.new_member import open_or_make

            return await open_or_make(speaking, receive=receive, window=window)
        return await speaking.open(receive=receive, window=window)

    def with_speaker(self) -> "Link":
        """Return these options with a member.

        If they name none, add the member that `init` or `join` stored in the folder. Raise `NobodyNamed` if no member
        is named or stored.
        """
        from tieline.client.connection import MEMBER_VARIABLE, TOKEN_VARIABLE

        link = self.or_stored()
        if link.member or self.is_named():
            return link
        hint = f"add --as NAME, set {MEMBER_VARIABLE} or {TOKEN_VARIABLE}, or store a name with 'tieline init NAME'"
        raise NobodyNamed(hint)

    def or_stored(self) -> "Link":
        """Return these options.

        If they name no member, add the member that `init` or `join` stored in the folder, if any.
        """
        from tieline.cli.hub_or_spool import stored_identity

        stored = None if self.is_named() else stored_identity(self)
        return self if stored is None else replace(self, member=stored.agent)

    def is_named(self) -> bool:
        """Return true if an option or the environment names a member, or has a member's token."""
        from tieline.client.connection import MEMBER_VARIABLE, TOKEN_VARIABLE

        named = (self.member, self.token, os.environ.get(MEMBER_VARIABLE), os.environ.get(TOKEN_VARIABLE))
        return any(named)

    def acts_for_another(self) -> bool:
        """Return true if only `--as` names the member, and only the key in the hub's home permits the session.

        Then a person on the hub's machine may act for the member. The result is false if the command has a token, or
        if the environment or the stored name is the same member.
        """
        from tieline.cli.hub_or_spool import named_token, stored_identity
        from tieline.client.connection import MEMBER_VARIABLE

        if not self.member or named_token(self) is not None or self.way() != (None, None):
            return False
        try:
            stored = stored_identity(self)
        except Exception:  # noqa: BLE001 - each kind of mailbox has its own error for a file that cannot be read
            # The command needs no stored name.
            stored = None
        return self.member not in (os.environ.get(MEMBER_VARIABLE), stored.agent if stored is not None else None)

    def may_see_all(self) -> bool:
        """Return true if only a stored name says who speaks, and the key in the hub's home is there.

        Then the person who stored the name may also see the messages of others, as the operator. The result is false
        in the shell of an agent, which the environment names.
        """
        from tieline.wire.home import read_key

        if self.is_named() or self.way() != (None, None):
            return False
        return self.or_stored().member is not None and read_key(self.folder) is not None

    async def open_all(self) -> "Client":
        """Open and return the operator's session, which sees the messages of all members.

        Raise `Failure` if the options name a member, a token or an address.
        """
        if self.member or self.token or self.way() != (None, None):
            raise Failure(Exit.USAGE, "--all needs the key in the hub's home, and no --as, --token or --url")
        return await self.open_operator()

    async def open_operator(self) -> "Client":
        """Open and return a session to manage members.

        The session is the operator's, unless an address, a token or a member is named. The operator's session uses the
        key in the home folder. To open it, the variables `TIELINE_AGENT` and `TIELINE_TOKEN` are ignored, because they
        may name the member that the command is about to create.
        """
        from tieline.client.connection import MEMBER_VARIABLE, TOKEN_VARIABLE

        if self.address is None and self.token is None and self.member is None:
            os.environ.pop(MEMBER_VARIABLE, None)
            os.environ.pop(TOKEN_VARIABLE, None)
        return await self.open()


def speaker_of(client: "Client") -> str:
    """Return the member name of a session. The hub sets this name as the sender of the session's messages."""
    assert client.welcome is not None, "an open session was welcomed"
    return client.welcome.speaker


def talks(command: Callable[Concatenate[Link, P], Awaitable[None]]) -> Callable[..., None]:
    """Turn a coroutine that takes a `Link` into a Typer command.

    The command gets the options that fill the link (`--home`, `--as`…). If the command already has an option of the
    same name, it keeps its own option.
    """
    return _talking(command, _LINK_OPTIONS)


def talks_anywhere(command: Callable[Concatenate[Link, P], Awaitable[None]]) -> Callable[..., None]:
    """Turn a coroutine into a Typer command like `talks`, for a command that also works without a hub.

    Without a hub the command works on a spool (a folder of messages). Such a command asks its `Link` for a mailbox
    first.
    """
    return _talking(command, {**_LINK_OPTIONS, "spool": SpoolOption})


def _talking(command: Callable[Concatenate[Link, P], Awaitable[None]], options: dict[str, Any]) -> Callable[..., None]:
    own = list(inspect.signature(command).parameters.values())[1:]
    taken = {parameter.name for parameter in own}
    if "token" in taken:
        # A command with a token of its own, such as `member add`: two ways to give two tokens would confuse.
        taken.add("token_file")
    added = {name: option for name, option in options.items() if name not in taken}

    @wraps(command)
    def run(**values: Any) -> None:
        import asyncio

        named = {name: values.pop(name) for name in added}

        async def main() -> None:
            token_file = named.pop("token_file", None)
            if token_file is not None:
                named["token"] = _read_token(token_file, named["token"])
            # Typer passes every value by its name.
            await command(Link(**named), **values)  # type: ignore[call-arg]

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


def _read_token(file: Path, given: str | None) -> str:
    """Return the token in `file`. Raise `Failure` if other users can read the file, or if it is empty.

    `given` is the token of the option `--token`. Raise `Failure` if there is one, because the two options exclude each
    other.
    """
    if given:
        raise Failure(Exit.USAGE, "--token and --token-file exclude each other")
    path = file.expanduser()
    if path.stat().st_mode & 0o077:
        raise Failure(Exit.REFUSED, f"{path} can be read by other users, so its token is not used", f"chmod 600 {path}")
    token = path.read_text(encoding="utf-8", errors="replace").strip()
    if not token:
        raise Failure(Exit.FAILED, f"{path} has no token in it")
    return token


def ended_by(work: Callable[[], None], *, json: bool = False) -> None:
    """Run the function `work` of a command.

    If it fails, print the error on stderr and end with the exit code of the failure. The error is printed as one
    sentence or, with `json`, as a JSON document. An error that is a bug is raised again.
    """
    try:
        work()
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        from tieline.cli.output import complain, print_json

        if json:
            print_json(document_of(failure, error), sys.stderr)
        else:
            complain(failure.message, failure.hint)
        raise typer.Exit(failure.code) from error
