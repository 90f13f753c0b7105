"""What a cloud's identity service holds: projects, users with roles, and the catalogue.

``apply`` brings Keystone to what a plan says and may be repeated: what exists is kept, an endpoint whose address
changed is updated, nothing is removed. What an operator added stays.
"""

import asyncio
from collections.abc import Mapping

import msgspec

from moorage.children.credentials import Credentials
from moorage.children.identity import IdentityClient
from moorage.core.log import get_logger

log = get_logger(__name__)

INTERFACES = ("public", "internal", "admin")


class User(msgspec.Struct, frozen=True):
    """A user of the default domain and its roles on one project."""

    name: str
    project: str
    roles: tuple[str, ...]


class Service(msgspec.Struct, frozen=True):
    """An entry of the catalogue; one address for all three interfaces."""

    type: str
    name: str
    url: str


class Plan(msgspec.Struct, frozen=True):
    """All that a cloud wants to find in Keystone."""

    region: str
    projects: tuple[str, ...]
    users: tuple[User, ...]
    services: tuple[Service, ...]


REVOCATION = 1.1
"""Seconds. A changed password revokes the user's tokens by whole seconds: one made in the same second is born revoked."""

USERS = (
    User("admin", "admin", ("admin",)),
    User("demo", "demo", ("member",)),
    User("moorage", "service", ("service", "admin")),
    User("glance", "service", ("service",)),
)
PROJECTS = ("admin", "demo", "service")


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    """Where the cloud's APIs answer. ``baremetal`` is left out of the catalogue when it is None."""

    identity: str = "http://127.0.0.1:5000/v3"
    compute: str = "http://127.0.0.1:8774/v2.1"
    placement: str = "http://127.0.0.1:8778"
    network: str = "http://127.0.0.1:9696"
    image: str = "http://127.0.0.1:9292"
    baremetal: str | None = None


def cloud_plan(addresses: Addresses, region: str = "RegionOne") -> Plan:
    """The plan of a Moorage cloud."""
    entries: tuple[Service, ...] = (
        Service("identity", "keystone", addresses.identity),
        Service("compute", "nova", addresses.compute),
        Service("placement", "placement", addresses.placement),
        Service("network", "neutron", addresses.network),
        Service("image", "glance", addresses.image),
    )
    if addresses.baremetal is not None:
        entries += (Service("baremetal", "ironic", addresses.baremetal),)
    return Plan(region, PROJECTS, USERS, entries)


async def apply(
    auth_url: str, plan: Plan, credentials: Credentials, *, reset_passwords: bool = False
) -> Mapping[str, str]:
    """Bring Keystone to ``plan``, as its user admin; returns the ids of the projects by name.

    ``reset_passwords`` gives users that exist the passwords in ``credentials``: for a database that outlived its state
    folder. Raises ``IdentityRefused``.
    """
    async with IdentityClient(
        auth_url, username="admin", password=credentials["admin"], project="admin"
    ) as client:
        await _ensure_region(client, plan.region)
        projects, _ = await asyncio.gather(
            _ensure_projects(client, plan.projects), _ensure_catalogue(client, plan)
        )
        await _ensure_users(client, plan.users, projects, credentials, reset_passwords)
    return projects


async def _ensure_region(client: IdentityClient, region: str) -> None:
    found = await client.call("GET", "/regions")
    if region not in {each["id"] for each in found["regions"]}:
        await client.call("POST", "/regions", {"region": {"id": region}})


async def _ensure_projects(client: IdentityClient, names: tuple[str, ...]) -> dict[str, str]:
    found = await client.names("projects", domain_id="default")
    for name in names:
        if name not in found:
            made = await client.call("POST", "/projects", {"project": {"name": name, "domain_id": "default"}})
            found[name] = made["project"]["id"]
    return found


async def _ensure_catalogue(client: IdentityClient, plan: Plan) -> None:
    services, endpoints = await asyncio.gather(
        client.call("GET", "/services"), client.call("GET", "/endpoints", region_id=plan.region)
    )
    ids = {each["type"]: each["id"] for each in services["services"]}
    existing = {(each["service_id"], each["interface"]): each for each in endpoints["endpoints"]}
    for service in plan.services:
        if service.type not in ids:
            made = await client.call(
                "POST", "/services", {"service": {"type": service.type, "name": service.name}}
            )
            ids[service.type] = made["service"]["id"]
        for interface in INTERFACES:
            wanted = {"service_id": ids[service.type], "interface": interface, "url": service.url}
            found = existing.get((ids[service.type], interface))
            if found is None:
                await client.call("POST", "/endpoints", {"endpoint": {**wanted, "region_id": plan.region}})
            elif found["url"] != service.url:
                await client.call("PATCH", f"/endpoints/{found['id']}", {"endpoint": {"url": service.url}})


async def _ensure_users(
    client: IdentityClient,
    users: tuple[User, ...],
    projects: dict[str, str],
    credentials: Credentials,
    reset_passwords: bool,
) -> None:
    found, roles, assignments = await asyncio.gather(
        client.names("users", domain_id="default"),
        client.names("roles"),
        client.call("GET", "/role_assignments"),
    )
    held = {
        (each["user"]["id"], each["scope"].get("project", {}).get("id"), each["role"]["id"])
        for each in assignments["role_assignments"]
        if "user" in each
    }
    changed = False
    for user in users:
        if user.name not in found:
            body = {"name": user.name, "domain_id": "default", "password": credentials[user.name]}
            body["default_project_id"] = projects[user.project]
            made = await client.call("POST", "/users", {"user": body})
            found[user.name] = made["user"]["id"]
        elif reset_passwords and user.name != "admin":  # Keystone's own bootstrap set admin's
            body = {"password": credentials[user.name]}
            await client.call("PATCH", f"/users/{found[user.name]}", {"user": body})
            changed = True
        for role in user.roles:
            grant = (found[user.name], projects[user.project], roles[role])
            if grant not in held:
                await client.call("PUT", f"/projects/{grant[1]}/users/{grant[0]}/roles/{grant[2]}")
    if changed:
        await asyncio.sleep(REVOCATION)
