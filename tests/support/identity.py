"""A real Keystone (and Glance, if asked) for a test session: started once, on free ports, with quick password hashes.

async with identity(postgres.url(), folder) as found:
    token = await found.token("demo")
    await found.publish(Addresses(compute=...), region="RegionTwo")   # a catalogue for one cloud under test
"""

import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from cryptography.fernet import Fernet

from moorage.children import bootstrap, clouds
from moorage.children.bootstrap import Addresses, Plan, User
from moorage.children.identity import IdentityClient
from moorage.children.services import find_venv
from moorage.children.upstreams import Upstreams, UpstreamsSettings
from tests.support.ports import free_ports

USERS = (
    *bootstrap.USERS,
    User("demo-reader", "demo", ("reader",)),
    User("demo-manager", "demo", ("manager",)),
    User("demo-admin", "demo", ("admin",)),
    User("other", "other", ("member",)),
    User("other-reader", "other", ("reader",)),
    User("other-admin", "other", ("admin",)),
)
PROJECTS = (*bootstrap.PROJECTS, "other")


class Login(msgspec.Struct, frozen=True):
    """How one user enters its project."""

    username: str
    password: str
    project: str
    project_id: str


class Identity:
    """A running Keystone and what it takes to use it; ``users`` by name: admin, demo, demo-reader, other, ..."""

    def __init__(self, upstreams: Upstreams, users: dict[str, Login]) -> None:
        self.upstreams = upstreams
        self.auth_url = upstreams.auth_url
        self.image_url = upstreams.addresses.image
        self.users = users

    @property
    def service_password(self) -> str:
        """The password of the user ``moorage``, with which a control plane checks tokens."""
        return self.upstreams.credentials["moorage"]

    async def token(self, user: str, scope: str = "project") -> str:
        """A new token of a user, scoped to its project, the "system" or its "domain"."""
        login = self.users[user]
        domain = {"name": "Default"}
        scopes = {
            "project": {"project": {"name": login.project, "domain": domain}},
            "system": {"system": {"all": True}},
            "domain": {"domain": domain},
        }
        body = {
            "auth": {
                "identity": {
                    "methods": ["password"],
                    "password": {
                        "user": {"name": login.username, "domain": domain, "password": login.password}
                    },
                },
                "scope": scopes[scope],
            }
        }
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.auth_url}/auth/tokens", json=body) as answer,
        ):
            answer.raise_for_status()
            return answer.headers["X-Subject-Token"]

    async def grant(self, user: str, role: str, on: str) -> None:
        """Give a user a role on "system" or "domains/default"."""
        async with IdentityClient(
            self.auth_url, username="admin", password=self.users["admin"].password, project="admin"
        ) as client:
            users, roles = await client.names("users", domain_id="default"), await client.names("roles")
            await client.call("PUT", f"/{on}/users/{users[user]}/roles/{roles[role]}")

    def expired(self, token: str) -> str:
        """A token that Keystone made, as it would be an hour after its end: sealed anew with Keystone's own key."""
        keys = self.upstreams.settings.state / "keystone" / "fernet-keys"
        key = Fernet(max(keys.glob("[0-9]*"), key=lambda p: int(p.name)).read_bytes())
        # Fernet tokens lack their padding; inside is a list whose only float is the time of the end.
        facts = msgspec.msgpack.decode(key.decrypt(token + "=" * (-len(token) % 4)))
        past = [time.time() - 3600 if isinstance(each, float) else each for each in facts]
        return key.encrypt(msgspec.msgpack.encode(past)).decode().rstrip("=")

    async def publish(self, addresses: Addresses, region: str = "RegionOne") -> None:
        """Put a cloud's addresses into the catalogue; clouds under test at the same time each take a region."""
        own = self.upstreams.addresses
        merged = msgspec.structs.replace(addresses, identity=own.identity, image=own.image)
        await bootstrap.apply(self.auth_url, plan(merged, region), self.upstreams.credentials)

    def cloud(self, user: str, region: str = "RegionOne") -> dict[str, Any]:
        """One cloud of a clouds.yaml; also what ``openstack.connect(**cloud)`` takes."""
        login = self.users[user]
        return clouds.entry(
            self.auth_url,
            username=login.username,
            password=login.password,
            project=login.project,
            region=region,
        )

    def environ(self, user: str, region: str = "RegionOne") -> dict[str, str]:
        """The same as OS_* variables, for the `openstack` command."""
        login = self.users[user]
        return {
            "OS_AUTH_URL": self.auth_url,
            "OS_USERNAME": login.username,
            "OS_PASSWORD": login.password,
            "OS_PROJECT_NAME": login.project,
            "OS_USER_DOMAIN_NAME": "Default",
            "OS_PROJECT_DOMAIN_NAME": "Default",
            "OS_REGION_NAME": region,
            "OS_IDENTITY_API_VERSION": "3",
        }


def plan(addresses: Addresses, region: str = "RegionOne") -> Plan:
    """The usual plan with the second project and the readers."""
    usual = bootstrap.cloud_plan(addresses, region)
    return msgspec.structs.replace(usual, projects=PROJECTS, users=USERS)


def settings(postgres_url: str, folder: Path, *, images: bool = True, **changes: Any) -> UpstreamsSettings:
    """Settings for a test: free ports, quick hashes."""
    identity_port, image_port = free_ports(2)
    usual = UpstreamsSettings(
        venv=find_venv(),
        state=folder,
        postgres_url=postgres_url,
        identity_port=identity_port,
        image_port=image_port,
        # Several may share the session's PostgreSQL.
        identity_database=f"keystone_{identity_port}",
        image_database=f"glance_{image_port}",
        password_hash_rounds=4,
        with_images=images,
        plan=plan(
            Addresses(identity=f"http://127.0.0.1:{identity_port}/v3", image=f"http://127.0.0.1:{image_port}")
        ),
    )
    return msgspec.structs.replace(usual, **changes)


@contextlib.asynccontextmanager
async def identity(postgres_url: str, folder: Path, *, images: bool = False) -> AsyncIterator[Identity]:
    """Start Keystone, and Glance if ``images``; stop them at the end."""
    upstreams = Upstreams(settings(postgres_url, folder, images=images))
    await upstreams.start()
    try:
        users = {
            user.name: Login(
                user.name,
                upstreams.credentials[user.name],
                user.project,
                upstreams.project_ids[user.project],
            )
            for user in USERS
        }
        yield Identity(upstreams, users)
    finally:
        await upstreams.stop()
