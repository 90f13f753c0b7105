"""Operations: whose they are and their turn, one begun operation of a subject, the state and event "abandoned"."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_STATES = "'ready', 'running', 'waiting', 'done', 'failed', 'cancelled', 'stuck'"
_EVENTS = "'started', 'succeeded', 'failed', 'undo_started', 'undone', 'undo_failed'"
_OPEN = sa.text("state IN ('ready', 'running', 'waiting', 'stuck')")
_BEGUN = sa.text("state IN ('ready', 'running', 'waiting', 'stuck') AND fence > 0")
_QUEUED = sa.text("state = 'ready' AND fence = 0")


def upgrade() -> None:
    """Forward."""
    op.add_column("operations", sa.Column("project", sa.Text(), server_default="", nullable=False))
    op.add_column("operations", sa.Column("turn", sa.BigInteger(), server_default="0", nullable=False))
    _check("operations", "state", f"{_STATES}, 'abandoned'")
    _check("operation_steps", "event", f"{_EVENTS}, 'abandoned'")
    op.drop_index("operations_open_idx", table_name="operations")
    op.create_index(
        "operations_turn_idx", "operations", ["priority", "turn", "seq"], unique=False, postgresql_where=_OPEN
    )
    op.create_index(
        "operations_queued_idx", "operations", ["priority", "turn"], unique=False, postgresql_where=_QUEUED
    )
    op.create_index(
        "operations_queued_project_idx",
        "operations",
        ["project", "priority", "turn"],
        unique=False,
        postgresql_where=_QUEUED,
    )
    op.create_index(
        "operations_begun_subject_idx", "operations", ["subject"], unique=True, postgresql_where=_BEGUN
    )


def downgrade() -> None:
    """Back. What was abandoned is called failed; the log's lines of it go."""
    op.execute("UPDATE operations SET state = 'failed' WHERE state = 'abandoned'")
    op.execute("DELETE FROM operation_steps WHERE event = 'abandoned'")
    for name in ("begun_subject", "queued_project", "queued", "turn"):
        op.drop_index(f"operations_{name}_idx", table_name="operations")
    op.create_index(
        "operations_open_idx", "operations", ["priority", "seq"], unique=False, postgresql_where=_OPEN
    )
    _check("operation_steps", "event", _EVENTS)
    _check("operations", "state", _STATES)
    op.drop_column("operations", "turn")
    op.drop_column("operations", "project")


def _check(table: str, column: str, values: str) -> None:
    name = op.f(f"{table}_{column}_check")
    op.drop_constraint(name, table, type_="check")
    op.create_check_constraint(name, table, f"{column} IN ({values})")
