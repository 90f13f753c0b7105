"""What is under way at a host, or waits for room there."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
_AT_HOST = "COALESCE(data ->> '_room', data ->> '_host')"


def upgrade() -> None:
    """Forward."""
    op.create_index(
        "operations_at_host_idx",
        "operations",
        [sa.text(_AT_HOST)],
        unique=False,
        postgresql_where=sa.text(
            "state IN ('ready', 'running', 'waiting', 'stuck') AND (sent OR data ? '_room')"
        ),
    )


def downgrade() -> None:
    """Back."""
    op.drop_index("operations_at_host_idx", table_name="operations")
