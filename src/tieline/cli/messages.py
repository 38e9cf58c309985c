"""Messages: sending, receipts, and history.

Above: the command line. Below: a session with a hub, or a mailbox without one.
"""

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import (
    local_time,
    neutral_line,
    print_json,
    print_ladders,
    print_messages,
    say,
    without_framing,
)
from tieline.cli.session import JsonOption, Link, talks, talks_anywhere
from tieline.contract.delivery import HELD
from tieline.contract.identifiers import parse_member_name
from tieline.contract.message import Level, Priority
from tieline.contract.refusal import Refusal

if TYPE_CHECKING:
    from tieline.client import Accepted, Client, ReceiptView

_RUNGS = ("pending", "offered", "seen", "acked")
"""The ladder that a delivery moves up; `expired` and `dead` are ends beside it."""

_RETRY_SECONDS = 10.0
"""Timeout of a retry: a restarting hub is back by then, and a script should learn of one that is not."""


class WaitFor(StrEnum):
    """State that a message must reach before `send` returns."""

    SEEN = "seen"
    ACKED = "acked"


@talks_anywhere
async def send(  # noqa: PLR0913 - one parameter an option
    link: Link,
    *,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="@member, #channel, * or a member's name.", show_default=False)
    ],
    body: Annotated[
        list[str],
        typer.Argument(
            metavar="BODY", help="What to say; - reads stdin, without its last line end.", show_default=False
        ),
    ],
    urgent: Annotated[bool, typer.Option("--urgent", help="Ask for the recipient to be interrupted.")] = False,
    scope: Annotated[str | None, typer.Option(metavar="S", help="Only for a session in this context.")] = None,
    thread: Annotated[str | None, typer.Option(metavar="ID", help="The conversation it belongs to.")] = None,
    reply_to: Annotated[str | None, typer.Option(metavar="ID", help="The message it answers.")] = None,
    ref: Annotated[list[str] | None, typer.Option(metavar="R", help="What it is about: a link, a path…")] = None,
    title: Annotated[str | None, typer.Option(metavar="T", help="A headline.")] = None,
    level: Annotated[Level, typer.Option(help="How serious it is.")] = Level.INFO,
    data: Annotated[str | None, typer.Option(metavar="JSON", help="A JSON object to carry along.")] = None,
    ttl: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.001, help="Expire for whoever has not taken it by then.")
    ] = None,
    supersedes: Annotated[
        str | None, typer.Option(metavar="ID", help="Take the place of your earlier message, where it is unhandled.")
    ] = None,
    wait_for: Annotated[WaitFor | None, typer.Option(help="Wait until every recipient came this far.")] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.001, help="Wait at most this long (exit code 5).")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Say something; done once it is durable.

    With --wait-for, done once every recipient came that far; exit code 1 when one expired or was removed before, and 3
    when the message is held, because nobody knows for how long: it is kept, and comes later.
    Several words are one message. Where no hub is configured it goes into the spool of an agent on this machine.
    """
    if timeout is not None and wait_for is None:
        raise Failure(Exit.USAGE, "--timeout says how long to --wait-for something", "add --wait-for acked, or seen")
    parts: dict[str, Any] = {
        "data": _parse_data(data),
        "title": title,
        "level": level,
        "priority": Priority.URGENT if urgent else Priority.NORMAL,
        "scope": scope,
        "thread": thread,
        "reply_to": reply_to,
        "refs": tuple(ref or ()),
        "ttl_ms": None if ttl is None else max(1, round(ttl * 1000)),
        "supersedes": supersedes,
    }
    text = _read_stdin() if body == ["-"] else " ".join(body)
    mailbox = link.mailbox()
    if mailbox is not None:
        mailbox.send(target, text, {**parts, "wait_for": wait_for}, json=json)
        return
    client = await link.open_member()
    try:
        client, accepted = await _deliver(link, client, full_target(target), text, parts)
        if not json:
            many = "recipient" if accepted.recipients == 1 else "recipients"
            say(f"{accepted.id}  accepted for {accepted.recipients} {many}")
            if accepted.held:
                say(f"  {neutral_line(accepted.held)}")
        if wait_for is None:
            if json:
                print_json(without_framing(accepted))
            return
        wait = Wait(link, accepted, wait_for, quiet=json)
        client = await wait.until_reached(client, timeout)
    finally:
        await client.close()


def full_target(text: str) -> str:
    """Return a target in the hub's notation. A bare name that can be a member's becomes `@name`."""
    return text if isinstance(parse_member_name(text), Refusal) else f"@{text}"


def _read_stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise Failure(Exit.USAGE, f"what came from stdin is not UTF-8 text: {error}") from error


def _parse_data(text: str | None) -> dict[str, Any] | None:
    import msgspec

    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise Failure(
            Exit.USAGE, f"--data must be a JSON object: {error}", """for example --data '{"a": 1}'"""
        ) from error


async def _deliver(
    link: Link, client: "Client", target: str, body: str, parts: dict[str, Any]
) -> tuple["Client", "Accepted"]:
    """Send a message. If the hub goes away before it answers, send again: one wire id is accepted only once."""
    import asyncio
    import secrets

    from tieline.cli.reconnection import reopen
    from tieline.client import Disconnected

    wire_id = secrets.token_hex(16)
    try:
        return client, await client.send(target, body, wire_id=wire_id, **parts)
    except Disconnected as error:
        lost = error
    try:
        async with asyncio.timeout(_RETRY_SECONDS):
            client = await reopen(link)
            return client, await client.send(target, body, wire_id=wire_id, **parts)
    except (TimeoutError, Disconnected):
        message = f"the hub went away before it answered ({lost}): the message may or may not have been accepted"
        raise Failure(Exit.UNREACHABLE, message, "'tieline history' tells, once the hub is back") from lost


class Wait:
    """Follows a message until every recipient has reached a state."""

    def __init__(self, link: Link, accepted: "Accepted", wait_for: WaitFor, *, quiet: bool) -> None:
        self._link = link
        self._accepted = accepted
        self._wait_for = wait_for
        self._quiet = quiet
        # Current state of each recipient.
        self._states: dict[str, str] = {}
        # Current way of each recipient, if known.
        self._ways: dict[str, str] = {}
        # Reason why the message is held for a recipient; empty if it is not held.
        self._held = ""

    async def until_reached(self, client: "Client", timeout: float | None) -> "Client":
        """Follow until all recipients have reached the state, also through restarts of the hub.

        Return the session that is in use at the end.
        """
        import asyncio

        try:
            async with asyncio.timeout(timeout):
                client = await self._follow(client)
        except TimeoutError as error:
            raise self._failed(Exit.TIMED_OUT, f"after {timeout:g} s it is not {self._wait_for} by all") from error
        finally:
            # The message was accepted in any case, so a script gets its id and receipts.
            if self._quiet:
                print_json({**without_framing(self._accepted), "receipts": await self._receipts(client)})
        if self._held:
            hint = f"it is kept; 'tieline receipts {self._accepted.id}' shows it"
            raise Failure(Exit.REFUSED, self._held, hint, word="held")
        lost = [name for name, state in self._states.items() if state not in _RUNGS]
        if lost:
            raise self._failed(Exit.FAILED, f"it can no longer be {self._wait_for} by {', '.join(lost)}")
        return client

    async def _receipts(self, client: "Client") -> "tuple[ReceiptView, ...]":
        from tieline.client import HubError

        try:
            return await client.receipts(self._accepted.id)
        except HubError:
            return ()

    async def _follow(self, client: "Client") -> "Client":
        from tieline.cli.reconnection import is_passing, reopen
        from tieline.client import HubError

        while True:
            try:
                for receipt in await client.follow(self._accepted.id, self._wait_for.value):
                    self._advanced(receipt)
                if not self._waiting():
                    return client
                async for step in client.progress():
                    self._stepped(step.member, step.state, step.at_ms, step.way)
                    if not self._waiting():
                        return client
            except HubError as error:
                if not is_passing(error):
                    raise
                client = await reopen(self._link)

    def _waiting(self) -> bool:
        goal = _RUNGS.index(self._wait_for.value)
        return not self._held and any(state in _RUNGS and _RUNGS.index(state) < goal for state in self._states.values())

    def _advanced(self, receipt: "ReceiptView") -> None:
        """Apply the steps of a receipt. Skip steps that were printed before a reconnection."""
        self._ways[receipt.member] = receipt.way
        # A message that is only slowed comes soon, so it does not count as held.
        self._held = self._held or (receipt.held if receipt.held.startswith(HELD) else "")
        for step in receipt.steps:
            known = self._states.get(receipt.member)
            if known is None or (known in _RUNGS and step.state not in _RUNGS[: _RUNGS.index(known) + 1]):
                self._stepped(receipt.member, step.state, step.at_ms)

    def _stepped(self, member: str, state: str, at_ms: int, way: str = "") -> None:
        self._states[member] = state
        if way:
            self._ways[member] = way
        if not self._quiet:
            by = f", by {way} now" if way else ""
            say(f"  {local_time(at_ms, exact=True)}  {neutral_line(member)}  {state}{by}")

    def _failed(self, code: Exit, sentence: str) -> Failure:
        standing = ", ".join(
            f"{member} is at '{state}'{f', by {way}' if (way := self._ways.get(member)) else ''}"
            for member, state in sorted(self._states.items())
        )
        hint = f"'tieline receipts {self._accepted.id}' shows how it goes on"
        return Failure(code, f"{sentence}: {standing}" if standing else sentence, hint)


@talks
async def receipts(
    link: Link,
    id: Annotated[str, typer.Argument(metavar="ID", help="As 'send' printed it.", show_default=False)],
    json: JsonOption = False,
) -> None:
    """Show what became of a message.

    For each recipient how far it came, when, through which protocol, and by what evidence.
    """
    async with await link.open() as client:
        found = await client.receipts(id)
    if json:
        print_json(found)
    else:
        print_ladders(found)


@talks
async def history(
    link: Link,
    peer: Annotated[
        str | None, typer.Argument(metavar="PEER", help="Only with this member, or in this #channel.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most so many, the newest.")] = 50,
    json: JsonOption = False,
) -> None:
    """Show what was said.

    Oldest first for people, newest first in --json.
    """
    async with await link.open() as client:
        found = await client.history(peer.removeprefix("@") if peer else None, limit=limit)
    print_messages(found, json=json, none="Nothing was said yet.")
