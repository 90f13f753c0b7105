"""The points of an operation at which a test strikes: of every step, and of a remote one twice.

A remote step is passed twice. The first time its command goes out: whatever strikes there takes back a row, and no host
has done anything. The second time the host has done it, and its answer is there: only then is there an effect without a
record. So each fault says which of the two it means, and has not struck where it met the other one.
"""

from typing import NamedTuple

from moorage.operations import Definition
from moorage.operations.model import FORWARD, Operation

POINTS = ("before", "effect", "recorded")


class Point(NamedTuple):
    """``answered``: the answer of the step's host is there."""

    step: str
    at: str
    direction: str = FORWARD
    answered: bool = False

    def __str__(self) -> str:
        return f"{self.direction}-{self.step}-{self.at}{'-answered' if self.answered else ''}"


def points(definition: Definition, *at: str, direction: str = FORWARD) -> list[Point]:
    """All of an operation, by default at each of ``POINTS``; backward those of steps that have an undo."""
    return [
        Point(step.name, each, direction, answered)
        for step in definition.steps
        if direction == FORWARD or step.undo is not None
        for answered in ((False, True) if step.kind == "remote" else (False,))
        for each in at or POINTS
    ]


class Passes:
    """Where operations are. What the engine has made a record of has used its answer up: that is remembered."""

    def __init__(self) -> None:
        self._answered: dict[tuple[str, int, str, str], bool] = {}

    def now(self, at: str, op: Operation, step: str) -> Point:
        """The point; to be asked at each, the first of each step included."""
        key = (op.id, op.fence, step, op.direction)
        if at == "before":
            self._answered[key] = op.inbox is not None
        return Point(step, at, op.direction, self._answered.get(key, False))
