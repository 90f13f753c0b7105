"""Hosts: enrolment, credentials, reports, up or down."""

import asyncio
import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import msgspec

from moorage.agentlink import statements as sql
from moorage.agentlink.background import end
from moorage.agentlink.errors import (
    CredentialInvalid,
    HostExists,
    HostNotFound,
    ProtocolTooOld,
    TokenInvalid,
)
from moorage.agentlink.model import Host
from moorage.core.clock import utcnow
from moorage.core.errors import BadRequest, MoorageError
from moorage.core.ids import new_id
from moorage.core.log import get_logger
from moorage.store.database import Database, Tx
from moorage.wire.coding import plain
from moorage.wire.messages import EnrollReply, EnrollRequest, HostReport
from moorage.wire.protocol import OLDEST, PROTOCOL

log = get_logger(__name__)
HOSTS_CHANNEL = "hosts"
GUESTS_CHANNEL = "guests"
"""Notified when a host reports that a guest no longer runs."""
OnReport = Callable[[Tx, str, HostReport], Awaitable[None]]

_KNOWN_FOR = 60.0
_KNOWN_MOST = 100_000
_TOUCH_EVERY = 1.0


class Registry:
    """The hosts of the cloud.

    ``on_report(tx, host, report)`` is called in the transaction that stores a report: the first one of a host
    that this process sees, and each one whose facts (all but the guests) differ from those of the row.
    """

    def __init__(self, database: Database, on_report: OnReport | None = None) -> None:
        self.on_report = on_report
        self._database = database
        self._known: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
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

    # --- enrolment and credentials -----------------------------------------------------------------------------

    async def create_token(
        self, tx: Tx, *, host: str | None = None, uses: int = 1, lifetime: timedelta = timedelta(hours=1)
    ) -> str:
        """A token to enrol with, shown this once. For one host by name (also again), or any ``uses`` new names."""
        token = secrets.token_urlsafe(32)
        await sql.ADD_TOKEN.run(tx, hash=_hash(token), host=host, uses=uses, expires_at=utcnow() + lifetime)
        return token

    async def enroll(self, tx: Tx, request: EnrollRequest) -> EnrollReply:
        """Accept a host's credential for a token; an earlier credential of the host ends.

        The same credential again is accepted without looking at the token: the first answer was lost.
        Raises TokenInvalid, HostExists, ProtocolTooOld, BadRequest for a credential that is too short.
        """
        if request.protocol < OLDEST:
            message = (
                f"the agent speaks protocol {request.protocol}; this control plane needs {OLDEST} or newer"
            )
            raise ProtocolTooOld(message, field="protocol")
        if len(request.credential) < 32:
            message = "the credential must have at least 32 characters"
            raise BadRequest(message, field="credential")
        credential = _hash(request.credential)
        if await sql.CREDENTIAL.scalar(tx, hash=credential) == request.name:
            known = await self.host(tx, request.name)
            return EnrollReply(host_id=known.id, protocol=min(PROTOCOL, request.protocol))
        used = await sql.USE_TOKEN.first(tx, hash=_hash(request.token), name=request.name)
        if used is None:
            message = f"the token is unknown, used up, expired, or not for host {request.name!r}: have a new one made"
            raise TokenInvalid(message)
        host_id = await sql.ADD_HOST.scalar(
            tx, id=new_id(), name=request.name, protocol=request.protocol, agent_version=request.agent_version
        )
        if host_id is None:
            if used[0] is None:
                message = f"host {request.name!r} exists; enrol it again with a token made for this host"
                raise HostExists(message, host=request.name)
            host_id = (await self.host(tx, request.name)).id
            await self.revoke(tx, request.name)
        await sql.ADD_CREDENTIAL.run(tx, hash=credential, host=request.name)
        await tx.notify(HOSTS_CHANNEL)
        return EnrollReply(host_id=host_id, protocol=min(PROTOCOL, request.protocol))

    async def revoke(self, tx: Tx, host: str) -> None:
        """End the host's credential: here at once, in other processes within a minute."""
        await sql.REVOKE.run(tx, host=host)
        self._known = OrderedDict((k, v) for k, v in self._known.items() if v[1] != host)

    async def host_of(self, credential: str) -> str:
        """The name of the host whose credential this is; raises CredentialInvalid. Remembered for a minute."""
        key = _hash(credential)
        known = self._known.get(key)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        async with self._database.read() as tx:
            host: str | None = await sql.CREDENTIAL.scalar(tx, hash=key)
        if host is None:
            self._known.pop(key, None)
            message = "the host's credential is unknown or was revoked: enrol the host again"
            raise CredentialInvalid(message)
        self._known[key] = (time.monotonic() + _KNOWN_FOR, host)
        if len(self._known) > _KNOWN_MOST:
            self._known.popitem(last=False)
        return host

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


def _hash(secret: str) -> bytes:
    # The secrets are 256 random bits: a plain hash cannot be searched.
    return hashlib.sha256(secret.encode()).digest()
