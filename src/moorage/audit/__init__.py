"""The audit: what must hold between servers, ports, addresses, bindings, claims, operations and hosts.

It trusts none of the code that keeps these promises: it reads the tables by name in SQL of its own, and imports
nothing of the domains. One snapshot of the database is read, so that a cloud at work is audited as it stands; what
takes several transactions by design (a server under way, a host's next report) is left alone until it has settled.

``audit(database)`` gives a Report, ``render(report)`` the lines that ``moorage audit`` prints.
"""

from moorage.audit.model import Finding, Invariant, Report
from moorage.audit.render import render
from moorage.audit.run import INVARIANTS, audit, audit_within

__all__ = ["INVARIANTS", "Finding", "Invariant", "Report", "audit", "audit_within", "render"]
