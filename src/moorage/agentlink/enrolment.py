"""How a host becomes known, keeps its certificate fresh, and loses it.

=========  ==========================================================================================
enrol      a ticket's token and a key: the host exists from now on, and has one certificate
renew      the certificate it has and a new key: one more, so that a lost answer costs nothing
revoke     no certificate of the host counts any more
=========  ==========================================================================================
"""

import hashlib
import re
import secrets
from datetime import timedelta

from moorage.agentlink import statements as sql
from moorage.agentlink.authority import Authority, Issued, fingerprint_of_key, requested_key
from moorage.agentlink.certificates import CHANNEL, Certificates
from moorage.agentlink.errors import HostExists, HostNotFound, ProtocolTooOld, TokenInvalid
from moorage.agentlink.model import Host
from moorage.agentlink.registry import HOSTS_CHANNEL
from moorage.core.clock import utcnow
from moorage.core.errors import BadRequest, Unavailable
from moorage.core.ids import new_id
from moorage.core.log import get_logger
from moorage.store.database import Tx
from moorage.wire.messages import EnrollReply, EnrollRequest, RenewReply
from moorage.wire.protocol import OLDEST, PROTOCOL
from moorage.wire.tickets import Ticket

log = get_logger(__name__)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


class Enrolment:
    """See the module's text."""

    def __init__(self, authority: Authority | None, certificates: Certificates) -> None:
        self._signer = authority
        self._certificates = certificates

    @property
    def _authority(self) -> Authority:
        if self._signer is None:
            message = "this process has no authority for hosts: ask one that serves the agents' API"
            raise Unavailable(message)
        return self._signer

    async def create_ticket(
        self, tx: Tx, *, host: str | None = None, uses: int = 1, lifetime: timedelta = timedelta(hours=1)
    ) -> str:
        """A ticket to enrol with, shown this once: for one host by name (also again), or any ``uses`` new names."""
        if host is not None:
            _check_name(host)
        token = secrets.token_urlsafe(32)
        await sql.ADD_TOKEN.run(tx, hash=_hash(token), host=host, uses=uses, expires_at=utcnow() + lifetime)
        return str(Ticket(token=token, authority=self._authority.bundle))

    async def enroll(self, tx: Tx, request: EnrollRequest) -> EnrollReply:
        """Accept a host's key for a token; earlier certificates of the host end.

        A key that the host is known by already gets its certificate again without a look at the token: the first
        answer was lost. Raises TokenInvalid, HostExists, ProtocolTooOld, BadRequest.
        """
        if request.protocol < OLDEST:
            message = (
                f"the agent speaks protocol {request.protocol}; this control plane needs {OLDEST} or newer"
            )
            raise ProtocolTooOld(message, field="protocol")
        _check_name(request.name)
        key = fingerprint_of_key(requested_key(request.csr))
        known = await sql.CERTIFICATE_OF_KEY.first(tx, key=key, host=request.name)
        used = None
        if known is None:
            used = await sql.USE_TOKEN.first(tx, hash=_hash(request.token), name=request.name)
            # The same request may have come through another process, and have held the token until now.
            known = await sql.CERTIFICATE_OF_KEY.first(tx, key=key, host=request.name)
        if known is not None:
            host_id, certificate = known[0], known[1]
        else:
            host_id = await self._admit(tx, request, used)
            certificate = (await self._issue(tx, request.csr, request.name, host_id)).pem
            log.info("host.enrolled", host=request.name)
        return EnrollReply(
            host_id=host_id,
            protocol=min(PROTOCOL, request.protocol),
            certificate=certificate,
            authority=self._authority.bundle,
        )

    async def _admit(self, tx: Tx, request: EnrollRequest, used: tuple[str | None] | None) -> str:
        name = request.name
        if used is None:
            message = f"the token is unknown, used up, expired, or not for host {name!r}: have a new one made"
            raise TokenInvalid(message)
        host_id: str | None = await sql.ADD_HOST.scalar(
            tx, id=new_id(), name=name, protocol=request.protocol, agent_version=request.agent_version
        )
        if host_id is None:
            if used[0] is None:
                message = f"host {name!r} exists; enrol it again with a token made for this host"
                raise HostExists(message, host=name)
            host_id = (await self._host(tx, name)).id
            await self.revoke(tx, name)
        await tx.notify(HOSTS_CHANNEL)
        return host_id

    async def renew(self, tx: Tx, name: str, shown: bytes, csr: str) -> RenewReply:
        """A certificate of a new key for a host that has shown the one with the fingerprint ``shown``.

        Both count from now on: the host may never get the answer. The same key again gets the same certificate.
        Raises BadRequest.
        """
        host_id = await sql.LOCK_HOST.scalar(tx, name=name)
        known = await sql.CERTIFICATE_OF_KEY.first(tx, key=fingerprint_of_key(requested_key(csr)), host=name)
        if known is not None:
            return RenewReply(certificate=known[1], authority=self._authority.bundle)
        await self._end(tx, name, but=shown)
        issued = await self._issue(tx, csr, name, host_id)
        log.info("host.renewed", host=name, expires_at=issued.expires_at.isoformat())
        return RenewReply(certificate=issued.pem, authority=self._authority.bundle)

    async def revoke(self, tx: Tx, name: str) -> None:
        """End every certificate of a host at the commit, here and in every other process; raises HostNotFound."""
        await self._host(tx, name)
        await self._end(tx, name, but=None)
        log.info("host.revoked", host=name)

    async def prune(self, tx: Tx) -> int:
        """Forget certificates and tokens that have expired; how many."""
        return await sql.PRUNE_CERTIFICATES.run(tx) + await sql.PRUNE_TOKENS.run(tx)

    async def _issue(self, tx: Tx, csr: str, name: str, host_id: str) -> Issued:
        issued = self._authority.sign_host(csr, host_id)
        await sql.ADD_CERTIFICATE.run(
            tx,
            fingerprint=issued.fingerprint,
            host=name,
            key=issued.key,
            certificate=issued.pem,
            expires_at=issued.expires_at,
        )
        return issued

    async def _end(self, tx: Tx, name: str, but: bytes | None) -> None:
        await sql.END_CERTIFICATES.run(tx, host=name, but=but or b"")
        await tx.notify(CHANNEL)
        tx.on_commit(lambda: self._certificates.forget(name, but))

    async def _host(self, tx: Tx, name: str) -> Host:
        found = await sql.HOST.first(tx, name=name)
        if found is None:
            message = f"there is no host {name!r}"
            raise HostNotFound(message, host=name)
        return found


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        message = (
            f"a host's name has up to 255 letters, digits, dots, dashes and underscores, not {name[:80]!r}"
        )
        raise BadRequest(message, field="name")


def _hash(secret: str) -> bytes:
    # The secrets are 256 random bits: a plain hash cannot be searched.
    return hashlib.sha256(secret.encode()).digest()
