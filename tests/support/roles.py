"""Who sends requests: each kind of caller with a real credential."""

from collections.abc import Mapping

from moorage.agent import credentials
from tests.support.cloud import TestCloud

# column: (user, what its token is scoped to)
USERS: Mapping[str, tuple[str, str]] = {
    "other reader": ("other-reader", "project"),
    "other member": ("other", "project"),
    "other admin": ("other-admin", "project"),
    "reader": ("demo-reader", "project"),
    "member": ("demo", "project"),
    "manager": ("demo-manager", "project"),
    "admin": ("demo-admin", "project"),
    "system reader": ("demo-reader", "system"),
    "system admin": ("admin", "system"),
    "domain admin": ("demo-admin", "domain"),
    "service": ("glance", "project"),
}
CALLERS = ("nobody", "expired", *USERS, "host")


async def credentials_of(cloud: TestCloud) -> dict[str, dict[str, str]]:
    """The headers that each caller sends, by column."""
    identity = cloud.identity
    await identity.grant("demo-reader", "reader", on="system")
    await identity.grant("demo-admin", "admin", on="domains/default")
    found: dict[str, dict[str, str]] = {"nobody": {}}
    found["expired"] = {"X-Auth-Token": identity.expired(await identity.token("demo"))}
    for name, (user, scope) in USERS.items():
        found[name] = {"X-Auth-Token": await identity.token(user, scope)}
    host = next(iter(cloud.fleet.agents.values()))
    credential = credentials.load(host.settings.state_dir)
    assert credential is not None
    found["host"] = {"Authorization": f"Bearer {credential.secret}"}
    return found
