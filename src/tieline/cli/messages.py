"""The commands for messages: sending, receipts, and history.

Used by: the command line. Uses: a session with a hub; without a hub, a mailbox (messages in a folder).
"""

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tieline.cli.completion import complete_message, complete_own_message, complete_target, complete_thread
from tieline.cli.failure import Exit, Failure
from tieline.cli.names import check_names
from tieline.cli.output import (
    local_time,
    neutral_line,
    print_json,
    print_ladders,
    print_messages,
    say,
    warn,
)
from tieline.cli.session import JsonOption, Link, speaker_of, talks, talks_anywhere
from tieline.cli.short_ids import (
    find_message,
    find_message_id,
    find_reference,
    find_target,
    find_thread,
    short_message,
    short_target,
)
from tieline.contract.delivery import HELD
from tieline.contract.identifiers import parse_member_name
from tieline.contract.message import Level, Priority
from tieline.contract.refusal import Code, Refusal

if TYPE_CHECKING:
    from tieline.client import Accepted, Client, Message, ReceiptView

_RUNGS = ("pending", "offered", "seen", "acked")
"""The states that a delivery reaches one after the other. The states `expired` and `dead` are not in this order."""

_REPLIED = "reply"
"""Evidence that a member has seen and handled a message: the member answered it by the command `reply`."""

_RETRY_SECONDS = 10.0
"""Seconds for which `send` tries to reach a hub that does not answer any more. A restarting hub needs less."""


class WaitFor(StrEnum):
    """State that a message must reach before `send` returns."""

    SEEN = "seen"
    ACKED = "acked"


BodyArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="BODY", help="Text of the message; - reads stdin, without its last line end.", show_default=False
    ),
]
UrgentOption = Annotated[bool, typer.Option("--urgent", help="Ask to interrupt the recipient.")]
WaitForOption = Annotated[WaitFor | None, typer.Option(help="Wait until every recipient has reached this state.")]
TimeoutOption = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=0.001, help="Longest wait (exit code 5). Default: no limit."),
]

AllOption = Annotated[bool, typer.Option("--all", help="Messages of all members. It needs the key in the hub's home.")]


class Goal:
    """The last options of a command that sends a message: state to wait for, timeout, and form of the output.

    Raise `Failure` if there is a timeout and no state.
    """

    def __init__(self, state: WaitFor | None, timeout: float | None, *, json: bool) -> None:
        if timeout is not None and state is None:
            raise Failure(Exit.USAGE, "--timeout needs --wait-for", "add --wait-for acked or --wait-for seen")
        self.state = state
        self.timeout = timeout
        self.json = json


@talks_anywhere
async def send(  # noqa: PLR0913 - one parameter an option
    link: Link,
    *,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="@member, #channel, * or a member's name.",
            show_default=False,
            autocompletion=complete_target,
        ),
    ],
    body: BodyArgument,
    urgent: UrgentOption = False,
    scope: Annotated[
        str | None, typer.Option(metavar="S", help="Only for sessions in this context, e.g. a git remote.")
    ] = None,
    thread: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Thread that the message belongs to.", autocompletion=complete_thread),
    ] = None,
    reply_to: Annotated[
        str | None, typer.Option(metavar="ID", help="Message that this one answers.", autocompletion=complete_message)
    ] = None,
    ref: Annotated[
        list[str] | None, typer.Option(metavar="R", help="Reference: a link, a path…; may be given several times.")
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="T", help="Title of the message.")] = None,
    level: Annotated[Level, typer.Option(help="Severity.")] = Level.INFO,
    data: Annotated[str | None, typer.Option(metavar="JSON", help="JSON object to send with the message.")] = None,
    ttl: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0.001, help="Expire for recipients that have not taken it by then."),
    ] = None,
    supersedes: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Replace your earlier message for recipients that have not handled it.",
            autocompletion=complete_own_message,
        ),
    ] = None,
    wait_for: WaitForOption = None,
    timeout: TimeoutOption = None,
    json: JsonOption = False,
) -> None:
    """Send a message. Several words are one message. The command returns when the message is durable.

    With --wait-for, it returns when every recipient has reached that state. Exit code 1 if the message expired or a
    recipient was removed before that; 3 if the message is held: it is kept and delivered later. On the hub's machine, a
    new name in --as becomes a member. Without a hub, the message goes into the spool of an agent on this machine.
    """
    goal = Goal(wait_for, timeout, json=json)
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
    text = _text(body)
    mailbox = link.mailbox()
    if mailbox is not None:
        mailbox.send(target, text, {**parts, "wait_for": wait_for}, json=json)
        return
    await _say_it(link, target, text, parts, goal)


@talks
async def reply(
    link: Link,
    *,
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="Number of the message to answer, or its id.",
            show_default=False,
            autocompletion=complete_message,
        ),
    ],
    body: BodyArgument,
    urgent: UrgentOption = False,
    wait_for: WaitForOption = None,
    timeout: TimeoutOption = None,
    json: JsonOption = False,
) -> None:
    """Answer a message, in its thread. If the message waits in your inbox, it is acknowledged.

    The answer to a message in a channel or about an objective goes there. Any other answer goes to the sender, or to
    the recipient if you sent the message yourself.
    """
    goal = Goal(wait_for, timeout, json=json)
    text = _text(body)
    async with await link.open_member() as client:
        message = await find_message(client, id)
        mine = message.sender == speaker_of(client)
    target = message.target if mine or message.target.startswith(("#", "obj:")) else f"@{message.sender}"
    parts = {
        "priority": Priority.URGENT if urgent else Priority.NORMAL,
        "thread": message.thread,
        "reply_to": message.id,
    }
    await _say_it(link, target, text, parts, goal, answers=True)


async def _say_it(
    link: Link, target: str, text: str, parts: dict[str, Any], goal: "Goal", *, answers: bool = False
) -> None:
    """Send a message through the hub, print the hub's answer, and wait as long as `goal` says.

    `parts` are the optional fields of the message. With `answers`, acknowledge the message that this one answers.
    """
    json = goal.json
    client = await link.open_member(make=True)
    try:
        for name in ("reply_to", "supersedes"):
            if parts.get(name):
                parts[name] = await find_reference(client, parts[name])
        if parts["thread"]:
            parts["thread"] = await find_thread(client, parts["thread"])
        whole = await find_target(client, full_target(target))
        client, accepted = await _deliver(link, client, whole, text, parts)
        if answers:
            from tieline.protocols.mcp.agent_session import acknowledge_answered

            await acknowledge_answered(client, (parts["reply_to"],), named=_REPLIED, answered=_REPLIED)
        if not json:
            many = "recipient" if accepted.recipients == 1 else "recipients"
            say(f"{short_message(accepted)}  accepted for {accepted.recipients} {many}")
            if accepted.held:
                say(f"  {neutral_line(accepted.held)}")
        if goal.state is None:
            if json:
                from tieline.cli.documents import Sent, fill

                print_json(fill(Sent, accepted))
            return
        wait = Wait(link, accepted, goal.state, quiet=json)
        client = await wait.until_reached(client, goal.timeout)
    finally:
        await client.close()


def full_target(text: str) -> str:
    """Return a target in the hub's notation. A plain text that can be a member's name becomes `@name`."""
    return text if isinstance(parse_member_name(text), Refusal) else f"@{text}"


def _text(words: list[str]) -> str:
    return _read_stdin() if words == ["-"] else " ".join(words)


def _read_stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise Failure(Exit.USAGE, f"stdin is not UTF-8 text: {error}") from error


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
    """Send a message. Return the session that was used last, and the hub's answer.

    `parts` are the optional fields of the message. If the hub stops before it answers, send the message again. The hub
    accepts a message with the same wire id only once.
    """
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
        raise Failure(
            Exit.UNREACHABLE, message, "when the hub is back, 'tieline history' shows it if it was accepted"
        ) from lost


class Wait:
    """Waits until every recipient of a sent message has reached the state that `send --wait-for` names."""

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
        """Wait until all recipients have reached the state, also through restarts of the hub.

        Return the session that is in use at the end. Raise `Failure` after `timeout` seconds, if the message is held,
        or if a recipient cannot reach the state any more.
        """
        import asyncio

        try:
            async with asyncio.timeout(timeout):
                client = await self._follow(client)
        except TimeoutError as error:
            raise self._failed(Exit.TIMED_OUT, f"not {self._wait_for} by all recipients after {timeout:g} s") from error
        finally:
            # The message was accepted in any case, so a script gets its id and receipts.
            if self._quiet:
                from tieline.cli.documents import Sent, fill

                print_json(fill(Sent, self._accepted, receipts=await self._receipts(client)))
        if self._held:
            hint = f"it is kept; 'tieline receipts {short_message(self._accepted)}' shows it"
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
        """Print the states in a receipt that were not printed yet.

        After a reconnection, a receipt also has older states.
        """
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
        hint = f"'tieline receipts {short_message(self._accepted)}' shows the current state"
        return Failure(code, f"{sentence}: {standing}" if standing else sentence, hint)


@talks
async def receipts(
    link: Link,
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="Number of the message, or its id.", show_default=False, autocompletion=complete_message
        ),
    ],
    json: JsonOption = False,
) -> None:
    """Show the delivery state of a message, for each recipient.

    Each line has a state that the delivery reached, the time, the protocol, and the evidence.
    """
    async with await link.or_stored().open() as client:
        try:
            found = await client.receipts(await find_message_id(client, id))
        except Failure as failure:
            if failure.word == Code.UNKNOWN_MESSAGE:
                await _refuse_of_others(link, id)
            raise
    if json:
        print_json(found)
    else:
        print_ladders(found)


async def _refuse_of_others(link: Link, id: str) -> None:
    """Raise `Failure` if a message is between other members than the stored one.

    It names them, for a person who may act as each of them. Else do nothing.
    """
    if not link.may_see_all():
        return
    async with await link.open() as operator:
        try:
            message = await find_message(operator, id)
        except Failure:
            return
    me, between = link.or_stored().member, f"{message.sender} and {short_target(message.target)}"
    sentence = f"message {short_message(message)} is between {between}, and not of {me}"
    raise Failure(Exit.REFUSED, sentence, f"add --as {message.sender}", word=Code.UNKNOWN_MESSAGE.value)


@talks
async def history(
    link: Link,
    peer: Annotated[
        str | None,
        typer.Argument(
            metavar="PEER", help="Only messages with this member, or in this #channel.", autocompletion=complete_target
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, help="Maximum number of messages; the newest are shown.")
    ] = 50,
    canaries: Annotated[
        bool, typer.Option("--canaries", help="Show the test messages of 'connect' and 'doctor --canary' too.")
    ] = False,
    everybody: AllOption = False,
    json: JsonOption = False,
) -> None:
    """Show earlier messages.

    The oldest comes first; with --json, the newest. It marks no message as seen.
    """
    async with await (link.open_all() if everybody else link.or_stored().open()) as client:
        place = None if peer is None else await find_target(client, full_target(peer))
        found = await _newest(client, place, limit, canaries=canaries)
        # Messages with a member that was removed are still found.
        if place is not None and not found:
            await check_names(client, place)
    print_messages(found, json=json, none="No messages yet.")
    if not everybody:
        say_whose(link, "history", json=json)


def say_whose(link: Link, command: str, *, json: bool) -> None:
    """Print on stderr that only the messages of the stored member were shown, if the person may see all of them."""
    if not json and link.may_see_all():
        warn(neutral_line(f"tieline: only messages of {link.or_stored().member}; 'tieline {command} --all' shows all"))


async def _newest(client: "Client", place: str | None, limit: int, *, canaries: bool) -> "tuple[Message, ...]":
    """Return the newest messages, at most `limit`. With `place`, only messages with this member or in this channel.

    Without `canaries`, test messages are left out.
    """
    from tieline.cli.canary import is_canary

    found: list[Message] = []
    before: int | None = None
    while len(found) < limit:
        page = await client.history(place, before=before, limit=limit - len(found))
        kept = [message for message in page if canaries or not is_canary(message)]
        found += kept
        if len(kept) == len(page):
            break
        before = page[-1].offset
    return tuple(found)
