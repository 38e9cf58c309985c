"""A procedure: several commands to the hub that one frame needs before its answer, written as one generator.

It yields commands, gets the reply to each, and returns the answer: a payload, a refusal, or nothing. A command that
the hub refuses ends it, and the refusal is the answer. `connection` runs one at a time and reads no further meanwhile.
"""

from collections.abc import Generator
from typing import Any, TypeVar

from tieline.contract.command import Command
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Reply

Payload = dict[str, Any]

_Found = TypeVar("_Found")

Steps = Generator[Command, Reply, _Found]
"""A part of a procedure."""

Procedure = Steps[Payload | Refusal | None]
