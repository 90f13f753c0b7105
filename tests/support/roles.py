"""Who sends requests: each kind of caller with a real credential."""

import hashlib
import ssl
from collections.abc import Mapping
from typing import Any

from moorage.agent import identity as agent_identity
from moorage.api.auth import PEER
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
_SHOWN = "x-shown-certificate"
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
    known = agent_identity.load(host.settings.state_dir)
    assert known is not None
    der = ssl.PEM_cert_to_DER_cert(known.certificate)
    found["host"] = {_SHOWN: hashlib.sha256(der).hexdigest()}
    return found


def shown(app: Any) -> Any:
    """``app``, asked over connections whose sender has shown the certificate that the host's header names."""

    async def asked(scope: Any, receive: Any, send: Any) -> None:
        named = dict(scope["headers"]).get(_SHOWN.encode())
        peer = bytes.fromhex(named.decode()) if named else None
        await app({**scope, PEER: peer}, receive, send)

    return asked
