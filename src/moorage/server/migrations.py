"""The schema's migrations: Alembic, with the revisions in ``versions`` beside this file."""

from functools import cache
from pathlib import Path

import psycopg
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from moorage.agentlink import tables as agentlink_tables
from moorage.compute import tables as compute_tables
from moorage.network import tables as network_tables
from moorage.operations import tables as operations_tables
from moorage.placement import tables as placement_tables
from moorage.store.errors import StoreUnavailable
from moorage.store.schema import metadata

# Importing them fills the metadata that migrations are compared with.
TABLES = (agentlink_tables, compute_tables, network_tables, operations_tables, placement_tables)
TARGET = metadata
_SCRIPTS = Path(__file__).with_name("schema")


def config(url: str) -> Config:
    """Alembic's configuration for a database URL; nothing is read from a file."""
    found = Config()
    found.set_main_option("script_location", str(_SCRIPTS))
    found.attributes["url"] = url
    return found


def engine(url: str) -> sa.Engine:
    """One that keeps no connection. The URL is read by libpq itself, as it may name several servers."""
    return sa.create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=sa.NullPool
    )


def upgrade(url: str, revision: str = "head") -> None:
    """Bring the database to a revision. Blocks; raises StoreUnavailable."""
    try:
        command.upgrade(config(url), revision)
    except sa.exc.OperationalError as error:
        raise StoreUnavailable(f"PostgreSQL does not answer: {error.orig}") from error


def missing(url: str) -> list[str]:
    """The revisions that this release knows and the database does not have, oldest first. Blocks.

    None where the database is at a revision that this release doesn't know: a newer release has upgraded it, which by
    the online rule (docs/contributing.md) older ones run with. Raises StoreUnavailable.
    """
    script = ScriptDirectory.from_config(config(url))
    try:
        with engine(url).connect() as connection:
            current = MigrationContext.configure(connection).get_current_revision()
    except sa.exc.OperationalError as error:
        raise StoreUnavailable(f"PostgreSQL does not answer: {error.orig}") from error
    known = [r.revision for r in script.walk_revisions()][::-1]
    if current is None:
        return known
    return known[known.index(current) + 1 :] if current in known else []


@cache
def outdated() -> frozenset[str | None]:
    """Revisions, and the lack of one, that this release's code cannot run against."""
    scripts = ScriptDirectory(str(_SCRIPTS))
    heads = set(scripts.get_heads())
    return frozenset(each.revision for each in scripts.walk_revisions()) - heads | {None}


def check(url: str) -> None:
    """Raise alembic's CommandError where the tables in the code differ from the migrations."""
    command.check(config(url))
