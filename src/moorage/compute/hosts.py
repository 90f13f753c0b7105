"""Compute hosts as the API shows them: hypervisors, services, availability zones.

The registry of agents knows the hosts; this adds their zone, what their servers use, and the number they go by
below microversion 2.53.
"""

from datetime import datetime
from typing import Protocol

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from moorage.agentlink.model import Host
from moorage.compute import aggregates
from moorage.compute.errors import HostNotFound
from moorage.compute.model import HostView
from moorage.compute.tables import host_numbers, servers
from moorage.store.database import Tx
from moorage.store.statement import Statement, texts_param


class Registry(Protocol):
    """The part of agentlink's registry that compute reads."""

    async def hosts(self, tx: Tx) -> list[Host]:
        """Every host, by name."""
        ...

    async def host(self, tx: Tx, name: str) -> Host:
        """One host; raises NotFound."""
        ...

    async def set_disabled(self, tx: Tx, name: str, *, disabled: bool, reason: str | None = None) -> Host:
        """Whether new servers may be placed there."""
        ...


class Use(msgspec.Struct, frozen=True):
    """What the servers of a host use."""

    host: str
    servers: int
    vcpus: int
    memory_mb: int
    disk_gb: int
    building: int


class HostedServer(msgspec.Struct, frozen=True):
    """A server in a list of a host's."""

    host: str
    id: str
    name: str


_USE = Statement(
    sa.select(
        servers.c.host,
        sa.func.count().label("servers"),
        sa.func.sum(servers.c.vcpus).label("vcpus"),
        sa.func.sum(servers.c.memory_mb).label("memory_mb"),
        sa.func.sum(servers.c.disk_gb).label("disk_gb"),
        sa.func.count(servers.c.task_state).label("building"),
    )
    .where(servers.c.host.is_not(None), servers.c.deleted_at.is_(None))
    .group_by(servers.c.host),
    row=Use,
)
_SERVERS = Statement(
    sa.select(servers.c.host, servers.c.id, servers.c.name)
    .where(servers.c.host == sa.any_(texts_param("hosts")), servers.c.deleted_at.is_(None))
    .order_by(servers.c.created_at),
    row=HostedServer,
)
_NUMBERS = Statement(sa.select(host_numbers.c.host, host_numbers.c.number))
_NUMBER = Statement(
    insert(host_numbers)
    .from_select(["host"], sa.select(sa.func.unnest(texts_param("hosts"))))
    .on_conflict_do_nothing()
    .returning(host_numbers.c.host, host_numbers.c.number)
)


async def list_(tx: Tx, registry: Registry, *, down_time: float, default_zone: str) -> list[HostView]:
    """Every host by name, in four statements."""
    known = await registry.hosts(tx)
    zones = await aggregates.zones(tx)
    use = {u.host: u for u in await _USE.all(tx)}
    numbers = await _numbers(tx, [h.name for h in known])
    return [
        _view(host, zones.get(host.name, default_zone), use.get(host.name), numbers[host.name], down_time)
        for host in known
    ]


async def _numbers(tx: Tx, names: list[str]) -> dict[str, int]:
    found = {row[0]: row[1] for row in await _NUMBERS.all(tx)}
    missing = [n for n in names if n not in found]
    if missing:
        found.update({row[0]: row[1] for row in await _NUMBER.all(tx, hosts=missing)})
        if any(n not in found for n in missing):  # another request numbered them in between
            found.update({row[0]: row[1] for row in await _NUMBERS.all(tx)})
    return found


def _view(host: Host, zone: str, use: Use | None, number: int, down_time: float) -> HostView:
    return HostView(
        id=host.id,
        number=number,
        name=host.name,
        up=host.up(down_time),
        disabled=host.disabled,
        disabled_reason=host.disabled_reason,
        last_seen=_newest(host.last_seen, host.updated_at),
        facts=host.facts or {},
        zone=zone,
        servers=use.servers if use else 0,
        vcpus_used=int(use.vcpus) if use else 0,
        memory_mb_used=int(use.memory_mb) if use else 0,
        disk_gb_used=int(use.disk_gb) if use else 0,
        building=use.building if use else 0,
    )


def _newest(*moments: datetime | None) -> datetime | None:
    return max((m for m in moments if m is not None), default=None)


def find(views: list[HostView], key: str) -> HostView:
    """The host of that id, number or name; raises HostNotFound."""
    for view in views:
        if key in (view.id, view.name) or (key.isdigit() and int(key) == view.number):
            return view
    raise HostNotFound(f"Compute host {key} could not be found.")


async def servers_on(tx: Tx, hosts: list[str]) -> dict[str, list[HostedServer]]:
    """The servers of each of these hosts."""
    found: dict[str, list[HostedServer]] = {h: [] for h in hosts}
    for row in await _SERVERS.all(tx, hosts=hosts):
        found[row.host].append(row)
    return found
