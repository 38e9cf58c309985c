"""A mailbox: messages without a hub, in a folder (a spool) or through a relay (a server that serves a spool).

Used by: `session`, which asks for a mailbox if there is no hub, and the commands that also work without a hub. Uses:
the protocol that stores such messages and has a `MailboxProvider` in its extension of the command line. This module
does not know the content of the folder.
"""

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tieline.agents.hooks import Program
    from tieline.agents.unread import Asked
    from tieline.cli.context import Context
    from tieline.cli.session import Link
    from tieline.cli.watch import WatchOptions


class Mailbox(Protocol):
    """Interface for commands that work without a hub. Each method is one command of a member and prints its result."""

    def send(self, target: str, body: str, parts: dict[str, Any], *, json: bool) -> None:
        """Send a message. The message is durable (safe on disk) when this returns.

        `parts` are its optional fields, such as `scope` and `thread`.
        """

    def inbox(self, match: str | None, *, brief: bool, json: bool) -> None:
        """Print waiting messages.

        With `match`, print only messages whose scope matches it. With `brief`, print one line for each message.
        """

    def take(self, id: str, *, keep: bool, json: bool) -> None:
        """Take one message out of the inbox and print it. `id` may be the beginning of the message's id.

        With `keep`, the message's file stays in the spool as a handled message; otherwise the file is deleted.
        """

    def drain(self, context: "Context", *, hook: bool, json: bool) -> None:
        """Take all messages whose scope matches the context out of the inbox and print them.

        With `hook`, print the messages in the form for an agent, and print nothing if there are none.
        """

    def show_unread(self, context: "Context", program: "Program", question: "Asked", tokens_max: int) -> None:
        """Show the waiting messages to an agent, through a hook of its program, and take them out of the inbox.

        The program runs this command as its hook, with `question` as the input. The command prints the messages in the
        form that the program expects of a hook, with at most `tokens_max` tokens.
        """

    async def watch(self, options: "WatchOptions") -> None:
        """Take messages out of the inbox as they come, and print them or run a command, until interrupted."""

    def subscribe(self, channel: str) -> str:
        """Join a channel. Return the name of the member that joined."""

    def unsubscribe(self, channel: str) -> str:
        """Leave a channel. Return the name of the member that left."""

    def members(self, *, json: bool) -> None:
        """Print the known agents."""

    def channels(self, *, json: bool) -> None:
        """Print the channels and their subscribers."""

    def whoami(self, *, json: bool) -> None:
        """Print the name under which commands act, and the spool or relay (server that serves a spool) they work on."""


class Stored(Protocol):
    """Interface of the name, address and token that `init` or `join` stored in a spool's folder, for later commands."""

    @property
    def agent(self) -> str | None:
        """Name of the member that commands act as by default."""

    @property
    def url(self) -> str | None:
        """Address of a hub, or of a relay (a server that serves a spool), to use instead of a folder of messages."""

    @property
    def pinned_url(self) -> str | None:
        """The address `url`, with the fingerprint of the certificate that clients must find there, if there is one."""

    @property
    def token(self) -> str | None:
        """Token for the address `url`. It is valid for no other address."""

    @property
    def is_hub(self) -> bool:
        """True if `url` is known to be the address of a hub, and not of a relay (a server that serves a spool)."""


class MailboxProvider(Protocol):
    """Interface that opens mailboxes for commands without a hub, and reads the stored names, addresses and tokens.

    A protocol implements this interface.
    """

    def stored(self, link: "Link") -> Stored:
        """Return the name, address and token that are stored for commands with this link.

        Values that are not stored are empty.
        """

    def mailbox(self, link: "Link") -> Mailbox:
        """Return the mailbox that the options in `link` name, or the default mailbox.

        The mailbox is a spool (a folder of messages) or a relay (a server that serves a spool).
        """


def find_mailbox_provider() -> MailboxProvider | None:
    """Return the provider of mailboxes (messages in a folder, without a hub), if a protocol offers one."""
    from tieline.cli.extension import extensions

    return next((provider for each in extensions() if (provider := each.mailbox_provider()) is not None), None)
