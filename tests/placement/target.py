"""A Placement server for other people's test suites (see `conformance.py`).

Told by GABBI_LIVE_HOST, GABBI_LIVE_PORT, GABBI_LIVE_STATE and GABBI_LIVE_PROFILE; runs until SIGTERM. Each start
has a fresh database, copied from a template in the PostgreSQL that MOORAGE_TARGET_POSTGRES names as a URL; without
that it starts an embedded one of its own in the state folder, which takes two seconds more. Tokens are those of these
suites: `USER[:PROJECT]`, with the roles in `X-Roles`, where the user `admin` is one; `X-Project-Id` names another project.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import sqlalchemy as sa
import uvicorn
from psycopg import sql

from moorage.api import RequestContext
from moorage.api import config as api_config
from moorage.core.config import load
from moorage.core.errors import Unauthorized
from moorage.placement.http.policies import DEFAULTS
from moorage.placement.http.routes import build_api
from moorage.placement.service import PlacementService
from moorage.store.database import Database
from moorage.store.embedded import FAST, EmbeddedPostgres
from moorage.store.signals import Signals

SERVER = "MOORAGE_TARGET_POSTGRES"
TEMPLATE = "placement_template"


async def authenticate(headers: Mapping[str, str], request_id: str) -> RequestContext:
    """Read a test token."""
    token = headers.get("x-auth-token")
    if not token:
        raise Unauthorized("The request you have made requires authentication.")
    user, _, project = token.partition(":")
    project = headers.get("x-project-id", project)
    roles = {role.strip().lower() for role in headers.get("x-roles", "").split(",") if role.strip()}
    if not roles and user == "admin":
        roles = {"admin"}
    system = headers.get("openstack-system-scope") == "all"
    return RequestContext(
        request_id=request_id,
        user_id=user,
        project_id=None if system else project or user,
        roles=frozenset(roles),
        system_scope=system,
    )


def make_template(server: EmbeddedPostgres) -> None:
    """Make the database that each start copies."""
    from moorage.server import migrations

    server.create(TEMPLATE)
    migrations.upgrade(server.url(TEMPLATE))


@contextmanager
def fresh_database(state: Path) -> Iterator[str]:
    """Give the URL of an empty database with all tables, and take it away afterwards."""
    shared = os.environ.get(SERVER)
    own = None
    if shared is None:
        own = EmbeddedPostgres(state / "pg", FAST)
        own.start()
        make_template(own)
        shared = own.url()
    name = f"target_{os.getpid()}"
    new, template = sql.Identifier(name), sql.Identifier(TEMPLATE)
    with psycopg.connect(shared, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(new, template))
        try:
            yield sa.make_url(shared).set(database=name).render_as_string(hide_password=False)
        finally:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(new))
    if own is not None:
        own.stop()


def policy_file(state: Path, profile: str) -> str | None:
    """Write the policy of a profile; None for the defaults."""
    if profile == "open-policy":
        rules = dict.fromkeys(DEFAULTS, "@")
    elif profile == "secure-rbac":
        rules = {"placement:reshaper:reshape": "role:service and not system_scope:all"}
    else:
        return None
    path = state / "policy.yaml"
    path.write_text("".join(f'"{name}": "{check}"\n' for name, check in rules.items()))
    return str(path)


async def serve(url: str, host: str, port: int, profile: str, state: Path) -> None:
    """Serve until SIGTERM."""
    database = Database(url)
    await database.open()
    signals = Signals(database)
    await signals.start()
    service = PlacementService(database, signals)
    await service.start()
    follower = asyncio.create_task(service.follower.run())
    api = build_api(service, authenticate=authenticate, policy_file=policy_file(state, profile))
    origins = {"allowed_origin": ["http://valid.example.com"], "allow_headers": ["openstack-api-version"]}
    allowed = {f"cors.{name}": value for name, value in origins.items()} if profile == "cors" else {}
    config = uvicorn.Config(
        api_config.with_cors(load(api_config.options(), overrides=allowed), api),
        host=host,
        port=port,
        log_level="warning",
        lifespan="off",
    )
    await uvicorn.Server(config).serve()
    follower.cancel()
    await asyncio.gather(follower, return_exceptions=True)
    await signals.stop()
    await database.close()


def main() -> None:
    """Run the target."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    state = Path(os.environ["GABBI_LIVE_STATE"])
    profile = os.environ.get("GABBI_LIVE_PROFILE", "default")
    address = os.environ["GABBI_LIVE_HOST"], int(os.environ["GABBI_LIVE_PORT"])
    with fresh_database(state) as url, suppress(KeyboardInterrupt):
        asyncio.run(serve(url, *address, profile, state))


if __name__ == "__main__":
    main()
