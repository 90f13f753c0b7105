"""Placement as the rest of the cloud uses it: in process, without HTTP."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from moorage.placement.candidates import Candidate, Query, RequestGroup, Search
from moorage.placement.hosts import PHYSNET_PREFIX, Alignment, HostStates, host_table
from moorage.placement.index import Follower, Index
from moorage.placement.ledger import Ledger
from moorage.placement.model import Inventory
from moorage.placement.names import normalised
from moorage.scheduling import Plan, Request, plan
from moorage.store.database import Database, Tx
from moorage.store.signals import Signals

_CHILDREN = uuid.UUID("2f4f1a3c-52a7-4a0b-8f5e-6c0b1de2d7a1")
"""Namespace of the ids of child providers: the same child always gets the same id."""


class PlacementService:
    """The ledger, this process's index, and the decisions made from both.

    `start` loads the index; run `follower.run()` as a task to keep it up to date.
    """

    def __init__(self, database: Database, signals: Signals | None = None) -> None:
        self.database = database
        self.index = Index()
        self.ledger = Ledger(self.index)
        self.follower = Follower(database, self.index, signals)
        self._alignment: Alignment | None = None
        self._reported: dict[str, object] = {}

    async def start(self) -> None:
        """Load the index."""
        await self.follower.catch_up()

    def align(self, states: HostStates) -> Alignment:
        """Match the caller's hosts with providers; cheap while neither side changes its shape."""
        columns = self.index.columns
        known = self._alignment
        if known is None or known.columns is not columns or known.states is not states:
            known = self._alignment = Alignment.of(columns, states)
        return known

    def plan(self, request: Request, states: HostStates, seed: int) -> Plan:
        """Decide where a request may go, from what this process knows now. No I/O."""
        return plan(request, host_table(self.align(states), request), seed)

    async def plan_surely(self, request: Request, states: HostStates, seed: int) -> Plan:
        """Decide as `plan`; when no host is found, catch up with the ledger and decide again."""
        decision = self.plan(request, states, seed)
        if not decision.order:
            await self.follower.catch_up()
            decision = self.plan(request, states, seed)
        return decision

    def candidate(self, query: Query, host: str) -> Candidate | None:
        """Return how a host would serve a query, or None when it cannot now."""
        columns = self.index.columns
        tree = columns.tree_of_name.get(host)
        return None if tree is None else Search(columns, query).first_in(tree)

    def candidates(self, query: Query, limit: int | None = None) -> list[Candidate]:
        """Return candidates from what this process knows now; a limit is spread over hosts."""
        return Search(self.index.columns, query).candidates(limit)

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
        repeats this process's last committed one costs no statement.
        """
        networks = sorted({normalised(name, PHYSNET_PREFIX) for name in physical_networks})
        report = (host_name, provider_uuid, dict(inventory), sorted(set(traits)), networks)
        if self._reported.get(host_name) == report:
            return False
        before = tx.statements
        await self._write_report(tx, host_name, provider_uuid, inventory, report[3], networks)
        tx.on_commit(lambda: self._reported.__setitem__(host_name, report))
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
        await self.ledger.ensure_provider(tx, uuid=provider_uuid, name=host_name)
        await self.ledger.set_inventory(tx, provider_uuid, inventory)
        await self.ledger.set_traits(tx, provider_uuid, traits)
        child = str(uuid.uuid5(_CHILDREN, f"{provider_uuid}:physnets"))
        await self.ledger.ensure_provider(tx, uuid=child, name=f"{host_name}:physnets", parent=provider_uuid)
        await self.ledger.set_traits(tx, child, networks)


def query_of(request: Request, groups: Iterable[RequestGroup] = ()) -> Query:
    """Return the query that finds a request's allocations; `groups` are those of its ports."""
    plain = RequestGroup(resources=request.resources)
    return Query(groups=(plain, *groups))
