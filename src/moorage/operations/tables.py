"""Operations and the log of their steps."""

import sqlalchemy as sa

from moorage.store.schema import IdColumn, Json, Timestamp, created_at, metadata, updated_at

operations = sa.Table(
    "operations",
    metadata,
    IdColumn(),
    sa.Column("seq", sa.BigInteger, sa.Identity(always=True), nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("direction", sa.Text, nullable=False, server_default="forward"),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    # Whose it is, and its turn among those of all projects that have not begun: nobody's flood goes before others.
    sa.Column("project", sa.Text, nullable=False, server_default=""),
    sa.Column("turn", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("params", Json, nullable=False),
    # Where it is: the step's name, whether its command is out, and the round (each jump back begins one).
    sa.Column("step", sa.Text, nullable=False),
    sa.Column("sent", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("round", sa.Integer, nullable=False, server_default="0"),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("undo_to", sa.Text),
    sa.Column("data", Json, nullable=False),
    sa.Column("refusals", Json, nullable=False),
    sa.Column("inbox", Json),
    sa.Column("error", Json),
    sa.Column("cancel", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("wakes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("owner", sa.Text),
    sa.Column("fence", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("lease_until", Timestamp),
    sa.Column("wake_at", Timestamp),
    sa.Column("request_id", sa.Text),
    created_at(),
    updated_at(),
    sa.CheckConstraint(
        "state IN ('ready', 'running', 'waiting', 'done', 'failed', 'cancelled', 'stuck', 'abandoned')",
        name="state",
    ),
    sa.CheckConstraint("direction IN ('forward', 'undo')", name="direction"),
)
_OPEN = sa.text("state IN ('ready', 'running', 'waiting', 'stuck')")
sa.Index("operations_open_subject_idx", operations.c.subject, operations.c.seq, postgresql_where=_OPEN)
sa.Index(
    "operations_turn_idx", operations.c.priority, operations.c.turn, operations.c.seq, postgresql_where=_OPEN
)
_QUEUED = sa.text("state = 'ready' AND fence = 0")
sa.Index("operations_queued_idx", operations.c.priority, operations.c.turn, postgresql_where=_QUEUED)
sa.Index(
    "operations_queued_project_idx",
    operations.c.project,
    operations.c.priority,
    operations.c.turn,
    postgresql_where=_QUEUED,
)
# One operation of a subject at a time: a second one cannot begin, whoever tries.
sa.Index(
    "operations_begun_subject_idx",
    operations.c.subject,
    unique=True,
    postgresql_where=sa.text("state IN ('ready', 'running', 'waiting', 'stuck') AND fence > 0"),
)

# What is under way at a host, or waits for room there: `room`.
AT_HOST = "COALESCE(data ->> '_room', data ->> '_host')"
IS_AT_HOST = "state IN ('ready', 'running', 'waiting', 'stuck') AND (sent OR data ? '_room')"
sa.Index("operations_at_host_idx", sa.text(AT_HOST), postgresql_where=sa.text(IS_AT_HOST), _table=operations)

operation_steps = sa.Table(
    "operation_steps",
    metadata,
    sa.Column(
        "operation",
        sa.Text,
        sa.ForeignKey("operations.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    sa.Column("round", sa.Integer, primary_key=True),
    sa.Column("step", sa.Text, primary_key=True),
    sa.Column("event", sa.Text, primary_key=True),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("at", Timestamp, nullable=False, server_default=sa.func.clock_timestamp()),
    sa.Column("data", Json),
    sa.CheckConstraint(
        "event IN ('started', 'succeeded', 'failed', 'undo_started', 'undone', 'undo_failed', 'abandoned')",
        name="event",
    ),
)
