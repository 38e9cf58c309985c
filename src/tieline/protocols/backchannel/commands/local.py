"""Local mode: runs the commands without a hub, on a spool that any number of programs share, or through a relay.

Used by: the commands, which call this module if there is no hub. Uses: a postbox. Messages look the same as with a hub,
on the screen and in JSON. Only the facts that a hub adds are missing: keys, sequence numbers, offsets, receipts. The
sender's name comes from the file, and only file permissions protect it. So `verified` is false in JSON.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import local_time, neutral_line, print_brief, print_json, print_message, print_table, say, warn
from tieline.cli.short_ids import short_id
from tieline.contract.message import Priority
from tieline.contract.refusal import Code
from tieline.protocols.backchannel.commands.spool_location import speaker_without_hub

if TYPE_CHECKING:
    from msgspec import Struct

    from tieline.agents.hooks import Program
    from tieline.agents.unread import Asked
    from tieline.cli.context import Context
    from tieline.cli.session import Link
    from tieline.cli.watch import WatchOptions
    from tieline.client import Message as Shown
    from tieline.protocols.backchannel.codec import SpoolMessage
    from tieline.protocols.backchannel.commands.documents import LocalMember
    from tieline.protocols.backchannel.commands.postbox import Postbox, Taking
    from tieline.protocols.backchannel.record import AgentRecord

HOOK_HEADER = "[backchannel] {count} message(s) for {name}:"

_TRIES_MAX = 5
"""Largest number of times that the user's command is run for one message.

If the command fails each time, the message stays unread.
"""
_FAILURES_MAX = 10_000
"""Largest number of messages whose failed attempts are remembered."""
_PAUSE_SECONDS = 1.0
"""Seconds before the first retry of the user's command. Each further retry waits twice as long."""


@contextmanager
def _disk() -> Iterator[None]:
    """Turn a disk error in the `with` block into a `Failure`, so that the command prints one sentence about it."""
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise Failure(Exit.FAILED, f"{where}{error.strerror or error}") from error


# Messages as the hub shows them.


def shown(message: "SpoolMessage") -> "Shown":
    """Return a message of a spool in the form in which the command line shows messages of a hub."""
    from tieline.protocols.backchannel.codec import agent_of, is_channel, moment
    from tieline.wire.native.frames import Message as Form

    return Form(
        message.id,
        0,
        message.sender,
        message.to if is_channel(message.to) else f"@{agent_of(message.to)}",
        message.body,
        moment(message.ts) or 0,
        "backchannel",
        priority=Priority.URGENT if message.urgent else Priority.NORMAL,
        scope=message.scope,
        thread=message.thread,
        refs=message.refs,
        verified=False,
    )


def _document(message: "SpoolMessage", state: str) -> "Struct":
    from tieline.cli.documents import fill
    from tieline.protocols.backchannel.commands.documents import LocalItem, LocalMessage

    return LocalItem(state=state, message=fill(LocalMessage, shown(message)))


def _print(messages: "Sequence[SpoolMessage]") -> None:
    import msgspec

    for message in messages:
        # No sender is verified here, so a mark on every sender would say nothing.
        print_message(msgspec.structs.replace(shown(message), verified=True))


# The commands.


class LocalMailbox:
    """Runs the commands of one user without a hub.

    `postbox` is the place of the messages: a spool, or a relay (backchannel's HTTP server).
    """

    def __init__(self, link: "Link", postbox: "Postbox") -> None:
        self._link = link
        self.postbox = postbox

    def send(self, target: str, body: str, parts: dict[str, Any], *, json: bool) -> None:
        """Send a message to `target`. `parts` are further fields of the message.

        When this returns, the message is on the disk of the spool, or the relay (HTTP server) has accepted it.
        """
        from tieline.protocols.backchannel.codec import NORMAL, URGENT
        from tieline.protocols.backchannel.commands.failures import without_hub
        from tieline.protocols.backchannel.spool import SpoolDraft, SpoolRefused

        refuse_hub_parts(parts)
        if target == "*" or target.startswith("obj:"):
            raise Failure(Exit.REFUSED, f"{target} needs a hub: without one, write to @agent or #channel")
        draft = SpoolDraft(
            sender=speaker_without_hub(self._link),
            to=target,
            body=body,
            priority=URGENT if parts["priority"] is Priority.URGENT else NORMAL,
            scope=parts["scope"],
            thread=parts["thread"],
            refs=parts["refs"],
        )
        try:
            with _disk():
                message, recipients = self.postbox.send(draft)
        except SpoolRefused as error:
            if self._link.spool is None and error.refusal.code is Code.UNKNOWN_MEMBER:
                raise without_hub(error, self.postbox.where) from error
            raise
        if json:
            from tieline.cli.documents import OPTIONAL
            from tieline.protocols.backchannel.commands.documents import LocalSent

            print_json(LocalSent(message.id, OPTIONAL if recipients is None else recipients))
        elif recipients is None:
            say(f"{short_id(message.id)}  accepted")
        else:
            say(f"{short_id(message.id)}  accepted for {recipients} {'recipient' if recipients == 1 else 'recipients'}")
            say(neutral_line(f"  No hub is used here: it went into {self.postbox.where}."))

    def inbox(self, match: str | None, *, brief: bool, json: bool) -> None:
        """Print the waiting messages whose scope matches `match`. If `match` is `None`, print all waiting messages.

        A message with a scope is only for readers that work in this scope, such as a project.
        """
        from tieline.contract.scope import matches

        name = self._speak()
        self._say_no_hub(json=json)
        with _disk():
            messages = [each for each in self.postbox.inbox(name) if match is None or matches(each.scope, match)]
        if json:
            print_json([_document(message, "pending") for message in messages])
        elif not messages:
            say("Nothing waits.")
        elif brief:
            for message in messages:
                print_brief(shown(message))
        else:
            _print(messages)

    def take(self, id: str, *, keep: bool, json: bool) -> None:
        """Claim one message and print it. `id` is the message's id, or the first characters of the id.

        If `keep` is true, the message's file stays in `cur/`.
        """
        from tieline.cli.short_ids import complete

        name = self._speak()
        with _disk(), self.postbox.taking(name, keep=keep) as taking:
            whole = complete(id, [message.id for message in self.postbox.inbox(name)])
            message = taking.claim(whole)
            if message is None:
                raise Failure(Exit.REFUSED, f"cannot take {whole}: it was taken before, or it does not exist")
            taking.sync()
            if json:
                print_json(_document(message, "acked"))
            else:
                _print([message])
            # Finished only now: if the process is killed before the message is shown, the message is not lost.
            taking.finish(whole, keep=keep)

    def drain(self, context: "Context", *, hook: bool, json: bool) -> None:
        """Claim and print all messages whose scope matches `context`, such as the project in which the reader works.

        If `hook` is true, print the messages in the form for an agent.
        """
        name = self._speak()
        self._say_no_hub(json=json or hook)
        with _disk(), self.postbox.taking(name) as taking:
            self.postbox.recover(name)
            wanted = [message for message in self.postbox.inbox(name) if context.takes(message.scope)]
            taken = [message for message in wanted if taking.claim(message.id) is not None]
            taking.sync()
            if json:
                print_json([_document(message, "acked") for message in taken])
            elif taken and hook:
                from tieline.cli.hook_answer import print_framed

                say(HOOK_HEADER.format(count=len(taken), name=name))
                print_framed(map(shown, taken), name)
            elif taken:
                _print(taken)
            elif not hook:
                say("Nothing waits.")
            for message in taken:
                taking.finish(message.id)

    def show_unread(self, context: "Context", program: "Program", question: "Asked", tokens_max: int) -> None:
        """Print the waiting messages for an agent's hook (a command that the agent's program runs), and claim them.

        `question` is the hook's request. Only messages for `context` are printed. `tokens_max` limits the size of the
        answer. The messages are claimed, because a spool cannot mark messages as seen.
        """
        import time

        from tieline.agents import unread
        from tieline.cli.hook_answer import say_shown
        from tieline.wire.native.frames import Item

        name = self._speak()
        with _disk(), self.postbox.taking(name) as taking:
            self.postbox.recover(name)
            wanted = [message for message in self.postbox.inbox(name) if context.takes(message.scope)]
            items = [Item(place, place, "pending", shown(message)) for place, message in enumerate(wanted)]
            now_ms = time.time_ns() // 1_000_000
            answer = unread.show(items, member=name, now_ms=now_ms, tokens_max=tokens_max, taken=True)
            if not unread.may_speak(program, question, answer):
                return
            taken = [item for item in answer.items if taking.claim(item.message.id) is not None]
            taking.sync()
            if taken != list(answer.items):
                # Another reader took some of the messages first.
                answer = unread.show(taken, member=name, now_ms=now_ms, tokens_max=tokens_max, taken=True)
            say_shown(program, question, answer)
            for item in taken:
                taking.finish(item.message.id)

    async def watch(self, options: "WatchOptions") -> None:
        """Claim and print each new message, or run the user's command for the message.

        With `--peek`, claim no message.
        """
        await LocalWatch(self.postbox, self._speak(), options).run()

    def subscribe(self, channel: str) -> str:
        """Join a channel. Return the name of the agent that joined."""
        name = self._speak()
        with _disk():
            self.postbox.subscribe(name, channel)
        return name

    def unsubscribe(self, channel: str) -> str:
        """Leave a channel. Return the name of the agent that left."""
        name = self._speak()
        with _disk():
            self.postbox.unsubscribe(name, channel)
        return name

    def members(self, *, json: bool) -> None:
        """Print all agents, with the number of messages that wait for each agent."""
        self._say_no_hub(json=json)
        with _disk():
            rows = [(record, self.postbox.backlog(record.name)) for record in self.postbox.agents()]
        if json:
            print_json([_member_document(record, backlog) for record, backlog in rows])
            return
        cells = [
            (
                record.name,
                "–" if backlog is None else str(backlog),
                _seen(record),
                ", ".join(record.subscriptions),
            )
            for record, backlog in rows
        ]
        print_table(
            ("name", "waiting", "last seen", "channels"),
            cells,
            empty="No agents yet: each is registered by its first command.",
        )

    def channels(self, *, json: bool) -> None:
        """Print all channels and their subscribers."""
        self._say_no_hub(json=json)
        with _disk():
            records = self.postbox.agents()
        found = sorted({channel for record in records for channel in record.subscriptions})
        inside = {channel: [record.name for record in records if channel in record.subscriptions] for channel in found}
        if json:
            from tieline.protocols.backchannel.commands.documents import LocalChannel

            print_json([LocalChannel(name.removeprefix("#"), names) for name, names in inside.items()])
            return
        rows = [(name, ", ".join(names)) for name, names in inside.items()]
        print_table(("channel", "subscribers"), rows, empty="No channels yet: 'tieline sub CHANNEL' makes one.")

    def whoami(self, *, json: bool) -> None:
        """Print the name under which the user's commands act, and the spool or relay (HTTP server) that they use."""
        name = speaker_without_hub(self._link)
        if json:
            from tieline.protocols.backchannel.commands.documents import LocalSpeaker

            print_json(LocalSpeaker(name, name, self.postbox.where))
        else:
            say(neutral_line(f"{name}, through {self.postbox.where}"))

    def _say_no_hub(self, *, json: bool) -> None:
        """Print on stderr that no hub runs, because otherwise nothing shows that messages of a hub are not here.

        Print nothing if the user chose this place, or if a program reads the output (`json`, or a hook).
        """
        from tieline.protocols.backchannel.commands.postbox import SpoolPostbox
        from tieline.protocols.backchannel.identity import HOME_VARIABLE

        is_chosen = self._link.spool is not None or bool(os.environ.get(HOME_VARIABLE))
        if json or is_chosen or not isinstance(self.postbox, SpoolPostbox):
            return
        warn(neutral_line(f"No hub runs here: this is {self.postbox.where}. 'tieline serve' starts a hub."))

    def _speak(self) -> str:
        """Return the name under which this command acts. Register the name if it is new."""
        name = speaker_without_hub(self._link)
        with _disk():
            self.postbox.register(name)
        return name


def refuse_hub_parts(parts: dict[str, Any]) -> None:
    """Raise a `Failure` if an option of `send` needs a hub, so that the option is not ignored silently."""
    asked = [
        option
        for option, given in (
            ("--data", parts["data"] is not None),
            ("--title", parts["title"] is not None),
            ("--level", parts["level"] != "info"),
            ("--ttl", parts["ttl_ms"] is not None),
            ("--reply-to", parts["reply_to"] is not None),
            ("--supersedes", parts["supersedes"] is not None),
            ("--wait-for", parts["wait_for"] is not None),
        )
        if given
    ]
    if not asked:
        return
    hint = "leave it out, or start a hub with 'tieline serve'"
    if asked == ["--reply-to"]:
        hint = "--thread ID names the message that is answered; or start a hub with 'tieline serve'"
    raise Failure(Exit.REFUSED, f"{' and '.join(asked)} needs a hub, but there is none here", hint)


def _member_document(record: "AgentRecord", backlog: int | None) -> "LocalMember":
    from tieline.cli.documents import OPTIONAL
    from tieline.protocols.backchannel.codec import moment
    from tieline.protocols.backchannel.commands.documents import LocalMember

    return LocalMember(
        name=record.name,
        kind="agent",
        subscriptions=record.subscriptions,
        created_at_ms=moment(record.created_at),
        last_seen_ms=moment(record.last_seen),
        backlog=OPTIONAL if backlog is None else backlog,
    )


def _seen(record: "AgentRecord") -> str:
    from tieline.protocols.backchannel.codec import moment

    at_ms = moment(record.last_seen)
    return "never" if at_ms is None else local_time(at_ms)


# Watching.


class LocalWatch:
    """Implementation of `tieline watch` without a hub.

    It prints each new message of an agent, or runs the user's command for each message.
    """

    def __init__(self, postbox: "Postbox", name: str, options: "WatchOptions") -> None:
        self._postbox = postbox
        self._options = options
        self._name = name
        # Number of failed runs of the command, by message id.
        self._failures: dict[str, int] = {}

    async def run(self) -> None:
        """Claim each new message, and print it or run the user's command for it, until interrupted."""
        late = self._options.reaction is not None
        with _disk(), self._postbox.taking(self._name, late=late) as taking:
            self._postbox.recover(self._name)
            coming = self._postbox.arrivals(self._name)
            async for message in coming:
                given_up = self._failures.get(message.id, 0) >= _TRIES_MAX
                if given_up or self._options.passes_over(shown(message)):
                    continue
                if self._options.peek:
                    await self._handle(message)
                elif taking.claim(message.id) is not None:
                    taking.sync()
                    pause = await self._take(taking, message)
                    if pause is not None:
                        coming.again(message.id, pause)

    async def _take(self, taking: "Taking", message: "SpoolMessage") -> float | None:
        """Print a claimed message or run the user's command for it. If that fails, make the message unread again.

        Return the seconds to wait before a retry; `None` if there is no retry.
        """
        if await self._handle(message):
            taking.finish(message.id)
            self._failures.pop(message.id, None)
            return None
        taking.release(message.id)
        failures = self._failures[message.id] = self._failures.get(message.id, 0) + 1
        pause: float = _PAUSE_SECONDS * 2 ** (failures - 1)
        if failures < _TRIES_MAX:
            warn(f"{message.id} stays unread; the command runs for it again in {pause:g} s.")
            return pause
        # The message is remembered, so that two watchers do not retry it in turn for ever.
        if len(self._failures) > _FAILURES_MAX:
            del self._failures[next(iter(self._failures))]
        warn(f"{message.id} stays unread: the command failed for it {failures} times.")
        return None

    async def _handle(self, message: "SpoolMessage") -> bool:
        """Print a message, or run the user's command for it. Return false if the command failed."""
        if self._options.reaction is not None:
            environment = {**os.environ, **self._postbox.environment(self._name)}
            code = await self._options.reaction.run(shown(message), environment)
            if code:
                warn(f"The command ended with {code} for {message.id}.")
            return code == 0
        if self._options.json:
            from tieline.cli.documents import fill
            from tieline.protocols.backchannel.commands.documents import LocalArrival, LocalMessage

            print_json(LocalArrival(message=fill(LocalMessage, shown(message))))
        else:
            _print([message])
        return True
