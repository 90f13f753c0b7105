"""One role as a process of its own: what ``moorage api`` and ``moorage conductor`` run.

They need a PostgreSQL by URL whose schema is up to date (``moorage db upgrade``), and the operator's Keystone and Glance.
There may be any number of each. One that cannot begin ends with its reason: whoever supervises it starts it again.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from oslo_config import cfg

from moorage.core.errors import MoorageError
from moorage.server import migrations
from moorage.server.cloud import Cloud, Role, database_of, operators_identity
from moorage.server.threads import abandonable


class NotConfigured(MoorageError):
    """An option that a program of its own cannot do without is not set."""

    code = "server.not_configured"


class SchemaBehind(MoorageError):
    """The database's schema is older than this program needs."""

    code = "server.schema_behind"


_NEEDED = ("database_url", "identity_url", "identity_password")
# Each process for itself would make an authority that the others do not know.
_NEEDED_BY = {Role.API: ("agent_ca_key", "agent_ca_certs"), Role.CONDUCTOR: ()}


@asynccontextmanager
async def running(conf: cfg.ConfigOpts, role: Role) -> AsyncIterator[Cloud]:
    """One role, up while the block runs. Raises NotConfigured, SchemaBehind, StoreUnavailable, PortInUse."""
    missing = [name for name in (*_NEEDED, *_NEEDED_BY[role]) if not conf[name]]
    if missing:
        words = ", ".join(missing)
        raise NotConfigured(
            f"moorage {role} needs {words}: `moorage up` runs everything on one machine without"
        )
    database = database_of(conf, conf.database_url)
    async with AsyncExitStack() as stack:
        await database.open()
        stack.push_async_callback(database.close)
        if behind := await abandonable(partial(migrations.missing, conf.database_url)):
            raise SchemaBehind(
                f"the database lacks the revisions {', '.join(behind)}: run `moorage db upgrade` first"
            )
        cloud = Cloud(conf, database, operators_identity(conf), roles=frozenset({role}))
        stack.push_async_callback(cloud.stop)
        await cloud.start()
        yield cloud
