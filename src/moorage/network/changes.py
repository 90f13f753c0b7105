"""The change log: what the data plane has yet to be told.

A transaction that changes a resource adds a row with its kind and id and signals the channel at its commit. The keeper
of a mechanism reads the rows, brings the data plane to the present state of those resources (whatever it is by then)
and deletes the rows it has read. A row is seen exactly when its change is committed, so unlike a position in a
sequence no change can slip past, and doing one twice does no harm.

Where no mechanism follows the log (simulated hosts alone), nothing is written.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.network import tables
from moorage.store.database import Tx
from moorage.store.statement import Statement, text_param, texts_param

CHANNEL = "network"
NETWORK, SUBNET, PORT, SECURITY_GROUP = "network", "subnet", "port", "security_group"


class Change(msgspec.Struct, frozen=True):
    """One row of the log."""

    id: int
    kind: str
    ref: str


_log = tables.network_changes
_added = (
    sa.insert(_log)
    .from_select(["kind", "ref"], sa.select(text_param("kind"), sa.func.unnest(texts_param("refs"))))
    .cte("added")
)
_RECORD: Statement[Any] = Statement(sa.select(sa.func.pg_notify(CHANNEL, "")).add_cte(_added))
_PENDING = Statement(
    sa.select(_log).order_by(_log.c.id).limit(sa.bindparam("limit", type_=sa.Integer)), row=Change
)
_FORGET: Statement[Any] = Statement(
    sa.delete(_log).where(_log.c.id == sa.any_(sa.bindparam("ids", type_=sa.ARRAY(sa.BigInteger))))
)


class Changes:
    """Writes the log when ``followed``; one statement a call."""

    def __init__(self, *, followed: bool) -> None:
        self.followed = followed

    async def record(self, tx: Tx, kind: str, refs: Iterable[str]) -> None:
        """Tell the data plane, at commit, that these resources have changed."""
        if self.followed and (ids := list(refs)):
            await _RECORD.run(tx, kind=kind, refs=ids)


async def pending(tx: Tx, limit: int = 500) -> list[Change]:
    """The oldest changes that nobody has carried out."""
    return await _PENDING.all(tx, limit=limit)


async def forget(tx: Tx, changes: Iterable[Change]) -> None:
    """These have been carried out."""
    await _FORGET.run(tx, ids=[c.id for c in changes])
