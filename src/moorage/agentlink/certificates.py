"""Which certificates count, from memory.

A connection of a host costs its handshake; a request on it costs a look into a dictionary. The row of a certificate is
its right to be used: it is read when the certificate is first seen, and kept. Revoking deletes the row and signals;
every process then asks once for all the certificates it knows, forgets those that are gone and ends their hosts' polls.
A timer does the same where a signal was lost.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from moorage.agentlink import statements as sql
from moorage.agentlink.authority import HOST_LIFETIME
from moorage.agentlink.background import end
from moorage.agentlink.errors import CredentialInvalid
from moorage.agentlink.model import Known
from moorage.core.errors import MoorageError
from moorage.core.log import get_logger
from moorage.store.database import Database
from moorage.store.signals import Signals

log = get_logger(__name__)
CHANNEL = "host_certificates"
_MOST = 200_000
_LOOK = 60.0


class Certificates:
    """The certificates that this process has seen. ``on_ended`` is told the host of one that counts no more."""

    def __init__(self, database: Database, signals: Signals, on_ended: Callable[[str], None]) -> None:
        self._database = database
        self._on_ended = on_ended
        self._known: OrderedDict[bytes, Known] = OrderedDict()
        self._changes = 0
        self._subscription = signals.subscribe(CHANNEL)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to follow revocations."""
        self._task = asyncio.create_task(self._follow(), name="agentlink-certificates")

    async def stop(self) -> None:
        """Stop following."""
        if self._task is not None:
            await end(self._task)
            self._task = None

    async def host_of(self, fingerprint: bytes) -> str:
        """The host that a certificate speaks for; raises CredentialInvalid. A statement for a new one alone."""
        known = self._known.get(fingerprint)
        if known is None:
            changes = self._changes
            async with self._database.read() as tx:
                known = await sql.CERTIFICATE.first(tx, fingerprint=fingerprint)
            if known is not None and changes == self._changes:
                self._known[fingerprint] = known
                if len(self._known) > _MOST:
                    self._known.popitem(last=False)
        if known is None or not known.lasts():
            message = "the host's certificate was revoked or has expired: enrol the host again"
            raise CredentialInvalid(message)
        return known.host

    async def still(self, fingerprint: bytes) -> None:
        """Check again a certificate that was accepted a while ago; raises CredentialInvalid."""
        await self.host_of(fingerprint)

    def due(self, fingerprint: bytes) -> bool:
        """Whether it should be renewed: a third of its life is left."""
        known = self._known.get(fingerprint)
        return known is not None and not known.lasts(HOST_LIFETIME / 3)

    def forget(self, host: str, but: bytes | None = None) -> None:
        """Certificates of a host were revoked in this process: they count no more from now on."""
        self._drop([f for f, known in self._known.items() if known.host == host and f != but])

    async def look(self) -> None:
        """Ask which of the known certificates still have their row."""
        self._changes += 1
        asked = list(self._known)
        if not asked:
            return
        async with self._database.read() as tx:
            there = {row[0] for row in await sql.CERTIFICATES_THERE.all(tx, fingerprints=asked)}
        self._drop([f for f in asked if f not in there])

    def _drop(self, gone: list[bytes]) -> None:
        self._changes += 1
        for host in {known.host for f in gone if (known := self._known.pop(f, None)) is not None}:
            self._on_ended(host)

    async def _follow(self) -> None:
        while True:
            await self._subscription.wait(_LOOK)
            try:
                await self.look()
            except MoorageError as error:
                log.warning("certificates.look_failed", error=error.message)
                await asyncio.sleep(1)
                self._subscription.set()
