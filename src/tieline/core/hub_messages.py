"""Messages from the hub itself in the inboxes of members.

The kind of a hub message is `event`, so the loop rule ignores it. Its sender is a name that no member can have. There
are few hub messages, because their causes are rare: a conversation is not paused often, and a delivery becomes dead
only once.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Any

from tieline.contract.identifiers import USERS, SessionId
from tieline.contract.keys import Ranges, count_keys, each_key
from tieline.contract.message import Content, Kind, Message
from tieline.contract.reach import Reach, Way
from tieline.contract.target import to_member
from tieline.core.batch import Batch
from tieline.core.directory import Account, Directory, Session
from tieline.core.holds import command
from tieline.core.outcome import Unseen
from tieline.core.posting import Posting

SPEAKER = "hub@notices"
"""The sender of hub messages. No member can have this name, because no member's name contains `@`."""

_PROTOCOL = "tieline"
_HUMANS_MAX = 16
"""Largest number of people who get a message about a loop. This many are enough, because one person is enough to
react."""
_LETTERS_MAX = 64
"""Largest number of messages to senders that one command causes, if it marks many deliveries as `dead`."""
_UNSEEN_MAX = 20
"""Largest number of unseen messages whose ids are in a hub message. The hub message also has the number of all
unseen messages."""
_NAMED_MAX = 5  # as many as fit a line of text; the rest is only counted


class HubMessages:
    """Sends messages to members in the name of the hub."""

    def __init__(self, batch: Batch, directory: Directory, posting: Posting) -> None:
        self._batch = batch
        self._store = batch.store
        self._limits = batch.limits
        self._directory = directory
        self._posting = posting

    def tell(self, accounts: Iterable[Account], title: str, body: str, data: dict[str, Any]) -> None:
        """Send each of these members the same hub message, with `data` for programs. Skip members with a full inbox."""
        session = Session(SessionId(""), _PROTOCOL, SPEAKER, account=None)
        for account in accounts:
            if account.inbox.backlog < self._limits.backlog_max:
                content = Content(target=to_member(account.name), body=body, title=title, kind=Kind.EVENT, data=data)
                self._posting.post(session, content, (account,))

    def people(self) -> dict[int, Account]:
        """Return at most `_HUMANS_MAX` human members, by number. Without humans, return members who manage members."""
        found = self._directory.subscribers(USERS) or self._directory.managers
        return dict(list(found.items())[:_HUMANS_MAX])

    def slowed(self, conversation: str, reason: str) -> None:
        """Tell people that the hub slows a conversation, because its agents answer each other often.

        The message has the commands that pause the conversation or lift its limits.
        """
        first, last = duration(self._limits.space_ms_min), duration(self._limits.space_ms_max)
        body = (
            f"{reason}. From now on its messages come {first} to {last} apart; nothing is lost. To stop it: "
            f"{command('pause', conversation)}. If it is work: {command('allow', conversation)}"
        )
        data = {"event": "slowed", "conversation": conversation}
        self.tell(self.people().values(), "conversation slowed", body, data)

    def held(self, conversation: str, reason: str, speakers: tuple[str, str], recipients: Collection[Account]) -> None:
        """Tell people and the agents involved that a conversation is held: its messages are not delivered yet.

        The message has the commands that release the conversation. `speakers` are the sender of the held message, and
        the sender of the message that caused it.
        """
        # In a channel, the other recipients take no part in the loop.
        told = {account.number: account for account in recipients if len(recipients) == 1}
        for account in map(self._directory.find, speakers):
            if account is not None:
                told[account.number] = account
        body = (
            f"{reason}. What agents say there is accepted and kept, and one message passes every "
            f"{duration(self._limits.pause_ms)}. To deliver all of it: {command('resume', conversation)}. "
            f"If it is work: {command('allow', conversation)}"
        )
        data = {"event": "held", "conversation": conversation, "by": speakers[0]}
        self.tell((told | self.people()).values(), "conversation held", body, data)

    def late_readers(self, sentences: Sequence[str]) -> None:
        """Tell people that old rows, which readers of the logs have not read, will soon be deleted.

        Each of `sentences` is sent as a message, and is also added to the warnings of the outcome.
        """
        for sentence in sentences:
            self._batch.outcome.warnings.append(sentence)
            self.tell(self.people().values(), "a reader of the log is late", sentence, {"event": "reader_late"})

    def unseen(self, account: Account, reach: Reach, ranges: Ranges) -> None:
        """Tell a human that a member has not seen some of its messages.

        `account` is the member, `reach` names the human, and `ranges` has the keys of the deliveries. Messages from the
        hub itself are left out.
        """
        found = self._messages(account, ranges, _UNSEEN_MAX)
        messages = [message for message in found if message.sender != SPEAKER]
        if not messages:
            return
        self._batch.outcome.unseen.extend(Unseen(account.name, message) for message in messages)
        human = self._directory.find(reach.notify) if reach.notify else None
        if human is None or human is account:
            return
        count = count_keys(ranges)
        named = "; ".join(f"{message.id} from {message.sender}" for message in messages[:_NAMED_MAX])
        more = f", and {count - len(messages[:_NAMED_MAX])} more" if count > len(messages[:_NAMED_MAX]) else ""
        ways = ", ".join(leg.way.value for leg in reach.legs if leg.way is not Way.NOTIFY)
        body = f"Nothing shows that {account.name} saw {count} message(s), by {ways or 'any way'}: {named}{more}."
        data = {"event": "unseen", "member": account.name, "messages": [message.id for message in messages]}
        self.tell((human,), "messages not seen", body, data)

    def first_messages(self, account: Account, ranges: Ranges) -> list[Message]:
        """Return the messages of the first deliveries in `ranges`, at most `_LETTERS_MAX` of them.

        A session is about to give up these deliveries. The senders of the messages will get a message.
        """
        return self._messages(account, ranges, _LETTERS_MAX)

    def _messages(self, account: Account, ranges: Ranges, most: int) -> list[Message]:
        """Return the stored messages of the first `most` deliveries in `ranges`."""
        offsets = [account.inbox.offset(key) for key in islice(each_key(ranges), most)]
        known = [offset for offset in offsets if offset is not None]
        found, _ = self._store.messages(known, self._limits.page_bytes_max)
        return [found[offset] for offset in known if offset in found]

    def given_up(self, account: Account, messages: Iterable[Message], reason: str) -> None:
        """Tell the senders of these messages, by a message, that the recipient `account` will never get them."""
        for message in messages:
            sender = self._directory.find(message.sender)
            if sender is not None:
                # A sender knows its message by the id that it gave, and receipts by the hub's.
                known = f"{message.wire_id} (here {message.id})" if message.wire_id else message.id
                body = f"{account.name} cannot be given your message {known}: {reason}"
                data = {"event": "dead", "message": message.id, "member": account.name, "reason": reason}
                data |= {"wire_id": message.wire_id} if message.wire_id else {}
                self.tell((sender,), "message not delivered", body, data)


def duration(ms: int) -> str:
    """Return a duration as text for people, in minutes or seconds."""
    return f"{ms / 60_000:g} min" if ms % 60_000 == 0 else f"{ms / 1000:g} s"
