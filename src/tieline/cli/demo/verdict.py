"""The verdict: the claims of the demo, each with the expected and the found value.

Above: `script`, which makes claims, and `command`, which takes its exit code from the verdict.
"""

from typing import Any

from msgspec import Struct


class Check(Struct, frozen=True):
    """One claim."""

    claim: str
    expected: Any
    found: Any

    @property
    def holds(self) -> bool:
        """True if the found value is the expected value."""
        return bool(self.expected == self.found)


class Verdict:
    """All claims of one show, in the order in which they were made."""

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def check(self, claim: str, expected: Any, found: Any) -> bool:
        """Add a claim. Return true if it holds."""
        self.checks.append(Check(claim, expected, found))
        return self.checks[-1].holds

    @property
    def failed(self) -> list[Check]:
        """The claims that do not hold."""
        return [check for check in self.checks if not check.holds]

    @property
    def holds(self) -> bool:
        """True if there are claims, and all of them hold."""
        return bool(self.checks) and not self.failed
