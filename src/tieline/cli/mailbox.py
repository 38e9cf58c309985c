"""A mailbox: messages without a hub, in a folder or through a relay that serves one.

Above: `session`, which asks for one where there is no hub, and the commands that also work there. Below: the protocol
that keeps such messages and has a `MailboxProvider` in its extension of the command line; a spool is its folder. It
refuses to know what is in the folder.
"""

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tieline.agents.hooks import Program
    from tieline.agents.unread import Asked
    from tieline.cli.context import Context
    from tieline.cli.session import Link
    from tieline.cli.watch import WatchOptions


class Mailbox(Protocol):
    """The commands without a hub, each by its name, for the speaker of one link. They print what there is to say."""

    def send(self, target: str, body: str, parts: dict[str, Any], *, json: bool) -> None:
        """Say something; done once nothing can lose it."""

    def inbox(self, match: str | None, *, brief: bool, json: bool) -> None:
        """Show what waits."""

    def take(self, id: str, *, keep: bool, json: bool) -> None:
        """Take one message, by its id or the beginning of it."""

    def drain(self, context: "Context", *, hook: bool, json: bool) -> None:
        """Take everything that is for a reader here."""

    def show_unread(self, context: "Context", program: "Program", question: "Asked", tokens_max: int) -> None:
        """Answer a program's hook with what waits, and take what it is shown."""

    async def watch(self, options: "WatchOptions") -> None:
        """Take messages as they come, until interrupted."""

    def subscribe(self, channel: str) -> str:
        """Join a channel; returns who did."""

    def unsubscribe(self, channel: str) -> str:
        """Leave a channel; returns who did."""

    def members(self, *, json: bool) -> None:
        """List who is known there."""

    def channels(self, *, json: bool) -> None:
        """List channels and who is in them."""

    def whoami(self, *, json: bool) -> None:
        """Say who speaks here, and through what."""


class Stored(Protocol):
    """The identity that a folder keeps for whoever works in it."""

    @property
    def agent(self) -> str | None:
        """The name that speaks where nobody is named."""

    @property
    def url(self) -> str | None:
        """The hub or relay that takes the place of the folder."""

    @property
    def token(self) -> str | None:
        """A token for that address alone."""

    @property
    def is_hub(self) -> bool:
        """True if the address is known to be a hub's."""


class MailboxProvider(Protocol):
    """Working without a hub, as one protocol offers it."""

    def stored(self, link: "Link") -> Stored:
        """The identity that is kept for a link; empty where none is."""

    def mailbox(self, link: "Link") -> Mailbox:
        """The spool that a link names or that is found for it, or the relay that takes its place."""


def find_mailbox_provider() -> MailboxProvider | None:
    """The way to work without a hub, if a protocol offers one."""
    from tieline.cli.extension import extensions

    return next((provider for each in extensions() if (provider := each.mailbox_provider()) is not None), None)
