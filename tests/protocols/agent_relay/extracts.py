"""Test helpers that run an extractor (finds messages) over the output of a program."""

import itertools
from collections.abc import Iterable

from tieline.protocols.agent_relay.extractor import Extractor
from tieline.wire.extractor import Extracted, Instruction, Output, Passed

FENCE = b"->relay:bob <<<\nhello>>>\n"
HELLO = Instruction(to="bob", body="hello")


def joined(outputs: Iterable[Output]) -> list[Output]:
    """Return the outputs with neighbouring passed bytes joined.

    So the size of the chunks does not change the result.
    """
    result: list[Output] = []
    for output in outputs:
        if isinstance(output, Passed) and result and isinstance(result[-1], Passed):
            result[-1] = Passed(result[-1].data + output.data)
        else:
            result.append(output)
    return result


def outputs_of(*chunks: bytes, extractor: Extractor | None = None) -> list[Output]:
    extractor = extractor or Extractor()
    outputs = [output for chunk in chunks for output in extractor.receive_data(chunk)]
    return joined(outputs + extractor.receive_eof())


def extract(*chunks: bytes) -> tuple[bytes, list[Instruction]]:
    """Run the extractor over chunks. Return the bytes for the terminal, and the messages to send."""
    outputs = outputs_of(*chunks)
    passed = b"".join(output.data for output in outputs if isinstance(output, Passed))
    return passed, [output.instruction for output in outputs if isinstance(output, Extracted)]


def split(stream: bytes, cuts: list[int]) -> list[bytes]:
    """Return a stream cut at the given places."""
    places = sorted({cut % (len(stream) + 1) for cut in cuts} | {0, len(stream)})
    return [stream[start:end] for start, end in itertools.pairwise(places)]


def is_unchanged(stream: bytes) -> bool:
    """Return true if a stream contains no message to send, and reaches the terminal unchanged."""
    return extract(stream) == (stream, [])
