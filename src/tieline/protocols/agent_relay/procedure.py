"""A procedure: several commands to the hub that one frame needs before its answer, written as one generator.

A procedure yields commands, gets the reply to each, and returns the answer: a payload, a refusal, or nothing. If the
hub refuses a command, the procedure ends, and the refusal is the answer. `connection` runs one procedure at a time, and
reads no further frame meanwhile.
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
