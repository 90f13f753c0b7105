"""Choosing a host: request + snapshot of hosts -> checks -> ranking -> plan.

Pure: nothing here does I/O, reads a clock or holds state, so that a decision can be replayed from
its request, its host table and its seed.
"""

from moorage.scheduling.hosts import Amounts, HostRow, HostTable
from moorage.scheduling.plan import Plan, PlanRecord, Ranked, Refusal, plan, summary
from moorage.scheduling.request import Request

__all__ = [
    "Amounts",
    "HostRow",
    "HostTable",
    "Plan",
    "PlanRecord",
    "Ranked",
    "Refusal",
    "Request",
    "plan",
    "summary",
]
