"""What the resources' modules share: showing one row by id within a project, and changing one with its revision."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from moorage.network import errors
from moorage.store.database import Tx
from moorage.store.statement import execute

# The project whose things are seen; None sees every project's.
PROJECT: sa.BindParameter[str] = sa.bindparam("project_id", type_=sa.Text)


def seen(table: sa.Table, *also: Any) -> Any:
    """SQL: the row is the project's (or everything is seen), or one of the other conditions holds."""
    return sa.or_(PROJECT.is_(None), table.c.project_id == PROJECT, *also)


async def update(
    tx: Tx, table: sa.Table, row_id: str, values: Mapping[str, Any], revision: int | None = None
) -> None:
    """Set columns of a row and count its revision up.

    Raises RevisionNumberConstraintFailed when ``revision`` is given and is not the row's.
    """
    statement = (
        sa.update(table)
        .where(table.c.id == row_id)
        .values(**values, revision_number=table.c.revision_number + 1, updated_at=sa.func.now())
    )
    if revision is not None:
        statement = statement.where(table.c.revision_number == revision)
    if await execute(tx, statement) == 0:
        raise errors.RevisionNumberConstraintFailed(
            f"Constrained to revision_number {revision}, which is not the present one; read it again."
        )
