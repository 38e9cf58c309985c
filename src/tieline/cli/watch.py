"""`tieline watch`: prints messages as they come, or runs a command for each.

Above: a person, or a script that reacts. Below: a session with a hub, renewed when the hub restarts; or a mailbox
without a hub. A message is claimed before it is handled, so that exactly one of several watchers handles it, once.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tieline.cli.extension import extensions
from tieline.cli.inbox import MatchOption
from tieline.cli.output import print_json, print_message, warn
from tieline.cli.session import Link, speaker_of, talks_anywhere
from tieline.contract.message import Priority

if TYPE_CHECKING:
    from tieline.cli.context import Context
    from tieline.cli.reaction import Reaction
    from tieline.client import Client, Delivery, Item, Message

_WINDOW = 1024
"""Window of unsettled deliveries. Deliveries that are skipped stay unsettled and keep their place in it."""

_ANSWER_SECONDS = 1.0
"""Timeout for the answer to a claim after an interrupt."""


@talks_anywhere
async def watch(
    link: Link,
    command: Annotated[
        str | None,
        typer.Option("--exec", metavar="CMD", help="Run this for each message instead of printing it; see above."),
    ] = None,
    urgent_only: Annotated[bool, typer.Option("--urgent-only", help="Leave what is not urgent in the inbox.")] = False,
    match: MatchOption = None,
    peek: Annotated[
        bool, typer.Option("--peek", help="Take nothing: messages stay in the inbox, and count as seen.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON document a line.")] = False,
) -> None:
    """Take messages as they come, and print them; Ctrl-C ends it.

    What waits already comes first. Without --match you are where the current folder's git remote is, if it has one;
    messages of another scope are left.

    With --exec the command runs in the shell with the message as JSON on its stdin and TIELINE_ID, TIELINE_FROM,
    TIELINE_TO, TIELINE_BODY, TIELINE_PRIORITY, TIELINE_SCOPE and TIELINE_THREAD in its environment.
    Write "$TIELINE_BODY" in it, with the quotes: a shell does not read what a variable holds as code.

    A command with {{id}}, {{from}}, {{to}}, {{body}}, {{priority}}, {{scope}} or {{thread}} is started without a shell:
    each stands for its part of the message, within one word. What needs a shell is refused then. So are a template as
    the value of an option (-c {{body}}), programs that start another one (env, timeout, sudo), and those that are known
    to read words as code (sh, make). No list of them is whole: use templates only with programs that take text. For a
    message that begins with a dash the command is not run, and the message stays unread: write -- before the template
    where the program knows that.

    A message is taken before its command runs, so that no other watcher runs one for it. If the command fails, a
    warning says so: with a hub the message stays in 'tieline history'; without one it stays unread, and the command is
    run again, up to five times. Commands run one after the other.
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
    """Add the protocols' variables to the help text."""
    others = " and ".join(f"{prefix}…" for extension in extensions() for prefix in extension.prefixes)
    said, place = f" (and the same as\n    {others}). Write", ".\n    Write"
    if others:
        watch.__doc__ = (watch.__doc__ or "").replace(place, said)


_say_prefixes()


@dataclass(frozen=True)
class WatchOptions:
    """The options of one watch."""

    reaction: "Reaction | None"
    """Command to run for each message; `None` to print the message."""
    context: "Context"
    urgent_only: bool
    peek: bool
    json: bool

    def passes_over(self, message: "Message") -> bool:
        """True if a message is left unread. If the command refuses the message, print a warning."""
        if self.urgent_only and message.priority is not Priority.URGENT:
            return True
        if not self.context.takes(message.scope):
            return True
        objection = self.reaction.objection(message) if self.reaction else None
        if objection:
            warn(f"The command is not run for {message.id}, which stays unread: {objection}.")
        return objection is not None


class Watcher:
    """One watch over a member's inbox, through any number of sessions."""

    def __init__(self, link: Link, options: WatchOptions) -> None:
        from tieline.agents.arrivals import Given

        self._link = link
        self._options = options
        # Deliveries that were handled: the hub offers all unsettled deliveries again to a new session.
        self._given = Given()
        # A claim that the hub did not answer before it went away, and the session of the claim.
        self._unsure: tuple[Delivery | Item, str] | None = None

    async def run(self) -> None:
        """Watch until interrupted."""
        from tieline.agents.arrivals import arrivals
        from tieline.cli.reconnection import is_passing, reopen
        from tieline.client import HubError

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
        """Claim a message. After an interrupt, still report a message that was taken: no other watcher will."""
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
                warn(f"Interrupted before the command could run for {message_id}, which stays in 'tieline history'.")
            raise

    async def _resolve(self, client: "Client") -> None:
        """Resolve a claim that was not answered. If the receipts show it as ours, handle the message."""
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
                warn(f"The command ended with {code} for {message.id}, which stays in 'tieline history'.")
        else:
            self._print(delivery)

    def _print(self, delivery: "Delivery | Item") -> None:
        if self._options.json:
            print_json({"key": delivery.key, "seq": delivery.seq, "message": delivery.message})
        else:
            print_message(delivery.message)
