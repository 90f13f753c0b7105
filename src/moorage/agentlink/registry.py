"""Hosts: reports, up or down, what operators rule."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime

import msgspec

from moorage.agentlink import statements as sql
from moorage.agentlink.background import end
from moorage.agentlink.errors import HostNotFound
from moorage.agentlink.model import Host, HostCertificate
from moorage.core.errors import MoorageError
from moorage.core.log import get_logger
from moorage.store.database import Database, Tx
from moorage.wire.coding import plain
from moorage.wire.messages import HostReport

log = get_logger(__name__)
HOSTS_CHANNEL = "hosts"
GUESTS_CHANNEL = "guests"
"""Notified when a host reports that a guest no longer runs."""
OnReport = Callable[[Tx, str, HostReport], Awaitable[None]]

_TOUCH_EVERY = 1.0


class Registry:
    """The hosts of the cloud.

    ``on_report(tx, host, report)`` is called in the transaction that stores a report: the first one of a host
    that this process sees, and each one whose facts (all but the guests) differ from those of the row.
    """

    def __init__(self, database: Database, on_report: OnReport | None = None) -> None:
        self.on_report = on_report
        self._database = database
        # The last report of each host that came here, and the state of its row once it was written.
        self._reports: dict[str, tuple[HostReport, datetime]] = {}
        self._touched: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to write heartbeats down."""
        self._task = asyncio.create_task(self._touch_loop(), name="agentlink-heartbeats")

    async def stop(self) -> None:
        """Stop writing."""
        if self._task is not None:
            await end(self._task)
            self._task = None

    # --- reports -----------------------------------------------------------------------------------------------

    async def report(self, host: str, report: HostReport) -> None:
        """A heartbeat. One that repeats the last one costs no statement of its own: see ``_touch``."""
        last = self._reports.get(host)
        if last is not None and last[0] == report:
            self._touched.add(host)
        else:
            await self._store(host, report)

    async def _store(self, host: str, report: HostReport) -> None:
        facts = plain(report)
        del facts["guests"]
        async with self._database.transaction() as tx:
            written = await sql.REPORT.one(
                tx,
                name=host,
                facts=facts,
                guests=msgspec.to_builtins(report.guests),
                hypervisor_type=report.hypervisor_type,
                protocol=report.protocol,
                agent_version=report.agent_version,
            )
            if written.new_facts or host not in self._reports:
                if self.on_report is not None:
                    await self.on_report(tx, host, report)
                await tx.notify(HOSTS_CHANNEL)
            if written.lost(report):
                await tx.notify(GUESTS_CHANNEL)
        self._reports[host] = (report, written.at)

    async def _touch_loop(self) -> None:
        while True:
            await asyncio.sleep(_TOUCH_EVERY)
            try:
                await self._touch()
            except MoorageError as error:
                log.warning("hosts.touch_failed", error=error.message)

    async def _touch(self) -> None:
        """The hosts that repeated themselves were seen. Where the row says otherwise by now (the host spoke to another
        process in between, or somebody changed the row), what they repeated is written again.
        """
        names, self._touched = sorted(self._touched), set()
        if not names:
            return
        async with self._database.transaction() as tx:
            touched = await sql.TOUCH.all(tx, names=names, ats=[self._reports[name][1] for name in names])
        for name in set(names) - {row[0] for row in touched}:
            await self._store(name, self._reports[name][0])

    # --- reading and ruling ------------------------------------------------------------------------------------

    async def hosts(self, tx: Tx) -> list[Host]:
        """Every host, by name."""
        return await sql.HOSTS.all(tx)

    async def host(self, tx: Tx, name: str) -> Host:
        """One host; raises HostNotFound."""
        found = await sql.HOST.first(tx, name=name)
        if found is None:
            message = f"there is no host {name!r}"
            raise HostNotFound(message, host=name)
        return found

    async def certificates(self, tx: Tx, name: str) -> list[HostCertificate]:
        """The certificates that the host may show, oldest first; none once it was revoked."""
        return await sql.CERTIFICATES_OF.all(tx, host=name)

    async def set_disabled(self, tx: Tx, name: str, *, disabled: bool, reason: str | None = None) -> Host:
        """Whether new servers may be placed on it; raises HostNotFound."""
        found = await sql.SET_DISABLED.first(
            tx, name=name, disabled=disabled, reason=reason if disabled else None
        )
        if found is None:
            message = f"there is no host {name!r}"
            raise HostNotFound(message, host=name)
        await tx.notify(HOSTS_CHANNEL)
        return found
