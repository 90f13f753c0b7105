"""The change log: what a write leaves for the indexes of all processes.

Readers of a sequence must not take the highest id they see for the end: a transaction that took a
lower id may commit later. `POLL` therefore also tells which transactions were still running, and
the follower (`following`) keeps asking for the ids it has not seen until none of them can come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from moorage.placement.model import UsedRow
from moorage.placement.tables import placement_changes
from moorage.store.database import Tx
from moorage.store.schema import Json
from moorage.store.statement import Statement, text_param, texts_param

CHANNEL = "placement"
MOST = 500
"""Rows that a poll gives at most; the next one gives the rest."""


class Change(msgspec.Struct, frozen=True):
    """One row of the poll. `id` is None in the single row of a poll that found nothing.

    `oldest_running` and `next_transaction` bound the transactions that had not ended.
    """

    id: int | None
    kind: str | None
    provider_id: str | None
    payload: Any
    oldest_running: int
    next_transaction: int


class Position(msgspec.Struct, frozen=True):
    """The newest id that was handed out, committed or not, and the transactions then running."""

    last_id: int
    oldest_running: int
    next_transaction: int


_now = sa.select(
    sa.cast(sa.cast(sa.func.pg_snapshot_xmin(sa.func.pg_current_snapshot()), sa.Text), sa.BigInteger).label(
        "oldest_running"
    ),
    sa.cast(sa.cast(sa.func.pg_snapshot_xmax(sa.func.pg_current_snapshot()), sa.Text), sa.BigInteger).label(
        "next_transaction"
    ),
).subquery("now")

# The limit is what lets PostgreSQL keep one plan for this, whatever the id; without, it plans at every poll.
_newer = (
    sa.select(placement_changes)
    .where(placement_changes.c.id > sa.bindparam("last_id", type_=sa.BigInteger))
    .order_by(placement_changes.c.id)
    .limit(sa.literal_column(str(MOST)))
    .lateral("newer")
)
POLL: Statement[Change] = Statement(
    sa.select(
        _newer.c.id,
        _newer.c.kind,
        _newer.c.provider_id,
        _newer.c.payload,
        _now.c.oldest_running,
        _now.c.next_transaction,
    )
    .select_from(_now.outerjoin(_newer, sa.true()))
    .order_by(_newer.c.id),
    row=Change,
)
MISSING: Statement[Change] = Statement(
    sa.select(
        placement_changes.c.id,
        placement_changes.c.kind,
        placement_changes.c.provider_id,
        placement_changes.c.payload,
        sa.literal_column("0").label("oldest_running"),
        sa.literal_column("0").label("next_transaction"),
    ).where(placement_changes.c.id == sa.any_(sa.bindparam("ids", type_=ARRAY(sa.BigInteger)))),
    row=Change,
)

POSITION: Statement[Position] = Statement(
    sa.select(
        sa.literal_column(
            "coalesce(pg_sequence_last_value(pg_get_serial_sequence('placement_changes', 'id')::regclass), 0)"
        ).label("last_id"),
        _now.c.oldest_running,
        _now.c.next_transaction,
    ).select_from(_now),
    row=Position,
)

_CHANGED: Statement[Any] = Statement(
    insert(placement_changes).from_select(
        ["kind", "provider_id"],
        sa.select(sa.literal("provider"), sa.func.unnest(texts_param("providers"))),
    )
)
_USED: Statement[Any] = Statement(
    insert(placement_changes).values(kind="used", payload=sa.bindparam("payload", type_=Json))
)
_NAMES: Statement[Any] = Statement(insert(placement_changes).values(kind=sa.literal("names")))
_NOTIFY: Statement[Any] = Statement(sa.select(sa.func.pg_notify(CHANNEL, text_param("payload"))))
_TRIM: Statement[Any] = Statement(
    sa.delete(placement_changes).where(
        placement_changes.c.at < sa.func.now() - sa.bindparam("keep", type_=sa.Interval)
    )
)


async def log_providers(tx: Tx, providers: Sequence[str]) -> None:
    """Record that these providers must be read again, and wake the indexes."""
    if providers:
        await _CHANGED.run(tx, providers=list(providers))
        await _NOTIFY.run(tx, payload="")


async def log_name_gone(tx: Tx) -> None:
    """Record that a custom trait or class was deleted: who remembers that names exist must ask again."""
    await _NAMES.run(tx)


async def log_used(tx: Tx, rows: Sequence[UsedRow]) -> None:
    """Record new usage figures.

    No NOTIFY: PostgreSQL lets only one transaction with a notification commit at a time, which would
    serialise all claims of the fleet. Other processes see usage at their next poll.
    """
    if rows:
        await _USED.run(tx, payload=list(rows))


async def trim(tx: Tx, keep: Any) -> int:
    """Delete changes older than `keep` (a timedelta); followers reload when they were away longer."""
    return await _TRIM.run(tx, keep=keep)
