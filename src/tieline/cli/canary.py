"""Canaries: the test messages of `connect` and of `doctor --canary`, with the names of their senders.

Used by: these two commands, and `history`, which leaves canaries out. A message counts as a canary only if its whole
text and the name of its sender are those of a canary. So a member that takes such a name cannot keep other texts out of
the history. An answer is recognised by its text and its recipient.
"""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tieline.client import Message

CONNECT_SENDER = re.compile(r"connect-canary-([0-9]+)-[0-9a-f]+")
"""Name of the temporary member that sends the message of `connect`. It contains the id of the process."""
CONNECT_TEXT = "tieline connect tries this connection. There is nothing to do."
CONNECT_ANSWER = "canary"

DOCTOR_TEXT = "tieline doctor asks whether you can be reached. There is nothing to do."
_DOCTOR_SENDER = re.compile(r"doctor-[0-9a-f]{8}")


def is_canary(message: "Message") -> bool:
    """Return true if a message is a test message to a member, or an answer to a test message of `connect`."""
    if message.title or message.data or message.attachments:
        return False
    if message.body == CONNECT_ANSWER:
        return CONNECT_SENDER.fullmatch(message.target.removeprefix("@")) is not None
    sender = {CONNECT_TEXT: CONNECT_SENDER, DOCTOR_TEXT: _DOCTOR_SENDER}.get(message.body)
    return sender is not None and sender.fullmatch(message.sender) is not None
