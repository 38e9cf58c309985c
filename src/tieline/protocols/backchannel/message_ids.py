"""The ids of messages as backchannel's clients see them.

Above: the relay, the intake, the local inboxes. Below: `wire.prefix_ids`. `bch` shows the first eight characters of an
id, and takes the first message that begins with them. So a message of the hub has its prefix id here. A message that
came as a file keeps the id of the file, because its sender knows no other id and finds it in the `thread` of an answer.
"""

import threading
from collections import OrderedDict

from tieline.contract.identifiers import MessageId
from tieline.contract.message import Message
from tieline.wire.prefix_ids import from_prefix_id, is_hub_id, to_prefix_id

FILES = "spool"
"""Protocol name of the spool's sessions. A message with this protocol came as a file."""

_FILES_MAX = 10_000
"""Most files whose ids are remembered. An answer to an older one names the message by its prefix id."""


def file_id(message: Message) -> str:
    """Return the id of the file in which a message came: the part of its wire id before the `|`."""
    assert message.wire_id is not None, "what comes from the spool has the id of its file"
    return message.wire_id.partition("|")[0]


class MessageIds:
    """Translates between the hub's message ids and the ids on this wire. Threads may use it together.

    It remembers the newest messages that came as files since the start.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Wire ids by message id, the newest last; and message ids by wire id. The wire id of a message that came as a
        # file is the id of the file. For a later copy of the file, `|` and the name of its recipient follow.
        self._wire_ids: OrderedDict[str, str] = OrderedDict()
        self._messages: dict[str, str] = {}

    def note(self, message_id: str, wire_id: str) -> None:
        """Remember the ids of a message that came as a file. `wire_id` begins with the id of the file.

        An id that could name another message of the hub is not remembered.
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
        """Return the id by which clients of this wire know a message: the id of its file, or its prefix id.

        A prefix id is the hub's id with the random bits first, because clients show only the first eight characters.
        """
        if message.protocol != FILES or message.wire_id is None or is_made_here(file_id(message)):
            return to_prefix_id(message.id)
        if message.id not in self._wire_ids:
            self.note(message.id, message.wire_id)
        return file_id(message)

    def spell(self, text: str) -> str:
        """Translate one of the hub's message ids to the id that clients of this wire know.

        Text that is no id of the hub stays as it is.
        """
        return self._wire_ids.get(text, "").partition("|")[0] or to_prefix_id(text)

    def find(self, text: str, member: str) -> MessageId:
        """Translate an id that this member was given back to the hub's message id. Unknown text stays as it is."""
        known = self._messages.get(f"{text}|{member}") or self._messages.get(text)
        return MessageId(known or from_prefix_id(text))


def is_made_here(text: str) -> bool:
    """True if the hub may have made this id, as its own or in the form for this wire. Other programs make none such."""
    return is_hub_id(from_prefix_id(text))
