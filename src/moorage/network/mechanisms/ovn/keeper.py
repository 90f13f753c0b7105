"""The reconciler of the Northbound database: the change log in small steps, everything now and then.

A pass reads the log and the resources in one snapshot, writes what they say, and then forgets the changes it has read.
The first pass, one after a failure, and one every few minutes compare everything.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from moorage.network import changes
from moorage.network.changes import Change
from moorage.network.mechanisms.ovn import rows, translate
from moorage.network.mechanisms.ovn.northbound import Applied, Northbound
from moorage.network.mechanisms.ovn.rows import Snapshot
from moorage.network.mechanisms.ovn.southbound import Southbound
from moorage.store.database import Database

_BATCH = 500
# Log and resources as of one moment: a port must not be seen before the change row of its security group.
_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"


class NorthboundKeeper:
    """Brings the Northbound database to what the network service's rows say. ``full_every`` is in seconds."""

    name = "network.ovn"
    channel: str | None = changes.CHANNEL
    interval = 10.0

    def __init__(
        self,
        database: Database,
        northbound: Northbound,
        southbound: Southbound | None,
        *,
        full_every: float = 180.0,
    ) -> None:
        self._database = database
        self._northbound = northbound
        self._southbound = southbound
        self._full_every = full_every
        self._last_full: float | None = None

    async def reconcile(self) -> Mapping[str, Any]:
        """One pass. Raises Unavailable when OVN does not answer; the next pass then compares everything."""
        if not self._northbound.connected:
            await asyncio.to_thread(self._northbound.connect)
        full = self._last_full is None or time.monotonic() - self._last_full >= self._full_every
        async with self._database.transaction() as tx:
            await tx.execute(_SNAPSHOT)
            log = await changes.pending(tx, _BATCH)
            if not log and not full:
                return {}
            scopes, snapshot = await _everything(tx) if full else await _touched(tx, log)
        # Until this pass has ended well, the next one is a full one.
        last, self._last_full = self._last_full, None
        applied = await asyncio.to_thread(self._apply, snapshot, scopes)
        if log:
            async with self._database.transaction() as tx:
                await changes.forget(tx, log)
        self._last_full = time.monotonic() if full else last
        if self._southbound is not None:
            # A port that never left its host gives no new event: what is known of it counts.
            self._southbound.recheck(row.port.id for row in snapshot.ports if row.port.status != "ACTIVE")
        return {**_figures(applied), "full": full, "changes": len(log), "again": len(log) == _BATCH}

    def _apply(self, snapshot: Snapshot, scopes: set[str] | None) -> Applied:
        desired = translate.translate(snapshot)
        if scopes is None:
            desired += translate.static_rows()
        return self._northbound.apply(desired, scopes)


async def _everything(tx: Any) -> tuple[None, Snapshot]:
    return None, await rows.everything(tx)


async def _touched(tx: Any, log: Sequence[Change]) -> tuple[set[str], Snapshot]:
    refs: dict[str, set[str]] = {}
    for change in log:
        refs.setdefault(change.kind, set()).add(change.ref)
    subnets = sorted(refs.get(changes.SUBNET, ()))
    ports = refs.get(changes.PORT, set()) | set(await rows.ports_on(tx, subnets))
    snapshot = await rows.some(
        tx,
        networks=sorted(refs.get(changes.NETWORK, ())),
        subnets=subnets,
        ports=sorted(ports),
        groups=sorted(refs.get(changes.SECURITY_GROUP, ())),
    )
    scopes = {translate.scope_of(kind, ref) for kind, ids in refs.items() for ref in ids}
    return scopes | {translate.scope_of(changes.PORT, p) for p in ports}, snapshot


def _figures(applied: Applied) -> dict[str, int]:
    return {"created": applied.created, "changed": applied.changed, "deleted": applied.deleted}
