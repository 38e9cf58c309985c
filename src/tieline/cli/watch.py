"""`tieline watch`: prints messages as they come, or runs a command for each.

Used by: a person, or a script that reacts. Uses: a session with a hub, renewed when the hub restarts; or a mailbox
without a hub. A message is claimed before it is handled, so that exactly one of several watchers handles it, once.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tieline.cli.extension import extensions
from tieline.cli.inbox import MatchOption
from tieline.cli.output import print_json, print_message, warn
from tieline.cli.session import Link, speaker_of, talks_anywhere
from tieline.cli.short_ids import short_message
from tieline.contract.message import Priority

if TYPE_CHECKING:
    from tieline.cli.context import Context
    from tieline.cli.reaction import Reaction
    from tieline.client import Client, Delivery, Item, Message

_WINDOW = 1024
"""Maximum number of deliveries that the hub sends without an acknowledgement. Deliveries that are skipped count,
too."""

_ANSWER_SECONDS = 1.0
"""Longest wait, in seconds, for the hub's answer to a claim, after the user has interrupted the command."""


@talks_anywhere
async def watch(
    link: Link,
    command: Annotated[
        str | None,
        typer.Option(
            "--exec", metavar="CMD", help="Run this command for each message instead of printing it; see above."
        ),
    ] = None,
    urgent_only: Annotated[
        bool, typer.Option("--urgent-only", help="Leave messages that are not urgent in the inbox.")
    ] = False,
    match: MatchOption = None,
    peek: Annotated[
        bool, typer.Option("--peek", help="Do not take messages: they stay in the inbox and count as seen.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document per line.")] = False,
) -> None:
    """Take messages as they come, and print them. Ctrl-C stops it.

    Messages that already wait come first. A message with a scope is taken only if the scope matches --match or, without
    it, the git remote of the current folder. Other messages with a scope stay in the inbox.

    With --exec, the command runs in a shell. It gets the message as JSON on stdin, and TIELINE_ID, TIELINE_FROM,
    TIELINE_TO, TIELINE_BODY, TIELINE_PRIORITY, TIELINE_SCOPE and TIELINE_THREAD in its environment.
    Write "$TIELINE_BODY" in the command, with the quotes: then the shell does not run the text of a message as code.

    A command with a template ({{id}}, {{from}}, {{to}}, {{body}}, {{priority}}, {{scope}} or {{thread}}) runs without a
    shell. Each template is replaced by that part of the message, which stays within one argument. Shell syntax is
    refused in such a command. So are templates as the value of an option (-c {{body}}), programs that start another
    program (env, timeout, sudo), and programs known to run their arguments as code (sh, make). That list cannot be
    complete: use templates only with programs that take text. If a message begins with a dash, the command does not run
    and the message stays unread: write -- before the template if the program understands it.

    A message is taken before its command runs, so no other watcher handles it. If the command fails, a warning is
    printed: with a hub, the message stays in 'tieline history'; without one, it stays unread and the command runs
    again, up to five times. Commands run one after the other.
    """
    from tieline.cli.context import Context
    from tieline.cli.reaction import Reaction

    reaction = None if command is None else Reaction(command)
    options = WatchOptions(reaction, Context(match), urgent_only=urgent_only, peek=peek, json=json)
    mailbox = link.mailbox()
    if mailbox is not None:
        await mailbox.watch(options)
        return
    await Watcher(link, options).run()


def _say_prefixes() -> None:
    """Add the environment variables' prefixes of the protocols to the help text of `watch`."""
    others = " and ".join(f"{prefix}…" for extension in extensions() for prefix in extension.prefixes)
    said, place = f" (and the same as\n    {others}). Write", ".\n    Write"
    if others:
        watch.__doc__ = (watch.__doc__ or "").replace(place, said)


_say_prefixes()


@dataclass(frozen=True)
class WatchOptions:
    """The options of `tieline watch`: the command to run, and the conditions for taking a message."""

    reaction: "Reaction | None"
    """Command to run for each message; `None` to print the message."""
    context: "Context"
    urgent_only: bool
    peek: bool
    json: bool

    def passes_over(self, message: "Message") -> bool:
        """Return true if `tieline watch` must leave a message unread. There are three reasons for this.

        The message is not urgent, and `urgent_only` is set. Or the message has another scope. Or the command of
        `--exec` must not run for it. In the last case, print a warning.
        """
        if self.urgent_only and message.priority is not Priority.URGENT:
            return True
        if not self.context.takes(message.scope):
            return True
        objection = self.reaction.objection(message) if self.reaction else None
        if objection:
            warn(f"The command is not run for {short_message(message)}, which stays unread: {objection}.")
        return objection is not None


class Watcher:
    """Takes the messages of one member's inbox for `tieline watch`. It reconnects after restarts of the hub."""

    def __init__(self, link: Link, options: WatchOptions) -> None:
        from tieline.wire.native.arrivals import DeliveredKeys

        self._link = link
        self._options = options
        # Deliveries that were handled: the hub offers all unsettled deliveries again to a new session.
        self._given = DeliveredKeys()
        # A claim that the hub did not answer before it went away, and the session of the claim.
        self._unsure: tuple[Delivery | Item, str] | None = None

    async def run(self) -> None:
        """Take messages as they come, and print them or run the command of `--exec`, until the user interrupts."""
        from tieline.cli.reconnection import is_passing, reopen
        from tieline.client import HubError
        from tieline.wire.native.arrivals import arrivals

        client = await self._link.open_member(receive=True, window=_WINDOW)
        while True:
            try:
                await self._resolve(client)
                async for delivery in arrivals(client, self._given):
                    await self._deal_with(client, delivery)
                    self._given.add(delivery.key)
            except HubError as error:
                if not is_passing(error):
                    raise
            finally:
                await client.close()
            client = await reopen(self._link, receive=True, window=_WINDOW)

    async def _deal_with(self, client: "Client", delivery: "Delivery | Item") -> None:
        message = delivery.message
        if self._options.passes_over(message):
            return
        if self._options.peek:
            await self._handle(client, delivery)
            client.see(delivery, evidence="watch")
            return
        assert client.welcome is not None, "an open session was welcomed"
        self._unsure = (delivery, client.welcome.session)
        taken = await self._claim(client, message.id)
        self._unsure = None
        if taken is not None:
            await self._handle(client, taken)

    async def _claim(self, client: "Client", message_id: str) -> "Item | None":
        """Claim a message, and return its delivery. Return `None` if another watcher was first.

        If the user interrupts during the claim, a claimed message is still printed or named in a warning, because no
        other watcher gets it.
        """
        import asyncio

        claiming = asyncio.ensure_future(client.claim(message_id))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            await asyncio.wait((claiming,), timeout=_ANSWER_SECONDS)
            taken = None if not claiming.done() or claiming.exception() else claiming.result()
            if taken is not None and self._options.reaction is None:
                self._print(taken)
            elif taken is not None:
                shown = short_message(taken.message)
                warn(f"Interrupted before the command could run for {shown}, which stays in 'tieline history'.")
            raise

    async def _resolve(self, client: "Client") -> None:
        """Find out if the last claim got its message, in case the hub stopped before it answered.

        The receipts of the message say it. If the claim got the message, handle the message.
        """
        if self._unsure is None:
            return
        delivery, session = self._unsure
        steps = [step for receipt in await client.receipts(delivery.message.id) for step in receipt.steps]
        self._unsure = None
        if any(step.state == "acked" and step.session == session for step in steps):
            self._given.add(delivery.key)
            await self._handle(client, delivery)

    async def _handle(self, client: "Client", delivery: "Delivery | Item") -> None:
        message = delivery.message
        if self._options.reaction is not None:
            code = await self._options.reaction.run(message, self._link.environment(speaker_of(client)))
            if code:
                warn(f"The command ended with {code} for {short_message(message)}, which stays in 'tieline history'.")
        else:
            self._print(delivery)

    def _print(self, delivery: "Delivery | Item") -> None:
        if self._options.json:
            from tieline.cli.documents import Arrived

            print_json(Arrived(delivery.key, delivery.seq, delivery.message))
        else:
            print_message(delivery.message)
