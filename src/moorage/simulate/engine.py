"""The run: arrivals in the order of time, each decided as a conductor would, and departures in between.

The decision is the product's own: `scheduling.plan` over the table of `placement.hosts`, then the exact combination
by `placement.candidates`, then a claim. The claim alone is other: it is written into the index at once,
because there is no ledger that others could write to.
"""

from __future__ import annotations

import heapq
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from moorage.placement.candidates import Search
from moorage.placement.hosts import Alignment, HostStates, host_table
from moorage.placement.index import Index
from moorage.placement.matching import Shape
from moorage.placement.model import Allocations, UsedRow
from moorage.placement.query import Candidate, Query, RequestGroup
from moorage.scheduling import Request, plan, summary
from moorage.scheduling.company import Company, company
from moorage.scheduling.plan import Plan, tally
from moorage.scheduling.ranking import DEFAULT_WEIGHERS, FreeResource
from moorage.simulate.model import Arrival, Outcome, World

PACKING = tuple(FreeResource(weigher.resource_class, -weigher.weight) for weigher in DEFAULT_WEIGHERS)
"""Fills the fullest host first, where the default spreads."""


class Simulation:
    """One world that servers come to and leave. The same world, arrivals and seed give the same outcomes."""

    def __init__(
        self, world: World, *, seed: int = 0, weighers: Sequence[FreeResource] = DEFAULT_WEIGHERS
    ) -> None:
        self._seed = seed
        self._weighers = weighers
        self._index = Index()
        self._index.load(world.held())
        self._used = {
            (p.uuid, rc): [stock.used, 0] for p in world.providers for rc, stock in p.inventories.items()
        }
        self._racks = {host.name: host.rack or host.name for host in world.hosts}
        self._states = HostStates.of(
            (host.name, host.up, host.enabled, host.disabled_reason, host.zone) for host in world.hosts
        )
        self._alignment: Alignment | None = None
        self.capacity: Counter[str] = Counter()
        self.used: Counter[str] = Counter()
        for provider in world.providers:
            for name, stock in provider.inventories.items():
                self.capacity[name] += stock.capacity
                self.used[name] += stock.used
        self._held: dict[str, tuple[Arrival, str, Allocations]] = {}
        self._groups: dict[str, dict[str, Arrival]] = {}

    def run(self, arrivals: Iterable[Arrival]) -> Iterator[Outcome]:
        """Decide arrivals, which come in the order of `at`; what has ended by then has left before."""
        leaving: list[tuple[float, int, str]] = []
        for number, arrival in enumerate(arrivals):
            while leaving and leaving[0][0] <= arrival.at:
                self.remove(heapq.heappop(leaving)[2])
            outcome = self.place(arrival)
            if outcome.host is not None and arrival.lifetime is not None:
                heapq.heappush(leaving, (arrival.at + arrival.lifetime, number, arrival.id))
            yield outcome

    def place(self, arrival: Arrival) -> Outcome:
        """Decide one, and take what it needs."""
        began = time.perf_counter()
        request, query = self._request(arrival), _query(arrival)
        columns = self._index.columns
        if self._alignment is None or not self._alignment.holds(columns):
            self._alignment = Alignment.of(columns, self._states)
        alignment = self._alignment
        seed = zlib.crc32(f"{self._seed}:{arrival.id}".encode())
        shape = Shape(columns, query)
        search = Search(columns, query, shape)
        table = host_table(alignment, request, shape if arrival.parts else None)
        decision = plan(request, table, seed, self._weighers)
        for position in decision.order:
            candidate = search.first_in(int(alignment.trees[position]))
            if candidate is not None:
                host = decision.hosts.names[position]
                self._take(arrival, host, candidate)
                seconds = time.perf_counter() - began
                return Outcome(id=arrival.id, at=arrival.at, seconds=seconds, host=host)
        return self._refused(arrival, decision, time.perf_counter() - began)

    def remove(self, server: str) -> None:
        """A server leaves; what it had is free. Raises KeyError for one that is not there."""
        arrival, _, allocations = self._held.pop(server)
        if arrival.group is not None:
            del self._groups[arrival.group][server]
        self._add(allocations, -1)

    def _refused(self, arrival: Arrival, decision: Plan, seconds: float) -> Outcome:
        reasons = tally(decision)
        if decision.order:
            main = "without a combination of providers for all groups"
            reason = f"{summary(decision)}; no host has a combination of providers for all groups"
        else:
            main = max(reasons.items(), key=lambda item: (item[1], item[0]))[0] if reasons else "no hosts"
            reason = summary(decision)
        room = all(
            self.capacity[name] - self.used[name] >= amount for name, amount in arrival.totals().items()
        )
        return Outcome(id=arrival.id, at=arrival.at, seconds=seconds, reason=reason, main=main, room=room)

    def _request(self, arrival: Arrival) -> Request:
        asked = self._company(arrival)
        return Request(
            resources=arrival.resources,
            availability_zone=arrival.zone,
            physical_networks=tuple(arrival.physical_networks),
            required_traits=tuple(arrival.required),
            forbidden_traits=tuple(arrival.forbidden),
            together=asked.together,
            apart=asked.apart,
            drawn=asked.drawn,
        )

    def _company(self, arrival: Arrival) -> Company:
        """What the server's group asks for; racks are known here alone."""
        others = self._groups.get(arrival.group or "", {})
        if arrival.policy is None or not others:
            return Company()
        if arrival.policy != "fault-domain":
            return company(arrival.policy, Counter(self._held[server][1] for server in others))
        racks = {
            self._racks[self._held[server][1]]
            for server, other in others.items()
            if other.domain != arrival.domain
        }
        return Company(apart=tuple(name for name, rack in self._racks.items() if rack in racks))

    def _take(self, arrival: Arrival, host: str, candidate: Candidate) -> None:
        self._held[arrival.id] = (arrival, host, candidate.allocations)
        if arrival.group is not None:
            self._groups.setdefault(arrival.group, {})[arrival.id] = arrival
        self._add(candidate.allocations, 1)

    def _add(self, allocations: Allocations, sign: int) -> None:
        rows = []
        for provider, amounts in allocations.items():
            for name, amount in amounts.items():
                cell = self._used[provider, name]
                cell[0] += sign * amount
                cell[1] += 1
                self.used[name] += sign * amount
                rows.append(UsedRow(provider, name, cell[0], cell[1]))
        self._index.apply_used(rows)


def _query(arrival: Arrival) -> Query:
    plain = (RequestGroup(resources=arrival.resources),) if arrival.resources else ()
    parts = tuple(
        RequestGroup(
            suffix=str(number),
            resources=part.resources,
            required=tuple(frozenset((trait,)) for trait in part.required),
            forbidden=frozenset(part.forbidden),
        )
        for number, part in enumerate(arrival.parts, 1)
    )
    return Query(groups=(*plain, *parts), isolate=arrival.isolate)
