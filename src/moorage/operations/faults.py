"""Fault injection: named points in the engine at which a test makes it fail, wait or die.

Points: ``before`` a step's effect, ``effect`` after it and before its record, ``recorded`` after the commit.
"""

from typing import Protocol

from moorage.operations.model import Operation


class Crash(BaseException):
    """The conductor is dead at this point: nothing after it runs, nothing is written."""


class Faults(Protocol):
    """What the engine asks at each point; the product's answer is to do nothing."""

    async def at(self, point: str, op: Operation, step: str) -> None:
        """Raise to make the step fail (any Exception) or the conductor die (Crash).

        ``op.direction`` tells whether the step is done or undone.
        """
        ...


class NoFaults:
    """Outside of tests."""

    async def at(self, point: str, op: Operation, step: str) -> None:
        """Nothing happens."""
