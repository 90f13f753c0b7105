"""Hosts, their certificates and tokens (hashes only), and the queue of commands."""

import sqlalchemy as sa

from moorage.store.schema import IdColumn, Json, Timestamp, created_at, metadata, updated_at

hosts = sa.Table(
    "hosts",
    metadata,
    IdColumn(),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("disabled", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("disabled_reason", sa.Text),
    sa.Column("protocol", sa.Integer, nullable=False),
    sa.Column("agent_version", sa.Text, nullable=False),
    sa.Column("hypervisor_type", sa.Text),
    # The last report without its guests; NULL until the host has reported.
    sa.Column("facts", Json),
    sa.Column("guests", Json, nullable=False, server_default=sa.text("'[]'")),
    # Written at most about every ten seconds.
    sa.Column("last_seen", Timestamp),
    created_at(),
    updated_at(),
)

# A row is the right to use the certificate; revoking deletes it.
host_certificates = sa.Table(
    "host_certificates",
    metadata,
    # SHA-256 of the certificate's DER form, and of its public key.
    sa.Column("fingerprint", sa.LargeBinary, primary_key=True),
    sa.Column("key", sa.LargeBinary, nullable=False, index=True),
    sa.Column("host", sa.Text, sa.ForeignKey("hosts.name", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("certificate", sa.Text, nullable=False),
    sa.Column("expires_at", Timestamp, nullable=False),
    created_at(),
)

# Bearer credentials of release 0.1: nothing reads them. The table goes with the release after the next.
host_credentials = sa.Table(
    "host_credentials",
    metadata,
    sa.Column("hash", sa.LargeBinary, primary_key=True),
    sa.Column("host", sa.Text, sa.ForeignKey("hosts.name", ondelete="CASCADE"), nullable=False, index=True),
    created_at(),
)

enrollment_tokens = sa.Table(
    "enrollment_tokens",
    metadata,
    sa.Column("hash", sa.LargeBinary, primary_key=True),
    # The one host it is for; NULL: any new name.
    sa.Column("host", sa.Text),
    sa.Column("uses_left", sa.Integer, nullable=False),
    sa.Column("expires_at", Timestamp, nullable=False),
    created_at(),
    sa.CheckConstraint("uses_left >= 0", name="uses_left"),
)

commands = sa.Table(
    "commands",
    metadata,
    IdColumn(),
    sa.Column("seq", sa.BigInteger, sa.Identity(), nullable=False),
    sa.Column("host", sa.Text, sa.ForeignKey("hosts.name"), nullable=False),
    sa.Column("operation", sa.Text, nullable=False),
    sa.Column("step", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("fence", sa.BigInteger, nullable=False),
    # Emptied when the command has ended: it may hold a user's token.
    sa.Column("payload", Json, nullable=False),
    sa.Column("deadline", Timestamp),
    sa.Column("delivered_at", Timestamp),
    sa.Column("finished_at", Timestamp),
    sa.Column("outcome", sa.Text),
    sa.Column("error", Json),
    # The user's request behind it, for the logs of the host.
    sa.Column("request_id", sa.Text),
    created_at(),
    sa.UniqueConstraint("operation", "step", "kind", "fence", "host"),
)

sa.Index("commands_unfinished_idx", commands.c.host, postgresql_where=commands.c.finished_at.is_(None))
sa.Index("commands_finished_at_idx", commands.c.finished_at, postgresql_using="brin")

# Answers to calls, each taken by the request that waits for it (agentlink.calls).
call_results = sa.Table(
    "call_results",
    metadata,
    IdColumn(),
    sa.Column("result", Json, nullable=False),
    created_at(),
)
