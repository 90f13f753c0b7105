"""The control API's part about hosts, for administrators.

GET  /moorage/v1/hosts                 every host
GET  /moorage/v1/hosts/{name}          one, with its certificates, and its guests with the verdict on each
POST /moorage/v1/hosts/{name}/ticket   a one-time enrolment ticket
POST /moorage/v1/hosts/{name}/revoke   its certificates count no more
"""

from datetime import datetime
from typing import Any

import msgspec

from moorage.agentlink.model import Host
from moorage.agentlink.service import AgentLink
from moorage.api import NO_QUERY, Call, Endpoint
from moorage.api.answers import many, one
from moorage.compute import guests
from moorage.store.database import Database
from moorage.wire.messages import GuestState, Verdict

ADMIN = "moorage:admin"


class ListedHost(msgspec.Struct, kw_only=True):
    id: str
    name: str
    up: bool
    disabled: bool
    disabled_reason: str | None
    protocol: int
    agent_version: str
    hypervisor_type: str | None
    last_seen: datetime | None


class JudgedGuest(GuestState, frozen=True, kw_only=True):
    """A guest, and whether it may run there."""

    verdict: Verdict


class ShownCertificate(msgspec.Struct):
    fingerprint: str
    issued_at: datetime
    expires_at: datetime


class ShownHost(ListedHost, kw_only=True):
    """``facts``: what the host last reported."""

    facts: dict[str, Any] | None
    guests: list[JudgedGuest]
    certificates: list[ShownCertificate]


class NewTicket(msgspec.Struct):
    """``ticket``: what `moorage agent` is given."""

    ticket: str
    host: str


class HostControl(msgspec.Struct, frozen=True):
    """What the handlers need."""

    database: Database
    link: AgentLink


async def list_hosts(call: Call[Any]) -> Any:
    """Every host, by name."""
    app: HostControl = call.app.hosts
    async with app.database.read() as tx:
        found = await app.link.registry.hosts(tx)
    return {"hosts": [_view(host, app.link) for host in found]}


async def show_host(call: Call[Any]) -> Any:
    """One host: what it reported, what it may show, what it runs and whether it may."""
    app: HostControl = call.app.hosts
    name = call.path["name"]
    async with app.database.read() as tx:
        host = await app.link.registry.host(tx, name)
        certificates = await app.link.registry.certificates(tx, name)
        verdicts = await guests.verdicts(tx, name, [guest["server_id"] for guest in host.guests])
    return {
        "host": {
            **_view(host, app.link),
            "facts": host.facts,
            "guests": [{**guest, "verdict": verdicts[guest["server_id"]]} for guest in host.guests],
            "certificates": [
                {"fingerprint": c.fingerprint.hex(), "issued_at": c.created_at, "expires_at": c.expires_at}
                for c in certificates
            ],
        }
    }


async def create_ticket(call: Call[Any]) -> Any:
    """A one-time ticket to enrol a host with."""
    app: HostControl = call.app.hosts
    async with app.database.transaction() as tx:
        ticket = await app.link.enrolment.create_ticket(tx, host=call.path["name"])
    return {"ticket": ticket, "host": call.path["name"]}


async def revoke_host(call: Call[Any]) -> None:
    """No certificate of the host counts any more."""
    app: HostControl = call.app.hosts
    async with app.database.transaction() as tx:
        await app.link.enrolment.revoke(tx, call.path["name"])


def _view(host: Host, link: AgentLink) -> dict[str, Any]:
    return {
        "id": host.id,
        "name": host.name,
        "up": host.up(link.service_down_time),
        "disabled": host.disabled,
        "disabled_reason": host.disabled_reason,
        "protocol": host.protocol,
        "agent_version": host.agent_version,
        "hypervisor_type": host.hypervisor_type,
        "last_seen": host.last_seen,
    }


HOST_ENDPOINTS = (
    Endpoint("GET", "/hosts", list_hosts, ADMIN, query=NO_QUERY, response=many("hosts", ListedHost)),
    Endpoint("GET", "/hosts/{name}", show_host, ADMIN, query=NO_QUERY, response=one("host", ShownHost)),
    Endpoint(
        "POST", "/hosts/{name}/ticket", create_ticket, ADMIN, query=NO_QUERY, status=201, response=NewTicket
    ),
    Endpoint("POST", "/hosts/{name}/revoke", revoke_host, ADMIN, query=NO_QUERY, status=204),
)
