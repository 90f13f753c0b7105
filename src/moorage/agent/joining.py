"""How this host gets its identity, and a fresh one before the old one ends."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

import msgspec

from moorage.agent import facts, identity
from moorage.agent.config import Settings
from moorage.agent.errors import CredentialRefused
from moorage.agent.identity import Identity
from moorage.agent.link import Link, Transport, enroll
from moorage.core.errors import BadRequest, Unavailable
from moorage.core.log import get_logger
from moorage.wire.messages import EnrollRequest
from moorage.wire.protocol import PROTOCOL
from moorage.wire.tickets import Ticket

log = get_logger(__name__)
TicketSource = Callable[[str], Awaitable[str | None] | str | None]
Pause = Callable[[str, Unavailable | CredentialRefused], Awaitable[None]]


class Joining:
    """``ticket`` gives an enrolment ticket for a host's name; without it the settings' one is used."""

    def __init__(self, settings: Settings, transport: Transport, ticket: TicketSource | None) -> None:
        self._settings = settings
        self._transport = transport
        self._ticket = ticket

    async def join(self, pause: Pause) -> Link:
        """The link of this host, enrolled if need be; ``pause`` waits after an attempt that failed.

        A ticket that the host did not come by is newer than its identity, and is tried first. Raises BadRequest
        where there is neither identity nor ticket.
        """
        known = await asyncio.to_thread(identity.load, self._settings.state_dir)
        given = self._settings.enroll_token
        if known is not None and given is not None and identity.hash_of(given) != known.ticket:
            known = await self._again(known, given)
        while known is None:
            try:
                known = await self._enroll(await self._new_ticket())
            except (Unavailable, CredentialRefused) as error:
                await pause("agent.enroll_failed", error)
        return Link(self._transport, known)

    async def renew(self, link: Link) -> None:
        """A new key and a new certificate; the link uses them from its next connection on."""
        folder = self._settings.state_dir
        key = await asyncio.to_thread(identity.propose, folder)
        reply = await link.renew(identity.request_for(key))
        renewed = msgspec.structs.replace(
            link.identity, key=key, certificate=reply.certificate, authority=reply.authority
        )
        await asyncio.to_thread(identity.save, folder, renewed)
        link.use(renewed)
        log.info("agent.renewed", host=self._settings.host)

    async def _again(self, known: Identity, ticket: str) -> Identity:
        try:
            return await self._enroll(ticket)
        except (Unavailable, CredentialRefused, BadRequest) as error:
            # It may be one that was used long ago and forgotten in the configuration: what we are stays true.
            log.warning("agent.ticket_useless", host=self._settings.host, error=error.message)
            return known

    async def _new_ticket(self) -> str:
        settings = self._settings
        ticket = self._ticket(settings.host) if self._ticket else settings.enroll_token
        if inspect.isawaitable(ticket):
            ticket = await ticket
        if ticket is None:
            message = (
                f"host {settings.host} has no identity in {settings.state_dir} and no ticket: "
                "have one made with `moorage host enroll` and name its file in enroll_token_file"
            )
            raise BadRequest(message, field="enroll_token")
        return ticket

    async def _enroll(self, word: str) -> Identity:
        settings = self._settings
        ticket = Ticket.parse(word)
        key = await asyncio.to_thread(identity.propose, settings.state_dir)
        request = EnrollRequest(
            token=ticket.token,
            csr=identity.request_for(key),
            name=settings.host,
            protocol=PROTOCOL,
            agent_version=facts.agent_version(),
        )
        reply = await enroll(self._transport, request, ticket)
        made = Identity(
            host_id=reply.host_id,
            key=key,
            certificate=reply.certificate,
            authority=reply.authority,
            ticket=identity.hash_of(word),
        )
        await asyncio.to_thread(identity.save, settings.state_dir, made)
        log.info("agent.enrolled", host=settings.host, host_id=reply.host_id)
        return made
