"""Placement as the rest of the cloud uses it: in process, without HTTP."""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from moorage.placement.batches import ClaimQueue
from moorage.placement.candidates import Search
from moorage.placement.capacity import Capacity, capacity
from moorage.placement.config import Settings
from moorage.placement.errors import CapacityExceeded, NoInventory
from moorage.placement.explain import Explainer, Explanation
from moorage.placement.following import Follower
from moorage.placement.hosts import PHYSNET_PREFIX, Alignment, HostStates, host_table
from moorage.placement.index import Index
from moorage.placement.ledger import Ledger
from moorage.placement.matching import Shape
from moorage.placement.model import ConsumerWrite, Inventory
from moorage.placement.names import RESOURCE_CLASSES, TRAITS, normalised
from moorage.placement.query import Candidate, Query, RequestGroup
from moorage.placement.writes import require_classes
from moorage.scheduling import Plan, Refusal, Request, plan
from moorage.store.database import Database, Tx
from moorage.store.errors import SerializationConflict
from moorage.store.signals import Signals

_CHILDREN = uuid.UUID("2f4f1a3c-52a7-4a0b-8f5e-6c0b1de2d7a1")
"""Namespace of the ids of child providers: the same child always gets the same id."""

REFRESH_SECONDS = 300.0
KNOWN_NAMES = 10_000
WRITE_ATTEMPTS = 6


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a server went and why; without a host, `plan` and `refused` say why not."""

    plan: Plan
    host: str | None
    candidate: Candidate | None
    refused: tuple[Refusal, ...]


class PlacementService:
    """The ledger, this process's index, and the decisions made from both.

    `start` loads the index; run `follower.run()` as a task to keep it up to date.
    """

    def __init__(
        self, database: Database, signals: Signals | None = None, *, settings: Settings | None = None
    ) -> None:
        self.settings = settings = settings or Settings()
        self.database = database
        self.index = Index()
        self.ledger = Ledger(self.index)
        self.follower = Follower(database, self.index, signals, settings.index_interval)
        self.claims = ClaimQueue(database, self.index.apply_used)
        self._alignment: Alignment | None = None
        self._reported: dict[str, tuple[float, object]] = {}

    async def start(self) -> None:
        """Load the index."""
        await self.follower.catch_up()

    def align(self, states: HostStates) -> Alignment:
        """Match the caller's hosts with providers; cheap while neither side changes its shape."""
        columns = self.index.columns
        known = self._alignment
        if known is None or known.states is not states or not known.holds(columns):
            known = self._alignment = Alignment.of(columns, states)
        return known

    def plan(self, request: Request, states: HostStates, seed: int, shape: Shape | None = None) -> Plan:
        """Decide where a request may go, from what this process knows now. No I/O.

        `shape` is that of its query, where ports have groups.
        """
        return plan(request, host_table(self.align(states), request, shape), seed)

    async def place(
        self,
        tx: Tx,
        *,
        request: Request,
        states: HostStates,
        seed: int,
        consumer: str,
        project_id: str,
        user_id: str,
        groups: Iterable[RequestGroup] = (),
        consumer_type: str = "INSTANCE",
    ) -> Placed:
        """Plan, then claim on the best host that the ledger agrees to. `groups` are those of ports.

        Nothing is awaited between the plan and its first claim, so servers placed at once see each other's
        claims in the ranking. Hosts that the ledger refused (the index was behind) are told in `refused`; when
        none is left, the index catches up and everything is tried once more.
        """
        query = query_of(request, groups)
        refused: list[Refusal] = []
        for attempt in range(2):
            if attempt:
                await self.follower.catch_up()
            search = self.index.search(query)
            decision = self.plan(request, states, seed, search.shape if len(query.groups) > 1 else None)
            for host in decision.best():
                if search.columns is not self.index.columns:  # the index has started over
                    search = self.index.search(query)
                candidate = _first(search, host)
                if isinstance(candidate, Refusal):
                    refused.append(candidate)
                    continue
                try:
                    await self.ledger.claim(
                        tx,
                        consumer=consumer,
                        project_id=project_id,
                        user_id=user_id,
                        consumer_type=consumer_type,
                        allocations=candidate.allocations,
                    )
                except (CapacityExceeded, NoInventory) as error:
                    refused.append(_lost(host, error))
                    continue
                return Placed(plan=decision, host=host, candidate=candidate, refused=tuple(refused))
        return Placed(plan=decision, host=None, candidate=None, refused=tuple(refused))

    def candidates(self, query: Query, limit: int | None = None) -> list[Candidate]:
        """Return candidates from what this process knows now, never more than the configured maximum."""
        most = self.settings.max_allocation_candidates
        if limit is None or 0 <= most < limit:
            limit = most if most >= 0 else sys.maxsize
        draw = np.random.default_rng() if self.settings.randomize_allocation_candidates else None
        return self.index.search(query).candidates(
            limit, breadth_first=self.settings.breadth_first, draw=draw
        )

    def explain(self, query: Query, limit: int) -> Explanation:
        """Explain a query from what this process knows now; at most `limit` roots one by one."""
        return Explainer(self.index.search(query)).explain(limit)

    def capacity(self, query: Query) -> Capacity:
        """Count how many more of a query's shape fit, from what this process knows now."""
        return capacity(self.index.search(query))

    async def require_names(self, classes: Iterable[str], traits: Iterable[str]) -> None:
        """Raise UnknownNames for resource classes and traits that do not exist; the index must be fresh."""
        known = self.index.known_names
        classes = set(classes) - RESOURCE_CLASSES.standard - known
        traits = set(traits) - TRAITS.standard - known
        if classes or traits:
            async with self.database.read() as tx:
                await RESOURCE_CLASSES.require(tx, classes, "Invalid resource class in resources parameter")
                await TRAITS.require(tx, traits)
            if len(known) > KNOWN_NAMES:
                known.clear()
            known |= classes | traits

    async def write(self, writes: Sequence[ConsumerWrite]) -> None:
        """Replace what consumers hold, all or none, in a transaction of its own.

        By far the most frequent write, a new consumer's, is tried together with others that come at the same time;
        what was not granted there is decided alone. Written again when PostgreSQL broke a deadlock: provider
        generations are not the caller's business here. Raises what `writes.write_allocations` does, UnknownNames.
        """
        if len(writes) == 1 and writes[0].is_new and await self.claims.claim(writes[0]):
            return
        for attempt in range(WRITE_ATTEMPTS):
            try:
                async with self.database.transaction() as tx:
                    await require_classes(tx, writes)
                    await self.ledger.write(tx, writes)
            except SerializationConflict:
                if attempt + 1 == WRITE_ATTEMPTS:
                    raise
                await asyncio.sleep(0)
            else:
                return

    async def report_host(
        self,
        tx: Tx,
        *,
        host_name: str,
        provider_uuid: str,
        inventory: Mapping[str, Inventory],
        traits: Iterable[str] = (),
        physical_networks: Iterable[str] = (),
    ) -> bool:
        """Take over what an agent reports; writes only what differs, and returns whether anything did.

        Physical networks become traits CUSTOM_PHYSNET_* of a child provider `<host>:physnets`. A report that
        repeats this process's last committed one costs no statement, but every few minutes the ledger is compared
        again, should somebody else have written there.
        """
        networks = sorted({normalised(name, PHYSNET_PREFIX) for name in physical_networks})
        report = (host_name, provider_uuid, dict(inventory), sorted(set(traits)), networks)
        known = self._reported.get(host_name)
        if known is not None and known[1] == report and time.monotonic() - known[0] < REFRESH_SECONDS:
            return False
        before = tx.statements
        await self._write_report(tx, host_name, provider_uuid, inventory, report[3], networks)
        tx.on_commit(lambda: self._reported.update({host_name: (time.monotonic(), report)}))
        return tx.statements > before

    async def _write_report(
        self,
        tx: Tx,
        host_name: str,
        provider_uuid: str,
        inventory: Mapping[str, Inventory],
        traits: list[str],
        networks: list[str],
    ) -> None:
        found = await self.ledger.ensure_provider(tx, uuid=provider_uuid, name=host_name)
        if found.name != host_name:
            await self.ledger.rename_provider(tx, provider_uuid, host_name)
        await self.ledger.set_inventory(tx, provider_uuid, inventory)
        await self.ledger.set_traits(tx, provider_uuid, traits)
        child = str(uuid.uuid5(_CHILDREN, f"{provider_uuid}:physnets"))
        await self.ledger.ensure_provider(tx, uuid=child, name=f"{host_name}:physnets", parent=provider_uuid)
        await self.ledger.set_traits(tx, child, networks)


def _first(search: Search, host: str) -> Candidate | Refusal:
    """How a host would serve the query now, or why it would not."""
    tree = search.columns.tree_of_name.get(host)
    candidate = None if tree is None else search.first_in(tree)
    if candidate is not None:
        return candidate
    reason = "not_decided" if tree in search.undecided else "no_combination"
    return Refusal(host=host, check="combination", reason=reason)


def _lost(host: str, error: CapacityExceeded | NoInventory) -> Refusal:
    return Refusal(
        host=host,
        check="claim",
        reason="lost",
        subject=error.resource_class,
        needed=error.details.get("needed"),
        available=error.details.get("available"),
    )


def query_of(request: Request, groups: Iterable[RequestGroup] = ()) -> Query:
    """Return the query that finds a request's allocations; `groups` are those of its ports."""
    plain = RequestGroup(resources=request.resources)
    return Query(groups=(plain, *groups))
