"""Canaries: the test messages of `connect` and of `doctor --canary`, with the names of their senders.

Used by: these two commands, and `history`, which leaves canaries out. A message is a canary only if the name and the
whole text are those of a canary. So a member cannot keep another text out of the history by taking a canary's name.
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
    """Return true for a test message to a member, and for the answer to one."""
    if message.title or message.data or message.attachments:
        return False
    if message.body == CONNECT_ANSWER:
        return CONNECT_SENDER.fullmatch(message.target.removeprefix("@")) is not None
    sender = {CONNECT_TEXT: CONNECT_SENDER, DOCTOR_TEXT: _DOCTOR_SENDER}.get(message.body)
    return sender is not None and sender.fullmatch(message.sender) is not None
