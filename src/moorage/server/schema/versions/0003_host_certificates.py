"""Certificates of hosts; the user's request behind a command."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Forward."""
    op.create_table(
        "host_certificates",
        sa.Column("fingerprint", sa.LargeBinary(), nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("certificate", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["host"], ["hosts.name"], name=op.f("host_certificates_host_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("fingerprint", name=op.f("host_certificates_pkey")),
    )
    op.create_index(op.f("host_certificates_host_idx"), "host_certificates", ["host"], unique=False)
    op.create_index(op.f("host_certificates_key_idx"), "host_certificates", ["key"], unique=False)
    op.add_column("commands", sa.Column("request_id", sa.Text(), nullable=True))


def downgrade() -> None:
    """Back."""
    op.drop_column("commands", "request_id")
    op.drop_index(op.f("host_certificates_key_idx"), table_name="host_certificates")
    op.drop_index(op.f("host_certificates_host_idx"), table_name="host_certificates")
    op.drop_table("host_certificates")
