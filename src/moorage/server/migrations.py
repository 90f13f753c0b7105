"""The schema's migrations: Alembic, with the revisions in ``versions`` beside this file."""

from pathlib import Path

from alembic import command
from alembic.config import Config

from moorage.agentlink import tables as agentlink_tables
from moorage.compute import tables as compute_tables
from moorage.network import tables as network_tables
from moorage.operations import tables as operations_tables
from moorage.placement import tables as placement_tables
from moorage.store.schema import metadata

# Importing them fills the metadata that migrations are compared with.
TABLES = (agentlink_tables, compute_tables, network_tables, operations_tables, placement_tables)
TARGET = metadata
_SCRIPTS = Path(__file__).with_name("schema")


def config(url: str) -> Config:
    """Alembic's configuration for a database URL; nothing is read from a file."""
    found = Config()
    found.set_main_option("script_location", str(_SCRIPTS))
    found.attributes["url"] = url.replace("postgresql://", "postgresql+psycopg://", 1)
    return found


def upgrade(url: str, revision: str = "head") -> None:
    """Bring the database to a revision. Blocks."""
    command.upgrade(config(url), revision)


def check(url: str) -> None:
    """Raise alembic's CommandError where the tables in the code differ from the migrations."""
    command.check(config(url))
