"""How long steps take, as Prometheus counts it: a definition's functions are measured, the engine is not concerned.

What is measured is this process's own work in a step. How long hosts take is counted by their commands.
"""

import time
from collections.abc import Iterable
from functools import wraps
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Histogram

from moorage.operations.definition import Definition, Function, StepDefinition

_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class StepMetrics:
    """A histogram of steps by operation, step and direction (run, undo), in ``registry``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "moorage_step_duration_seconds",
            "Time that a step, or its undo, took in this process.",
            ("kind", "step", "direction"),
            buckets=_BUCKETS,
            registry=registry,
        )

    def measured(self, definitions: Iterable[Definition]) -> list[Definition]:
        """The same definitions; their steps are counted, those that fail too."""
        return [
            msgspec.structs.replace(each, steps=tuple(self._step(each.kind, step) for step in each.steps))
            for each in definitions
        ]

    def _step(self, kind: str, step: StepDefinition) -> StepDefinition:
        run = self._function(kind, step.name, "run", step.run)
        undo = None if step.undo is None else self._function(kind, step.name, "undo", step.undo)
        return msgspec.structs.replace(step, run=run, undo=undo)

    def _function(self, kind: str, step: str, direction: str, function: Function) -> Function:
        seconds = self._seconds.labels(kind, step, direction)

        @wraps(function)
        async def measured(found: Any) -> Any:
            began = time.perf_counter()
            try:
                return await function(found)
            finally:
                seconds.observe(time.perf_counter() - began)

        return measured
