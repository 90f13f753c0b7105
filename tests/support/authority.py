"""One certificate authority for the clouds of a test run, and a host's side of the wire spoken by hand."""

import json
import ssl
from typing import Any

import aiohttp

from moorage.agent import identity
from moorage.agent.identity import Identity
from moorage.agent.link import TlsUnixConnector
from moorage.agentlink.authority import Authority
from moorage.wire.coding import encode
from moorage.wire.tickets import CONTROL_NAME, Ticket

AUTHORITY = Authority.create()


class HostClient:
    """Requests to the agents' API behind a socket or a port; answers are (status, bytes)."""

    def __init__(self, url: str, tls: ssl.SSLContext | None = None) -> None:
        self.url = url
        self.tls = tls or nobody()

    async def request(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """One request on a connection of its own; ``path`` begins with a slash, below /agent/v1."""
        socket = self.url.removeprefix("https+unix://")
        connector = TlsUnixConnector(socket) if socket != self.url else aiohttp.TCPConnector()
        base = f"https://{CONTROL_NAME}" if socket != self.url else self.url
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(
                method,
                f"{base}/agent/v1{path}",
                data=None if body is None else encode(body),
                headers={"Content-Type": "application/json"},
                ssl=self.tls,
                server_hostname=CONTROL_NAME,
            ) as answer,
        ):
            return answer.status, await answer.read()

    async def enroll(self, name: str, ticket: str, *, key: str | None = None, protocol: int = 4) -> Any:
        """(status, body as a dict); from then on this is that host."""
        key = key or identity.new_key()
        body = {
            "token": Ticket.parse(ticket).token,
            "csr": identity.request_for(key),
            "name": name,
            "protocol": protocol,
            "agent_version": "1",
        }
        status, content = await self.request("POST", "/enroll", body)
        answer = json.loads(content)
        if status == 201:
            self.tls = shown_by(key, answer["certificate"])
        return status, answer


def shown_by(key: str, certificate: str, authority: str | None = None) -> ssl.SSLContext:
    """A client that shows a certificate and trusts the authority of this run."""
    return identity.context_of(
        Identity(
            host_id="", key=key, certificate=certificate, authority=authority or AUTHORITY.bundle, ticket=""
        )
    )


def nobody() -> ssl.SSLContext:
    """A client that shows nothing."""
    return identity.trusting(Ticket(token="", authority=AUTHORITY.bundle))
