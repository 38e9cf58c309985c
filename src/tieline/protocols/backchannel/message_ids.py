"""The ids of messages as backchannel's clients see them.

Used by: the relay, the intake, the local inboxes. Uses: `wire.prefix_ids`. The client `bch` shows only the first eight
characters of an id, and finds a message by them. The hub's ids often have the same first characters. So clients see a
message of the hub under its prefix id, which has the random part of the id first. A message that came as a file keeps
the id of the file, because its sender knows only this id, and looks for it in the `thread` of an answer.
"""

import threading
from collections import OrderedDict

from tieline.contract.identifiers import MessageId
from tieline.contract.message import Message
from tieline.wire.prefix_ids import from_prefix_id, is_hub_id, to_prefix_id

FILES = "spool"
"""Name of the protocol in sessions of the spool. A message with this protocol came as a file."""

_FILES_MAX = 10_000
"""Largest number of files whose ids are remembered.

If a message answers an older file, the answer names the older message by its prefix id (the hub's id in another order).
"""


def file_id(message: Message) -> str:
    """Return the id of the file in which a message came: the part of its wire id before the `|`."""
    assert message.wire_id is not None, "what comes from the spool has the id of its file"
    return message.wire_id.partition("|")[0]


class MessageIds:
    """Translates between the hub's message ids and the ids that backchannel's clients see. It is safe for threads.

    It remembers the ids of the newest messages that came as files since the start.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Wire ids by message id, the newest last; and message ids by wire id. The wire id of a message that came as a
        # file is the id of the file. For a later copy of the file, `|` and the name of its recipient follow.
        self._wire_ids: OrderedDict[str, str] = OrderedDict()
        self._messages: dict[str, str] = {}

    def note(self, message_id: str, wire_id: str) -> None:
        """Remember the ids of a message that came as a file. `wire_id` begins with the id of the file.

        The ids are not remembered if the file has an id of the hub's own form, which could name another message.
        """
        if is_made_here(wire_id.partition("|")[0]):
            return
        with self._lock:
            self._wire_ids[message_id] = wire_id
            self._wire_ids.move_to_end(message_id)
            self._messages[wire_id] = message_id
            while len(self._wire_ids) > _FILES_MAX:
                _, oldest = self._wire_ids.popitem(last=False)
                self._messages.pop(oldest, None)

    def of(self, message: Message) -> str:
        """Return the id by which backchannel's clients know a message: the id of its file, if it came as a file.

        For other messages, return the prefix id: the hub's id with the random bits first, because clients show only the
        first eight characters.
        """
        if message.protocol != FILES or message.wire_id is None or is_made_here(file_id(message)):
            return to_prefix_id(message.id)
        if message.id not in self._wire_ids:
            self.note(message.id, message.wire_id)
        return file_id(message)

    def spell(self, text: str) -> str:
        """Translate a message id of the hub to the id that backchannel's clients know.

        Text that is not an id of the hub is returned unchanged.
        """
        return self._wire_ids.get(text, "").partition("|")[0] or to_prefix_id(text)

    def find(self, text: str, member: str) -> MessageId:
        """Return the hub's message id for an id (`text`) that this member knows. Return unknown text unchanged."""
        known = self._messages.get(f"{text}|{member}") or self._messages.get(text)
        return MessageId(known or from_prefix_id(text))


def is_made_here(text: str) -> bool:
    """True if the hub may have made this id, in its own form or as a prefix id (with the random part first).

    Other programs make no such ids.
    """
    return is_hub_id(from_prefix_id(text))
