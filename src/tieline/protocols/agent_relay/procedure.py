"""The type of a procedure: a generator that handles one frame with several commands to the hub, one after another.

A procedure yields commands, gets the reply to each, and returns the answer to the frame: a payload, a refusal, or
nothing. If the hub refuses a command, the procedure ends, and the answer is this refusal. `connection` runs one
procedure at a time, and reads no other frame while it runs.
"""

from collections.abc import Generator
from typing import Any, TypeVar

from tieline.contract.command import Command
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Reply

Payload = dict[str, Any]

_Found = TypeVar("_Found")

Steps = Generator[Command, Reply, _Found]
"""A part of a procedure: a generator that yields commands, gets their replies, and returns a value."""

Procedure = Steps[Payload | Refusal | None]
