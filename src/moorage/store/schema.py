"""The shared metadata object and the columns that every table has in the same form."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

Json = postgresql.JSONB
Timestamp = sa.DateTime(timezone=True)

# Names of constraints are part of the store's interface: violations are told apart by them.
metadata = sa.MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "pk": "%(table_name)s_pkey",
    }
)


def IdColumn(name: str = "id", *args: Any, **kw: Any) -> sa.Column[str]:  # noqa: N802  reads like sa.Column
    """A text primary key: a UUID in the form of the APIs."""
    return sa.Column(name, sa.Text, *args, primary_key=True, **kw)


def created_at() -> sa.Column[Any]:
    """When the row was made; the database's clock."""
    return sa.Column("created_at", Timestamp, nullable=False, server_default=sa.func.now())


def updated_at() -> sa.Column[Any]:
    """When the row last changed; NULL before the first change. Writers set it."""
    return sa.Column("updated_at", Timestamp, nullable=True)
