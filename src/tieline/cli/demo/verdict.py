"""The verdict: the statements of the demo about what happened, each with the expected and the found value.

Used by: `script`, which makes the statements, and `command`, which takes its exit code from the verdict.
"""

from typing import Any

from msgspec import Struct


class Check(Struct, frozen=True):
    """Result of one statement of the demo (`claim`): the expected and the found value."""

    claim: str
    expected: Any
    found: Any

    @property
    def holds(self) -> bool:
        """True if the found value is the expected value, so that the statement is true."""
        return bool(self.expected == self.found)


class Verdict:
    """All statements that were checked in one run of the demo, in their order."""

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def check(self, claim: str, expected: Any, found: Any) -> bool:
        """Add the statement `claim`. Return true if the statement is true, that is, if `found` equals `expected`."""
        self.checks.append(Check(claim, expected, found))
        return self.checks[-1].holds

    @property
    def failed(self) -> list[Check]:
        """The statements of the demo that are false."""
        return [check for check in self.checks if not check.holds]

    @property
    def holds(self) -> bool:
        """True if there are statements, and all of them are true."""
        return bool(self.checks) and not self.failed
