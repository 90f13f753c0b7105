"""Who gets what: every route that hosts can reach, asked with every credential that is not the host's own.

The routes are read from the application. One that is new has no row in ``ASKS``, and fails the test.
"""

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from cryptography import x509

from moorage.agent import identity
from moorage.agentlink.authority import Authority
from moorage.agentlink.http.auth import HostAuthenticator
from moorage.core.clock import utcnow
from moorage.server.agents import agent_app
from moorage.server.images import ImageProxy
from moorage.server.listeners import Listeners
from moorage.wire.messages import StartGuest
from moorage.wire.tickets import Ticket
from support.agent_server import REPORT, AgentServer
from support.authority import AUTHORITY, HostClient, shown_by
from tests.support.faces import rows_of

IMAGES = "/agent/v1/images"
CSR = identity.request_for(identity.new_key())
# By route: what another host asks of h1's, with the path's end; the answer that it gets; both with h1's things in them.
ASKS: dict[str, tuple[str, Any, tuple[int, bytes]]] = {
    "POST /enroll": ("", "enroll", (401, b"token_invalid")),
    "POST /renew": ("", {"csr": CSR}, (200, b"certificate")),
    "POST /guests": ("", {"guests": ["h1-guest"]}, (200, b"verdicts")),
    "GET /commands": ("?wait=0&after=0", None, (200, b'{"commands":[]}')),
    "POST /results": ("", "results", (404, b"command_unknown")),
    "POST /events": (
        "",
        {"events": [{"kind": "guest.power", "data": {"server_id": "h1-guest"}}]},
        (204, b""),
    ),
    "POST /report": ("", REPORT, (200, b"renew")),
    "GET /images/{image_id}": ("", None, (404, b"no server on this host")),
}

SERVER = """
    INSERT INTO servers (id, project_id, user_id, name, hostname, reservation_id, flavor, vcpus, memory_mb, disk_gb,
        image_id, host, vm_state)
    VALUES ('h1-guest', 'p', 'u', 's', 's', 'r', '{}', 1, 512, 1, 'h1-image', 'h1', 'active')
"""


async def token() -> str:
    """What the image service would be asked with, if there was one."""
    return "token"


class Served:
    """The agents' application of one process, behind TLS on a port; h1 has a server and a command, h2 is another host."""

    def __init__(self, server: AgentServer, url: str, app: Any) -> None:
        self.server, self.url = server, url
        self.routes = [
            (row.endpoint.method, row.path.removeprefix("/agent/v1"))
            for row in rows_of(SimpleNamespace(apps={"agent": app}))  # type: ignore[arg-type]
            if row.api == "agent"
        ]
        self.own: HostClient
        self.command = ""
        self.spent = ""

    async def joined(self, name: str) -> HostClient:
        """A host that has enrolled."""
        client = HostClient(self.url)
        self.spent = await self.server.ticket(host=name)
        status, _ = await client.enroll(name, self.spent)
        assert status == 201
        return client

    async def ask(self, client: HostClient, method: str, path: str) -> tuple[int, bytes]:
        end, body, _ = ASKS[f"{method} {path}"]
        if body == "enroll":
            token = Ticket.parse(self.spent).token
            body = {"token": token, "csr": CSR, "name": "h1", "protocol": 4, "agent_version": "1"}
        elif body == "results":
            done = {"operation": "op", "step": "do", "fence": 1, "outcome": "succeeded"}
            body = {"results": [{"command_id": self.command, **done}]}
        return await client.request(method, path.replace("{image_id}", "h1-image") + end, body)


@pytest.fixture
async def served(database_url: str) -> AsyncIterator[Served]:
    async with AgentServer(database_url) as server, contextlib.AsyncExitStack() as stack:
        hosts = HostAuthenticator(server.link.certificates)
        images = ImageProxy(server.database, hosts, token, "http://127.0.0.1:1")
        stack.push_async_callback(images.close)
        app, listeners = agent_app(server.link, images, IMAGES), Listeners()
        port = listeners.add(app, "127.0.0.1", 0, tls=AUTHORITY.server_context())
        await listeners.start()
        stack.push_async_callback(listeners.stop)
        found = Served(server, f"https://127.0.0.1:{port}", app)
        found.own = await found.joined("h1")
        async with server.database.transaction() as tx:
            await tx.execute(SERVER)
        found.command = await server.send("h1", StartGuest(server_id="h1-guest"), operation="op")
        yield found


def signed_by(authority: Authority) -> HostClient:
    key = identity.new_key()
    return HostClient("", shown_by(key, authority.sign_host(identity.request_for(key), "h1").pem))


def expired() -> HostClient:
    """Ours, of a month and a day ago."""
    trusted = x509.load_pem_x509_certificates(AUTHORITY.bundle.encode())
    return signed_by(Authority(AUTHORITY._key, trusted, clock=lambda: utcnow() - timedelta(days=31)))


def self_signed() -> HostClient:
    """Its own authority."""
    own = Authority.create()
    return HostClient("", shown_by(own.key_pem.decode(), own.bundle))


def test_every_route_that_hosts_can_reach_has_a_row(served):
    assert sorted(f"{method} {path}" for method, path in served.routes) == sorted(ASKS)


async def test_another_hosts_credential_reads_and_changes_nothing(served):
    other = await served.joined("h2")
    for method, path in served.routes:
        expected = ASKS[f"{method} {path}"][2]
        status, content = await served.ask(other, method, path)
        assert (status, expected[1] in content) == (expected[0], True), (method, path, status, content)
    # What did get through was heard as h2's own word: h1 is as it was, and its command still waits.
    assert {host for host, _ in served.server.events} == {"h2"}
    assert {host for host, _ in served.server.judged} == {"h2"}
    assert {host for host, _ in served.server.reports} == {"h2"}
    assert served.server.results == {}
    async with served.server.database.read() as tx:
        registry = served.server.link.registry
        assert (await registry.host(tx, "h1")).facts is None
        assert [len(await registry.certificates(tx, name)) for name in ("h1", "h2")] == [1, 2]


async def test_a_host_gets_the_image_of_its_own_server_and_no_other(served):
    # Past the question who may have it, the image service is asked, which is not there.
    assert (await served.own.request("GET", "/images/h1-image"))[0] == 503
    assert (await served.own.request("GET", "/images/another-image"))[0] == 404
    async with served.server.database.transaction() as tx:
        await tx.execute("UPDATE servers SET deleted_at = now()")
    assert (await served.own.request("GET", "/images/h1-image"))[0] == 404


async def test_a_revoked_credential_opens_nothing(served):
    revoked = await served.joined("h3")
    async with served.server.database.transaction() as tx:
        await served.server.link.enrolment.revoke(tx, "h3")
    for method, path in served.routes:
        assert (await served.ask(revoked, method, path))[0] == 401, (method, path)


async def test_without_a_credential_there_is_nothing(served):
    for method, path in served.routes:
        assert (await served.ask(HostClient(served.url), method, path))[0] == 401, (method, path)


@pytest.mark.parametrize("made", [expired, self_signed, lambda: signed_by(Authority.create())])
async def test_what_the_authority_has_not_signed_or_not_for_now_gets_no_connection(served, made):
    client = made()
    client.url = served.url
    for method, path in served.routes:
        with pytest.raises((aiohttp.ClientError, OSError)):
            await served.ask(client, method, path)


async def test_a_header_or_a_signature_alone_is_no_credential(served):
    """A certificate that is ours and valid, but has no row: such as one from a backup of another cloud's store."""
    client = signed_by(AUTHORITY)
    client.url = served.url
    for method, path in served.routes:
        assert (await served.ask(client, method, path))[0] == 401, (method, path)
