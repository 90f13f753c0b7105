"""Tickets, certificates, renewal, revocation: over real TLS on a real socket."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta

import aiohttp
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509 import CertificateSigningRequestBuilder, Name

from moorage.agent import identity
from moorage.agentlink.authority import Authority, AuthorityUnusable
from moorage.core.errors import BadRequest
from moorage.wire.messages import StartGuest
from moorage.wire.tickets import Ticket
from support.agent_server import PATIENCE, REPORT, AgentServer
from support.authority import HostClient, shown_by


@pytest.fixture
async def server(database_url: str) -> AsyncIterator[AgentServer]:
    async with AgentServer(database_url) as server:
        yield server


async def joined(server: AgentServer, name: str = "h1") -> HostClient:
    client = HostClient(server.url)
    status, _ = await client.enroll(name, await server.ticket(host=name))
    assert status == 201
    return client


async def polls(client: HostClient, wait: int = 0) -> int:
    status, _ = await client.request("GET", f"/commands?wait={wait}&after=1")
    return status


async def revoke(server: AgentServer, name: str = "h1") -> None:
    async with server.database.transaction() as tx:
        await server.link.enrolment.revoke(tx, name)


async def shut_out(client: HostClient) -> None:
    """Another process learns by a signal: soon, and for good."""
    async with asyncio.timeout(PATIENCE):
        while await polls(client) != 401:
            await asyncio.sleep(0.01)


async def polled(server: AgentServer) -> None:
    """The host's poll is waiting in the dispatcher."""
    async with asyncio.timeout(PATIENCE):
        while "h1" not in server.link._dispatcher._waiting:
            await asyncio.sleep(0.01)


# --- enrolment -----------------------------------------------------------------------------------------------------


async def test_a_ticket_is_used_once_and_its_certificate_opens_the_queue(server):
    ticket = await server.ticket()
    client = HostClient(server.url)
    assert (await client.enroll("h1", ticket))[0] == 201
    assert (await HostClient(server.url).enroll("h2", ticket))[0] == 401
    assert await polls(client) == 200
    async with server.database.read() as tx:
        assert [h.name for h in await server.link.registry.hosts(tx)] == ["h1"]


async def test_a_ticket_for_one_host_serves_no_other_and_enrols_it_again(server):
    client = await joined(server)
    assert (await HostClient(server.url).enroll("h2", await server.ticket(host="h1")))[0] == 401
    assert (await HostClient(server.url).enroll("h1", await server.ticket()))[0] == 409
    again = await joined(server)
    assert await polls(again) == 200
    assert await polls(client) == 401


async def test_an_enrolment_whose_answer_was_lost_is_repeated_with_the_same_key(server):
    ticket, key = await server.ticket(), identity.new_key()
    first = await HostClient(server.url).enroll("h1", ticket, key=key)
    client = HostClient(server.url)
    assert await client.enroll("h1", ticket, key=key) == first
    assert await polls(client) == 200
    # The key is this host's alone.
    assert (await HostClient(server.url).enroll("h2", ticket, key=key))[0] == 401


async def test_a_ticket_that_has_expired_is_useless(server):
    async with server.database.transaction() as tx:
        ticket = await server.link.enrolment.create_ticket(tx, lifetime=timedelta(seconds=-1))
    assert (await HostClient(server.url).enroll("h1", ticket))[0] == 401


async def test_the_store_holds_no_token_and_no_key(server):
    ticket, key = await server.ticket(), identity.new_key()
    await HostClient(server.url).enroll("h1", ticket, key=key)
    async with server.database.read() as tx:
        rows = await tx.fetch("SELECT to_jsonb(t) FROM enrollment_tokens t")
        rows += await tx.fetch("SELECT to_jsonb(c) FROM host_certificates c")
    kept = str([dict(row) for row in rows])
    assert Ticket.parse(ticket).token not in kept
    assert "PRIVATE" not in kept


@pytest.mark.parametrize("name", ["", "-h", "a b", "h\n", "../h", "h" * 256])
async def test_a_name_that_is_none_is_not_enrolled(server, name):
    status, answer = await HostClient(server.url).enroll(name, await server.ticket())
    assert status == 400
    assert "name" in str(answer)


def of_rsa():
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    made = CertificateSigningRequestBuilder().subject_name(Name([])).sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()


def with_another_key():
    """A request that its key has not signed."""
    one, two = (identity.request_for(identity.new_key()).splitlines() for _ in range(2))
    return "\n".join([*one[:3], *two[3:]])


@pytest.mark.parametrize("csr", ["", "nonsense", "x" * 100_000, "ä", of_rsa, with_another_key])
async def test_a_request_that_is_none_gets_no_certificate(server, csr):
    token = Ticket.parse(await server.ticket()).token
    made = csr if isinstance(csr, str) else csr()
    body = {"token": token, "csr": made, "name": "h1", "protocol": 4, "agent_version": "1"}
    status, content = await HostClient(server.url).request("POST", "/enroll", body)
    assert status == 400
    assert b"csr" in content or b"request" in content


async def test_an_agent_that_speaks_too_old_a_protocol_is_told_so(server):
    assert (await HostClient(server.url).enroll("h1", await server.ticket(), protocol=1))[0] == 400


@pytest.mark.parametrize("word", ["", "moorage1.", "moorage1.%%%", "moorage1.e30", "used"])
def test_a_word_that_is_no_ticket_is_told_so(word):
    with pytest.raises(BadRequest, match="moorage host enroll"):
        Ticket.parse(word)


async def test_the_first_contact_is_with_the_control_plane_of_the_ticket_or_with_nobody(server):
    other = Ticket(token="t", authority=Authority.create().bundle)
    client = HostClient(server.url, identity.trusting(other))
    with pytest.raises(aiohttp.ClientError, match="certificate verify failed"):
        await client.request("GET", "/commands?wait=0")


async def test_a_host_cannot_pass_for_the_control_plane(server, tmp_path):
    """Its certificate is for clients, and has another name: agents take it from no server."""
    key = identity.new_key()
    _, answer = await HostClient(server.url).enroll("h1", await server.ticket(), key=key)
    (tmp_path / "pair").write_text(key + answer["certificate"])
    impostor = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    impostor.load_cert_chain(tmp_path / "pair")
    listener = await asyncio.start_unix_server(lambda *_: None, tmp_path / "s", ssl=impostor)
    async with listener:
        agent = HostClient(f"https+unix://{tmp_path / 's'}", shown_by(key, answer["certificate"]))
        with pytest.raises(aiohttp.ClientError, match="unsuitable certificate purpose"):
            await agent.request("GET", "/commands?wait=0")


# --- revocation ----------------------------------------------------------------------------------------------------


async def test_a_revoked_host_is_shut_out_at_its_next_request(server):
    client, bystander = await joined(server), await joined(server, "h2")
    assert await polls(client) == 200
    await revoke(server)
    assert await polls(client) == 401
    assert await polls(bystander) == 200


async def test_a_poll_that_is_open_ends_when_its_host_is_revoked(server):
    client = await joined(server)
    waiting = asyncio.create_task(polls(client, wait=300))
    await polled(server)
    await revoke(server)
    async with asyncio.timeout(PATIENCE):
        assert await waiting == 401


async def test_every_process_learns_of_a_revocation(server, database_url):
    async with AgentServer(database_url) as other:
        client = await joined(server)
        there = HostClient(other.url, client.tls)
        assert await polls(there) == 200
        waiting = asyncio.create_task(polls(there, wait=300))
        await polled(other)
        await revoke(server)
        async with asyncio.timeout(PATIENCE):
            assert await waiting == 401
        await shut_out(there)


async def test_a_certificate_that_is_looked_up_while_it_is_revoked_is_not_remembered(server, database_url):
    async with AgentServer(database_url) as other:
        client = await joined(server)
        certificates = other.link.certificates

        class Interrupted:
            """The row is read, then revoked elsewhere, and the signal comes before the reader goes on."""

            @contextlib.asynccontextmanager
            async def read(self):
                certificates._database = other.database
                async with other.database.read() as tx:
                    yield tx
                await revoke(server)
                await certificates.look()

        certificates._database = Interrupted()
        there = HostClient(other.url, client.tls)
        assert await polls(there) == 401
        assert certificates._known == {}


async def test_what_is_sent_to_a_revoked_host_waits_for_its_return(server):
    await joined(server)
    await revoke(server)
    sent = await server.send("h1", StartGuest(server_id="g"), operation="op")
    again = await joined(server)
    status, content = await again.request("GET", "/commands?wait=0&after=0")
    assert status == 200
    assert sent.encode() in content


# --- renewal and expiry --------------------------------------------------------------------------------------------


async def age(server: AgentServer, left: timedelta) -> None:
    """Certificates issued so far end in ``left``, as this process sees it."""
    async with server.database.transaction() as tx:
        await tx.execute("UPDATE host_certificates SET expires_at = now() + $1", (left,))
    server.link.certificates._known.clear()


async def test_a_host_is_told_to_renew_when_a_third_of_its_certificates_life_is_left(server):
    client = await joined(server)
    assert await client.request("POST", "/report", REPORT) == (200, b'{"renew":false}')
    await age(server, timedelta(days=9))
    assert await client.request("POST", "/report", REPORT) == (200, b'{"renew":true}')


async def test_a_renewal_leaves_the_shown_certificate_for_an_answer_that_is_lost(server):
    client = await joined(server)
    old, made = client.tls, []
    for _ in range(3):
        key = identity.new_key()
        status, content = await client.request("POST", "/renew", {"csr": identity.request_for(key)})
        assert status == 200
        certificate = json.loads(content)["certificate"]
        made.append(HostClient(server.url, shown_by(key, certificate)))
    assert [await polls(c) for c in made] == [401, 401, 200]
    assert await polls(HostClient(server.url, old)) == 200
    # Once the new one has been shown, the next renewal ends the old.
    await made[2].request("POST", "/renew", {"csr": identity.request_for(identity.new_key())})
    assert await polls(HostClient(server.url, old)) == 401


async def test_a_certificate_ends_on_a_connection_that_is_kept_open(server):
    client = await joined(server)
    await age(server, timedelta(seconds=-1))
    assert await polls(client) == 401


async def test_rows_of_what_has_expired_are_forgotten(server):
    await joined(server)
    await server.ticket()
    async with server.database.transaction() as tx:
        assert await server.link.enrolment.prune(tx) == 0
        await tx.execute("UPDATE host_certificates SET expires_at = now() - interval '1 s'")
        await tx.execute("UPDATE enrollment_tokens SET expires_at = now() - interval '1 s'")
        assert await server.link.enrolment.prune(tx) == 3


# --- the authority's files -----------------------------------------------------------------------------------------


def test_the_authority_is_made_once_and_its_key_is_its_owners_alone(tmp_path):
    made = Authority.kept(tmp_path)
    assert Authority.kept(tmp_path).bundle == made.bundle
    key = tmp_path / "agents-ca.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert "PRIVATE" not in made.bundle
    key.chmod(0o640)
    with pytest.raises(AuthorityUnusable, match="chmod 600"):
        Authority.kept(tmp_path)


def test_a_key_and_certificates_that_do_not_belong_together_are_refused(tmp_path):
    Authority.kept(tmp_path)
    (tmp_path / "agents-ca.crt").write_text(Authority.create().bundle)
    with pytest.raises(AuthorityUnusable, match="belongs together"):
        Authority.kept(tmp_path)
    (tmp_path / "agents-ca.key").write_text("nonsense")
    with pytest.raises(AuthorityUnusable, match="PEM"):
        Authority.kept(tmp_path)
