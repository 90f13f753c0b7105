"""A Placement server for other people's test suites.

Told by GABBI_LIVE_HOST, GABBI_LIVE_PORT, GABBI_LIVE_STATE and GABBI_LIVE_PROFILE; runs until SIGTERM. Each start
has a fresh database, copied from a template in one PostgreSQL that MOORAGE_TARGET_POSTGRES names as a URL;
without that it starts an embedded one of its own in the state folder. Tokens are those of these suites: `USER[:PROJECT]`, with
the roles in `X-Roles`, where the user `admin` is one.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import sqlalchemy as sa
import uvicorn

import moorage.placement.tables  # noqa: F401  (its tables join the metadata)
from moorage.api import RequestContext
from moorage.core.errors import Unauthorized
from moorage.placement.http.policies import DEFAULTS
from moorage.placement.http.routes import build_api
from moorage.placement.service import PlacementService
from moorage.store.database import Database
from moorage.store.embedded import FAST, EmbeddedPostgres
from moorage.store.schema import metadata
from moorage.store.signals import Signals


async def authenticate(headers: Mapping[str, str], request_id: str) -> RequestContext:
    """Read a test token."""
    token = headers.get("x-auth-token")
    if not token:
        raise Unauthorized("The request you have made requires authentication.")
    user, _, project = token.partition(":")
    roles = {role.strip().lower() for role in headers.get("x-roles", "").split(",") if role.strip()}
    if not roles and user == "admin":
        roles = {"admin"}
    return RequestContext(
        request_id=request_id,
        user_id=user,
        project_id=project or user,
        roles=frozenset(roles),
        system_scope=headers.get("openstack-system-scope") == "all",
    )


def prepare(url: str) -> None:
    """Make the tables in an empty database."""
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    metadata.create_all(engine)
    engine.dispose()


def fresh_database(state: Path) -> tuple[str, EmbeddedPostgres | None]:
    """Return the URL of an empty database with all tables, and the server to stop afterwards, if any."""
    shared = os.environ.get("MOORAGE_TARGET_POSTGRES")
    if shared is None:
        server = EmbeddedPostgres(state / "pg", FAST)
        server.start()
        server.create("placement")
        prepare(server.url("placement"))
        return server.url("placement"), server
    name = f"target_{os.getpid()}"
    admin = sa.create_engine(
        shared.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT"
    )
    with admin.connect() as connection:
        template = connection.scalar(
            sa.text("SELECT 1 FROM pg_database WHERE datname = 'placement_template'")
        )
        if not template:
            connection.execute(sa.text("CREATE DATABASE placement_template"))
            prepare(_named(shared, "placement_template"))
        connection.execute(sa.text(f'CREATE DATABASE "{name}" TEMPLATE placement_template'))
    admin.dispose()
    return _named(shared, name), None


def _named(url: str, name: str) -> str:
    return sa.make_url(url).set(database=name).render_as_string(hide_password=False)


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


async def serve(url: str, host: str, port: int, policy: str | None) -> None:
    """Serve until SIGTERM."""
    database = Database(url)
    await database.open()
    signals = Signals(database)
    await signals.start()
    service = PlacementService(database, signals)
    await service.start()
    follower = asyncio.create_task(service.follower.run())
    config = uvicorn.Config(
        build_api(service, authenticate=authenticate, policy_file=policy),
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
    url, server = fresh_database(state)
    policy = policy_file(state, os.environ.get("GABBI_LIVE_PROFILE", "default"))
    try:
        asyncio.run(serve(url, os.environ["GABBI_LIVE_HOST"], int(os.environ["GABBI_LIVE_PORT"]), policy))
    except KeyboardInterrupt:
        pass
    finally:
        if server is not None:
            server.stop()


if __name__ == "__main__":
    main()
