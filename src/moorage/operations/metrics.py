"""Operations as Prometheus counts them, each process what it did itself: since it started, and lost with it.

A definition's functions are measured, so that the engine need not be concerned with steps. What has ended is counted
when it is committed: nobody reads the rows of what ended long ago. What is open is in the database (``waits``).
"""

import time
from collections.abc import Iterable
from datetime import datetime
from functools import wraps
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from moorage.core.clock import utcnow
from moorage.core.metrics import Durations
from moorage.operations.definition import Definition, Function, StepDefinition
from moorage.operations.model import FINISHED, UNDO, Operation


class OperationMetrics:
    """In ``registry``. A histogram's count says how many there were: ``moorage_operation_duration_seconds_count``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._steps = Durations(
            registry,
            "moorage_step_duration_seconds",
            "Time that a step, or its undo, took in this process.",
            ("kind", "step", "direction"),
        )
        self._hosts = Durations(
            registry,
            "moorage_step_answer_seconds",
            "Time from a command to a host, of a step or its undo, to what this process made of its answer.",
            ("kind", "step", "direction", "outcome"),
            shortest=0.01,
            longest=1000.0,
        )
        self._ended = Durations(
            registry,
            "moorage_operation_duration_seconds",
            "Time from an operation's order to its end, of those that this process ended.",
            ("kind", "outcome"),
            shortest=0.01,
            longest=5000.0,
        )

    def measured(self, definitions: Iterable[Definition]) -> list[Definition]:
        """The same definitions; their steps are counted, those that fail too. All there can be is shown from now on."""
        found = list(definitions)
        for each in found:
            for outcome in FINISHED:
                self._ended.of(each.kind, outcome)
        return [
            msgspec.structs.replace(each, steps=tuple(self._step(each.kind, step) for step in each.steps))
            for each in found
        ]

    def ended(self, op: Operation) -> None:
        """Count one that has ended here."""
        self._ended.of(op.kind, op.state).observe(max(0.0, (utcnow() - op.created_at).total_seconds()))

    def answered(self, op: Operation) -> None:
        """Count the host's answer in its inbox."""
        sent, inbox = op.data.get("_sent_at"), op.inbox
        if sent is None or inbox is None:  # release 0.1 did not note when it asked
            return
        seconds = (utcnow() - datetime.fromisoformat(sent)).total_seconds()
        way = "undo" if op.direction == UNDO else "run"
        self._hosts.of(op.kind, op.step, way, inbox["outcome"]).observe(max(0.0, seconds))

    def _step(self, kind: str, step: StepDefinition) -> StepDefinition:
        run = self._function(kind, step.name, "run", step.run)
        undo = None if step.undo is None else self._function(kind, step.name, "undo", step.undo)
        return msgspec.structs.replace(step, run=run, undo=undo)

    def _function(self, kind: str, step: str, direction: str, function: Function) -> Function:
        seconds = self._steps.of(kind, step, direction)

        @wraps(function)
        async def measured(found: Any) -> Any:
            began = time.perf_counter()
            try:
                return await function(found)
            finally:
                seconds.observe(time.perf_counter() - began)

        return measured
