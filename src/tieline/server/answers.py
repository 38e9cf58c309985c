"""Replies to commands that the broker handles in several steps: brings them back into the order of the commands.

Used by: the local hub, on both of its threads. Uses: items of its queue.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from tieline.contract.reply import Reply
from tieline.core.outcome import Outcome
from tieline.server.turns import Done, Item


class Answers:
    """Collects the replies of a list of commands that the broker handles in several steps. One callback gets all."""

    __slots__ = ("_done", "_left", "_parts")

    def __init__(self, count: int, done: Done | None) -> None:
        self._parts: list[Sequence[Reply]] = [()] * count
        self._left = count
        self._done = done

    def take(self, number: int, replies: Sequence[Reply]) -> None:
        """Store the replies of part `number`. After the last part, pass all replies to the callback."""
        self._parts[number] = replies
        self._left -= 1
        if not self._left and self._done is not None:
            self._done([reply for part in self._parts for reply in part])


def by_outcome(items: Sequence[Item], outcomes: Sequence[Outcome]) -> Iterator[tuple[Sequence[Item], Outcome]]:
    """Yield each outcome with the items that it answers. An item that several outcomes answer is split."""
    # Items without commands are answered by the first outcome.
    singles: list[Item] = [item for item in items if not item[0]]
    start, end = 0, len(singles)
    for commands, done in items:
        answers = Answers(len(commands), done)
        singles += [((command,), partial(answers.take, number)) for number, command in enumerate(commands)]
    for outcome in outcomes:
        end += len(outcome.replies)
        yield singles[start:end], outcome
        start = end
