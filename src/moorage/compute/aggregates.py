"""Aggregates of hosts, and the availability zones that some of them name.

A host is in one zone at most; a host in none is in the default zone. A change that would move a host with servers
to another zone is refused, because the servers were promised theirs.
"""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import aggregate_order_by

from moorage.agentlink.registry import HOSTS_CHANNEL
from moorage.compute.errors import (
    AggregateExists,
    AggregateInUse,
    AggregateNotFound,
    HostInZone,
    InvalidField,
)
from moorage.compute.model import Aggregate
from moorage.compute.tables import aggregate_hosts, aggregates, servers
from moorage.core.errors import NotFound
from moorage.core.ids import new_id
from moorage.store.database import Tx
from moorage.store.errors import UniqueViolation
from moorage.store.schema import Json
from moorage.store.statement import Statement, text_param, texts_param

ZONE = "availability_zone"
_ID = sa.bindparam("id", type_=sa.BigInteger)
_hosts = (
    sa.select(
        sa.func.coalesce(
            sa.func.array_agg(aggregate_order_by(aggregate_hosts.c.host, aggregate_hosts.c.host)),
            sa.cast(sa.literal_column("'{}'"), sa.ARRAY(sa.Text)),
        )
    )
    .where(aggregate_hosts.c.aggregate_id == aggregates.c.id)
    .scalar_subquery()
    .label("hosts")
)
_ALL = Statement(sa.select(aggregates, _hosts).order_by(aggregates.c.id), row=Aggregate)
_ONE = Statement(sa.select(aggregates, _hosts).where(aggregates.c.id == _ID), row=Aggregate)
_ADD = Statement(
    sa.insert(aggregates)
    .values(uuid=text_param("uuid"), name=text_param("name"), metadata=sa.bindparam("metadata", type_=Json))
    .returning(aggregates.c.id)
)
_UPDATE = Statement(
    sa.update(aggregates)
    .where(aggregates.c.id == _ID)
    .values(name=text_param("name"), metadata=sa.bindparam("metadata", type_=Json), updated_at=sa.func.now())
)
_DELETE = Statement(sa.delete(aggregates).where(aggregates.c.id == _ID))
_ADD_HOST = Statement(sa.insert(aggregate_hosts).values(aggregate_id=_ID, host=text_param("host")))
_DROP_HOST = Statement(
    sa.delete(aggregate_hosts).where(
        aggregate_hosts.c.aggregate_id == _ID, aggregate_hosts.c.host == text_param("host")
    )
)
_zone = aggregates.c.metadata.op("->>")(ZONE)
_ZONES = Statement(
    sa.select(aggregate_hosts.c.host, _zone.label("zone"))
    .join(aggregates, aggregates.c.id == aggregate_hosts.c.aggregate_id)
    .where(_zone.is_not(None))
    .order_by(aggregate_hosts.c.host)
)
_OCCUPIED = Statement(
    sa.select(servers.c.host)
    .where(servers.c.host == sa.any_(texts_param("hosts")), servers.c.deleted_at.is_(None))
    .limit(1)
)
# Writers of aggregates are few; one at a time makes "a host is in one zone" a plain read.
_LOCK = Statement(sa.select(sa.func.pg_advisory_xact_lock(sa.literal_column("7001"))))


async def list_(tx: Tx) -> list[Aggregate]:
    """Every aggregate, oldest first."""
    return await _ALL.all(tx)


async def get(tx: Tx, aggregate_id: int) -> Aggregate:
    """Raises AggregateNotFound."""
    found = await _ONE.first(tx, id=aggregate_id)
    if found is None:
        raise AggregateNotFound(f"Aggregate {aggregate_id} could not be found.")
    return found


async def zones(tx: Tx) -> dict[str, str]:
    """The availability zone of each host that is in one of an aggregate's."""
    return {row[0]: row[1] for row in await _ZONES.all(tx)}


async def create(tx: Tx, name: str, zone: str | None) -> Aggregate:
    """Raises AggregateExists."""
    metadata = {} if zone is None else {ZONE: _zone_name(zone)}
    try:
        found: int = await _ADD.scalar(tx, uuid=new_id(), name=name, metadata=metadata)
    except UniqueViolation as error:
        raise AggregateExists(f"Aggregate {name} already exists.") from error
    return await get(tx, found)


async def update(
    tx: Tx, aggregate_id: int, *, name: str | None, metadata: Mapping[str, str | None]
) -> Aggregate:
    """Rename, and merge metadata (None removes a key); raises AggregateExists, AggregateInUse."""
    await _LOCK.run(tx)
    now = await get(tx, aggregate_id)
    merged = {k: v for k, v in {**now.metadata, **metadata}.items() if v is not None}
    if merged.get(ZONE) != now.zone:
        await _check_zone_change(tx, now, merged.get(ZONE))
    try:
        await _UPDATE.run(tx, id=aggregate_id, name=name or now.name, metadata=merged)
    except UniqueViolation as error:
        raise AggregateExists(f"Aggregate {name} already exists.") from error
    await tx.notify(HOSTS_CHANNEL)
    return await get(tx, aggregate_id)


async def delete(tx: Tx, aggregate_id: int) -> None:
    """Raises AggregateInUse where it still has hosts."""
    await _LOCK.run(tx)
    now = await get(tx, aggregate_id)
    if now.hosts:
        raise AggregateInUse(
            f"Cannot remove aggregate {aggregate_id}: it is not empty, remove its hosts first."
        )
    await _DELETE.run(tx, id=aggregate_id)


async def add_host(tx: Tx, aggregate_id: int, host: str) -> Aggregate:
    """Raises AggregateExists where it is in already, HostInZone, AggregateInUse. The caller checks the host."""
    await _LOCK.run(tx)
    now = await get(tx, aggregate_id)
    if host in now.hosts:
        raise AggregateExists(f"Aggregate {aggregate_id} already has host {host}.")
    if now.zone is not None:
        other = (await zones(tx)).get(host)
        if other not in (None, now.zone):
            raise HostInZone(
                f"Cannot add host {host} to aggregate {aggregate_id}: it is in availability zone {other}."
            )
        if other is None:
            await _check_unoccupied(tx, [host])
    await _ADD_HOST.run(tx, id=aggregate_id, host=host)
    await tx.notify(HOSTS_CHANNEL)
    return await get(tx, aggregate_id)


async def remove_host(tx: Tx, aggregate_id: int, host: str) -> Aggregate:
    """Raises NotFound where it is not in, HostInZone where its servers would change their zone."""
    await _LOCK.run(tx)
    now = await get(tx, aggregate_id)
    if host not in now.hosts:
        raise NotFound(f"Aggregate {aggregate_id} has no host {host}.")
    if now.zone is not None and not any(
        host in a.hosts for a in await list_(tx) if a.zone and a.id != now.id
    ):
        await _check_unoccupied(tx, [host])
    await _DROP_HOST.run(tx, id=aggregate_id, host=host)
    await tx.notify(HOSTS_CHANNEL)
    return await get(tx, aggregate_id)


async def _check_zone_change(tx: Tx, aggregate: Aggregate, zone: str | None) -> None:
    if zone is not None:
        _zone_name(zone)
    if not aggregate.hosts:
        return
    occupied = await _OCCUPIED.scalar(tx, hosts=aggregate.hosts)
    if occupied is not None:
        raise AggregateInUse(
            f"Cannot change the availability zone of aggregate {aggregate.id}: host {occupied} has servers."
        )
    known: dict[str, Any] = {}
    for other in await list_(tx):
        if other.id != aggregate.id and other.zone is not None:
            known.update(dict.fromkeys(other.hosts, other.zone))
    clash = [h for h in aggregate.hosts if zone is not None and known.get(h) not in (None, zone)]
    if clash:
        raise AggregateInUse(f"Host {clash[0]} is in availability zone {known[clash[0]]} already.")


async def _check_unoccupied(tx: Tx, hosts: list[str]) -> None:
    occupied = await _OCCUPIED.scalar(tx, hosts=hosts)
    if occupied is not None:
        raise HostInZone(f"Host {occupied} has servers, whose availability zone would change.")


def _zone_name(zone: str) -> str:
    if not zone.strip() or ":" in zone:
        raise InvalidField("An availability zone needs a name without colons.", field=ZONE)
    return zone
