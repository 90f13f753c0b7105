"""The decision: a ranking, and for every other host every check it fails.

A `Plan` keeps masks and the table it was made from; refusals are put into words only when asked for.
`Plan.record` is what is stored with a server: small, encodable, and enough to show it all later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from moorage.scheduling.checks import UNITS, Check, chain
from moorage.scheduling.findings import Finding, Reasons
from moorage.scheduling.hosts import HostTable, Mask
from moorage.scheduling.ranking import DEFAULT_WEIGHERS, FreeResource, Scores, rank
from moorage.scheduling.request import Request

RANKED = 100
"""Hosts of a ranking that are stored: a large cloud has thousands that would do."""
REFUSED = 100
"""Refused hosts that are stored with all that each fails: a large cloud has thousands that are full."""


class Ranked(msgspec.Struct, frozen=True):
    """A host that passes every check; a higher score is better. None where it is not shown: for owners."""

    host: str
    score: float | None


class Refusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One check that one host fails, with figures where the check compares any.

    `detail` (an operator's or a host's own words) and `available` are for administrators.
    """

    host: str
    check: str
    reason: str
    subject: str | None = None
    needed: int | None = None
    available: int | None = None
    detail: str | None = None


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many hosts fail one check for one reason; a host that fails several checks counts in each."""

    check: str
    reason: str
    subject: str | None = None
    hosts: int


class PlanRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A plan as stored and shown: how many hosts were considered, the best of the ranking, why others were refused.

    `suitable` is how many hosts passed; the ranking has at most `RANKED` of them. `refused` is how many did not;
    `refusals` has every failing check of at most `REFUSED` of them, those that fail the fewest, and `reasons` counts
    all. None in records of older versions, whose ranking and refusals are whole.
    """

    request: Request
    seed: int
    considered: int
    ranking: list[Ranked]
    refusals: list[Refusal]
    summary: str
    suitable: int | None = None
    refused: int | None = None
    reasons: list[Reason] | None = None

    def for_owner(self, alias: Callable[[str], str]) -> PlanRecord:
        """Return the record as the server's owner may see it.

        Hosts go by an alias (the project's own name for a host). What a host has left, which tells of other projects'
        servers, the scores made of that, and operators' remarks are taken out. The summary stays as it is in the
        server's fault: it says how much the nearest host falls short by, of no other host and not of which.
        """
        request = msgspec.structs.replace(
            self.request,
            excluded={alias(host): "refused" for host in self.request.excluded},
            together=None
            if self.request.together is None
            else tuple(alias(host) for host in self.request.together),
            apart=tuple(alias(host) for host in self.request.apart),
            drawn={alias(host): amount for host, amount in self.request.drawn.items()},
            requested_host=None
            if self.request.requested_host is None
            else alias(self.request.requested_host),
        )
        return PlanRecord(
            request=request,
            seed=0,
            considered=self.considered,
            ranking=[Ranked(alias(ranked.host), None) for ranked in self.ranking],
            refusals=[_redacted(refusal, alias) for refusal in self.refusals],
            summary=self.summary,
            suitable=self.suitable,
            refused=self.refused,
            reasons=None if self.reasons is None else [_redacted_sum(each, alias) for each in self.reasons],
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """A decision. `failing[i]` is the mask of hosts that `checks[i]` refused."""

    request: Request
    hosts: HostTable
    seed: int
    checks: tuple[Check, ...]
    failing: tuple[Mask, ...]
    order: Sequence[int]
    scores: Scores

    def best(self) -> Iterator[str]:
        """Yield the hosts that pass, best first."""
        return (self.hosts.names[position] for position in self.order)

    @property
    def ranking(self) -> list[Ranked]:
        """The hosts that pass, best first."""
        return self._ranked(len(self.order))

    def _ranked(self, most: int) -> list[Ranked]:
        names = self.hosts.names
        scores = np.round(self.scores[:most], 4).tolist()
        return [Ranked(names[i], score) for i, score in zip(self.order[:most], scores, strict=True)]

    @property
    def refusals(self) -> list[Refusal]:
        """Every failing check of every refused host, host by host."""
        return self._refusals(self._fails() > 0)

    def _fails(self) -> NDArray[np.int64]:
        """Return how many checks each host fails."""
        fails = np.zeros(len(self.hosts), dtype=np.int64)
        for mask in self.failing:
            fails += mask
        return fails

    def _refusals(self, among: Mask) -> list[Refusal]:
        found: list[tuple[int, Refusal]] = []
        for check, mask in zip(self.checks, self.failing, strict=True):
            for position in np.flatnonzero(mask & among):
                ((finding, _),) = check.reasons(self.hosts, position.reshape(1))
                found.append((int(position), _refusal(self.hosts.names[position], check, finding)))
        return [refusal for _, refusal in sorted(found, key=lambda pair: pair[0])]

    def _reasons(self) -> list[Reason]:
        counts: Counter[tuple[str, str, str | None]] = Counter()
        for check, mask in zip(self.checks, self.failing, strict=True):
            for finding, hosts in _reasons_of(check, self.hosts, mask):
                counts[check.name, finding.reason, finding.subject] += hosts
        return [
            Reason(check=check, reason=reason, subject=subject, hosts=hosts)
            for (check, reason, subject), hosts in counts.most_common()
        ]

    def record(self) -> PlanRecord:
        """Return the plan in the form that is stored with the server."""
        fails = self._fails()
        refused = np.flatnonzero(fails)
        nearest = np.zeros(len(self.hosts), dtype=np.bool_)
        nearest[refused[np.argsort(fails[refused], kind="stable")[:REFUSED]]] = True
        return PlanRecord(
            request=self.request,
            seed=self.seed,
            considered=len(self.hosts),
            ranking=self._ranked(RANKED),
            refusals=self._refusals(nearest),
            summary=summary(self),
            suitable=len(self.order),
            refused=len(refused),
            reasons=self._reasons(),
        )


def plan(
    request: Request,
    hosts: HostTable,
    seed: int,
    weighers: Sequence[FreeResource] = DEFAULT_WEIGHERS,
) -> Plan:
    """Decide where a request may go. The same arguments always give the same plan."""
    checks = chain(request, hosts.groups)
    passing = np.ones(len(hosts), dtype=np.bool_)
    failing = []
    for check in checks:
        mask = check.mask(hosts)
        failing.append(~mask)
        passing &= mask
    order, scores = rank(hosts, passing, seed, weighers, request.drawn)
    return Plan(request, hosts, seed, checks, tuple(failing), order.tolist(), scores)


def summary(decision: Plan) -> str:
    """Sum a plan up in a line: `4 hosts: 2 short of memory by 512 MB, 1 disabled, 1 down`.

    A host counts once (see `tally`). A shortage is the smallest one among the hosts it stands for: what would
    have to be freed for one of them to fit.
    """
    considered = len(decision.hosts)
    counts, shortages = _count(decision)
    if decision.order:
        counts["suitable"] = len(decision.order)
    if not counts:
        return "no hosts"
    hosts = f"{considered} host" + ("" if considered == 1 else "s")
    parts = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return f"{hosts}: " + ", ".join(f"{n} {short}{_by(shortages.get(short))}" for short, n in parts)


def tally(decision: Plan) -> Counter[str]:
    """Count the refused hosts by reason; a host counts once, for the first check of the chain that it fails."""
    return _count(decision)[0]


def _count(decision: Plan) -> tuple[Counter[str], dict[str, tuple[int, str]]]:
    counts: Counter[str] = Counter()
    shortages: dict[str, tuple[int, str]] = {}
    counted = np.zeros(len(decision.hosts), dtype=np.bool_)
    for check, mask in zip(decision.checks, decision.failing, strict=True):
        for finding, hosts in _reasons_of(check, decision.hosts, mask & ~counted):
            counts[finding.short] += hosts
            _note_shortage(shortages, finding)
        counted |= mask
    return counts, shortages


def _reasons_of(check: Check, hosts: HostTable, failing: Mask) -> Reasons:
    positions = np.flatnonzero(failing)
    return check.reasons(hosts, positions) if len(positions) else iter(())


def _note_shortage(shortages: dict[str, tuple[int, str]], finding: Finding) -> None:
    if finding.reason != "short" or finding.needed is None or finding.available is None:
        return
    amount = finding.needed - finding.available
    known = shortages.get(finding.short)
    if known is None or amount < known[0]:
        shortages[finding.short] = (amount, UNITS.get(finding.subject or "", ""))


def _by(shortage: tuple[int, str] | None) -> str:
    return "" if shortage is None else f" by {shortage[0]} {shortage[1]}".rstrip()


def _refusal(host: str, check: Check, finding: Finding) -> Refusal:
    return Refusal(
        host=host,
        check=check.name,
        reason=finding.reason,
        subject=finding.subject,
        needed=finding.needed,
        available=finding.available,
        detail=finding.private,
    )


def _redacted(refusal: Refusal, alias: Callable[[str], str]) -> Refusal:
    return msgspec.structs.replace(
        refusal, host=alias(refusal.host), subject=_subject(refusal, alias), available=None, detail=None
    )


def _redacted_sum(reason: Reason, alias: Callable[[str], str]) -> Reason:
    return msgspec.structs.replace(reason, subject=_subject(reason, alias))


def _subject(of: Refusal | Reason, alias: Callable[[str], str]) -> str | None:
    return alias(of.subject) if of.check == "requested_host" and of.subject is not None else of.subject
