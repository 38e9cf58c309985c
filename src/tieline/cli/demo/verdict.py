"""The verdict: what the demo claims, what was expected of it and what was found.

Above: `script`, which claims, and `command`, whose exit code follows from it.
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
        """Whether what was found is what was expected."""
        return bool(self.expected == self.found)


class Verdict:
    """All claims of one show, in the order in which they were made."""

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def check(self, claim: str, expected: Any, found: Any) -> bool:
        """Make a claim; returns whether it holds."""
        self.checks.append(Check(claim, expected, found))
        return self.checks[-1].holds

    @property
    def failed(self) -> list[Check]:
        """The claims that do not hold."""
        return [check for check in self.checks if not check.holds]

    @property
    def holds(self) -> bool:
        """Whether something was claimed, and all of it holds."""
        return bool(self.checks) and not self.failed
