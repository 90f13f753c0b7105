"""Fault injection: named points in the engine at which a test makes it fail or die.

Points: ``before`` a step's effect, ``effect`` after it and before its record, ``recorded`` after the commit.
"""

from typing import Protocol


class Crash(BaseException):
    """The conductor is dead at this point: nothing after it runs, nothing is written."""


class Faults(Protocol):
    """What the engine asks at each point; the product's answer is to do nothing."""

    def at(self, point: str, kind: str, step: str, direction: str) -> None:
        """Raise to make the step fail (any Exception) or the conductor die (Crash)."""
        ...


class NoFaults:
    """Outside of tests."""

    def at(self, point: str, kind: str, step: str, direction: str) -> None:
        """Nothing happens."""
