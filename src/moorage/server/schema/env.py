"""Alembic's environment: one connection, the metadata of all domains."""

import sqlalchemy as sa
from alembic import context

from moorage.server.migrations import TARGET, engine

with engine(context.config.attributes["url"]).connect() as connection:
    context.configure(connection=connection, target_metadata=TARGET, transaction_per_migration=True)
    with context.begin_transaction():
        # Two processes that start at once migrate one after the other.
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(4242)"))
        context.run_migrations()
