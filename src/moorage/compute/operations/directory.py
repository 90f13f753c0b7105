"""The hosts as the scheduler and the network see them: a snapshot that follows the registry.

A host is up while its reports come; that changes with time alone, so the snapshot is also looked at by a timer.
A snapshot is replaced only when something in it differs: what others derive from it is kept by its identity.
"""

import asyncio
import contextlib
import time

import sqlalchemy as sa

from moorage.agentlink.model import Host
from moorage.agentlink.registry import HOSTS_CHANNEL
from moorage.agentlink.service import AgentLink
from moorage.compute.tables import aggregate_hosts, aggregates
from moorage.core.clock import utcnow
from moorage.core.errors import MoorageError
from moorage.core.log import get_logger
from moorage.network.model import HostNetworking
from moorage.placement.hosts import HostStates
from moorage.store.database import Database, Tx
from moorage.store.signals import Signals
from moorage.store.statement import Statement

log = get_logger(__name__)
_ZONES = Statement(
    sa.select(aggregate_hosts.c.host, aggregates.c.metadata["availability_zone"].astext)
    .join(aggregates, aggregates.c.id == aggregate_hosts.c.aggregate_id)
    .where(aggregates.c.metadata.has_key("availability_zone"))
)
Row = tuple[str, bool, bool, str | None, str]


class Directory:
    """``start`` loads it and keeps it; ``states`` and ``networking`` answer from memory."""

    def __init__(
        self,
        database: Database,
        signals: Signals,
        link: AgentLink,
        *,
        default_zone: str = "nova",
        every: float = 5.0,
    ) -> None:
        self._database = database
        self._signals = signals
        self._link = link
        self._default_zone = default_zone
        self._every = every
        self._rows: dict[str, Row] = {}
        self._hosts: dict[str, Host] = {}
        self._task: asyncio.Task[None] | None = None
        self._refreshed = self._listening_since = time.monotonic()
        self.states = HostStates.of([])

    async def start(self) -> None:
        """Load, then follow."""
        subscription = self._signals.subscribe(HOSTS_CHANNEL)
        await self.refresh()

        async def follow() -> None:
            while True:
                await subscription.wait(self._every)
                try:
                    await self.refresh()
                except MoorageError as error:
                    log.warning("directory.refresh_failed", error=error.message)

        self._task = asyncio.create_task(follow(), name="host-directory")

    async def stop(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def refresh(self) -> bool:
        """Read the registry; two statements. Whether anything that placing looks at was different."""
        async with self._database.read() as tx:
            hosts = await self._link.registry.hosts(tx)
            zones = {row[0]: row[1] for row in await _ZONES.all(tx)}
        self._listened()
        now = utcnow()
        rows = {
            host.name: (
                host.name,
                host.facts is not None and host.up(self._link.service_down_time, now),
                not host.disabled,
                host.disabled_reason,
                zones.get(host.name, self._default_zone),
            )
            for host in hosts
        }
        self._hosts = {host.name: host for host in hosts}
        if rows == self._rows:
            return False
        self._rows = rows
        self.states = HostStates.of(rows.values())
        return True

    def _listened(self) -> None:
        # After a pause (no database, a stopped process) hosts look silent that could not be heard.
        now = time.monotonic()
        if now - self._refreshed > 3 * self._every:
            self._listening_since = now
        self._refreshed = now

    def zone_of(self, host: str) -> str:
        """The availability zone of a host."""
        row = self._rows.get(host)
        return row[4] if row is not None else self._default_zone

    def is_up(self, host: str) -> bool:
        """Whether the host is heard of."""
        row = self._rows.get(host)
        return row is not None and row[1]

    def silent(self, host: str) -> bool:
        """Whether the host is not heard of although this process has listened for long enough to tell."""
        heard_nothing = time.monotonic() - self._listening_since >= self._link.service_down_time
        return heard_nothing and not self.is_up(host)

    async def networking(self, _tx: Tx, name: str) -> HostNetworking | None:
        """What the network service asks of a host; the form of ``network.binding.Hosts``."""
        host = self._hosts.get(name)
        if host is None or host.facts is None:
            return None
        facts = host.facts
        return HostNetworking(
            host=name,
            datapath=facts["datapath"],
            physical_networks=frozenset(facts.get("physical_networks") or ()),
            chassis=facts.get("chassis"),
        )
