"""A mailbox: messages without a hub, in a folder or through a relay that serves one.

Above: `session`, which asks for a mailbox if there is no hub, and the commands that also work without a hub. Below: the
protocol that stores such messages and has a `MailboxProvider` in its extension of the command line; a spool is its
folder. It refuses to know what is in the folder.
"""

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tieline.agents.hooks import Program
    from tieline.agents.unread import Asked
    from tieline.cli.context import Context
    from tieline.cli.session import Link
    from tieline.cli.watch import WatchOptions


class Mailbox(Protocol):
    """The commands without a hub, each by its name, for the speaker of one link. Each prints its result."""

    def send(self, target: str, body: str, parts: dict[str, Any], *, json: bool) -> None:
        """Send a message. It is durable when this returns."""

    def inbox(self, match: str | None, *, brief: bool, json: bool) -> None:
        """Show waiting messages."""

    def take(self, id: str, *, keep: bool, json: bool) -> None:
        """Take one message, by its id or the beginning of it."""

    def drain(self, context: "Context", *, hook: bool, json: bool) -> None:
        """Take all messages whose scope matches the context."""

    def show_unread(self, context: "Context", program: "Program", question: "Asked", tokens_max: int) -> None:
        """Answer a program's hook with waiting messages, and take those that are shown."""

    async def watch(self, options: "WatchOptions") -> None:
        """Take messages as they come, until interrupted."""

    def subscribe(self, channel: str) -> str:
        """Join a channel. Return the name that joined."""

    def unsubscribe(self, channel: str) -> str:
        """Leave a channel. Return the name that left."""

    def members(self, *, json: bool) -> None:
        """List the known agents."""

    def channels(self, *, json: bool) -> None:
        """List channels and their subscribers."""

    def whoami(self, *, json: bool) -> None:
        """Print the name that speaks here, and the spool or relay."""


class Stored(Protocol):
    """Identity that is stored in a folder, for commands that run there."""

    @property
    def agent(self) -> str | None:
        """Name of the default speaker."""

    @property
    def url(self) -> str | None:
        """Address of the hub or relay to use instead of the folder."""

    @property
    def token(self) -> str | None:
        """Token, only for that address."""

    @property
    def is_hub(self) -> bool:
        """True if the address is known to be a hub's."""


class MailboxProvider(Protocol):
    """Provider of mailboxes without a hub. A protocol offers it."""

    def stored(self, link: "Link") -> Stored:
        """Return the stored identity for a link; empty if none is stored."""

    def mailbox(self, link: "Link") -> Mailbox:
        """Return the spool that a link names or that is found for it, or the relay that is used instead."""


def find_mailbox_provider() -> MailboxProvider | None:
    """Return the provider of mailboxes without a hub, if a protocol offers one."""
    from tieline.cli.extension import extensions

    return next((provider for each in extensions() if (provider := each.mailbox_provider()) is not None), None)
