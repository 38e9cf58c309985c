"""Content of messages in the hub's own protocol: reads a client's request `send`, and encodes messages for clients."""

import msgspec

from tieline.contract import lifecycle
from tieline.contract import message as m
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import parse_target
from tieline.wire.fidelity import Carriage, Field
from tieline.wire.native import frames as f
from tieline.wire.native.derived import view_message

_OWN_WORDS: dict[Field, str] = {field: f"`{field}`" for field in Field if field is not Field.OWN}
CARRIAGE = Carriage("tieline", says=_OWN_WORDS, carries=_OWN_WORDS, rest="")


def content_of(frame: f.Send) -> m.Content | Refusal:
    """Return the content of the message in a client's `send` frame. Return a refusal if the frame is not valid."""
    target = parse_target(frame.target)
    if isinstance(target, Refusal):
        return target
    if lifecycle.is_lifecycle(frame.kind, frame.target, frame.data):
        return Refusal(Code.INVALID_MESSAGE, "what happened to an objective is told by the hub alone")
    return frame.content(target)


def encode_message(message: m.Message) -> msgspec.Raw:
    """Return a message as JSON text, in the form in which clients of the hub's own protocol get it."""
    return msgspec.Raw(f.encode_struct(view_message(message)))
