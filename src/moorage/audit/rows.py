"""Rows and the rows they refer to.

The foreign keys are read from the database itself, and checked although they are enforced: a restored dump, a
constraint added as NOT VALID, or a session with triggers off can leave children without parents.
"""

from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.audit.model import Finding, Invariant
from moorage.store.database import Tx
from moorage.store.statement import Statement

PARENTS = "row.parent"
PARENTS_SENTENCE = "every row that a foreign key points to is there"

INVARIANTS = (
    Invariant(
        name="aggregate.host",
        sentence="the hosts of an aggregate exist",
        things="""
            SELECT a.aggregate_id || ' ' || a.host AS subject,
                   NOT EXISTS (SELECT FROM hosts h WHERE h.name = a.host) AS broken
            FROM aggregate_hosts a
        """,
        message="there is no such host",
    ),
)


class _ForeignKey(msgspec.Struct, frozen=True):
    name: str
    child: str
    parent: str
    columns: list[str]
    targets: list[str]


# Columns of the key on both sides, in the same order.
_FOREIGN_KEYS = Statement(
    sa.text("""
        SELECT c.conname AS name, child.relname AS child, parent.relname AS parent,
               array_agg(a.attname ORDER BY k.place) AS columns, array_agg(f.attname ORDER BY k.place) AS targets
        FROM pg_constraint c
        JOIN pg_class child ON child.oid = c.conrelid
        JOIN pg_class parent ON parent.oid = c.confrelid
        CROSS JOIN LATERAL unnest(c.conkey, c.confkey) WITH ORDINALITY AS k(own, other, place)
        JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.own
        JOIN pg_attribute f ON f.attrelid = c.confrelid AND f.attnum = k.other
        WHERE c.contype = 'f' AND c.connamespace = CAST(current_schema() AS regnamespace)
        GROUP BY c.oid, c.conname, child.relname, parent.relname ORDER BY child.relname, c.conname
    """),
    row=_ForeignKey,
)


async def orphans(tx: Tx) -> tuple[int, list[Finding]]:
    """How many foreign keys there are, and a finding for each row whose parent is missing."""
    keys = await _FOREIGN_KEYS.all(tx)
    findings = []
    for key in keys:
        for row in await Statement[Any](_missing(key)).all(tx):
            values = dict(row.items())
            named = ", ".join(f"{c} {v}" for c, v in values.items())
            findings.append(
                Finding(
                    PARENTS,
                    f"{key.child} {' '.join(str(v) for v in values.values())}",
                    f"a row of {key.child} refers to {named}, which {key.parent} does not have",
                    {"constraint": key.name, "child": key.child, "parent": key.parent, **values},
                )
            )
    return len(keys), findings


def _missing(key: _ForeignKey) -> sa.Select[Any]:
    child = sa.table(key.child, *(sa.column(c) for c in key.columns)).alias("child")
    parent = sa.table(key.parent, *(sa.column(c) for c in key.targets)).alias("parent")
    same = sa.and_(*(parent.c[t] == child.c[c] for c, t in zip(key.columns, key.targets, strict=True)))
    return sa.select(*(child.c[c] for c in key.columns)).where(
        *(child.c[c].is_not(None) for c in key.columns), ~sa.exists().where(same).correlate(child)
    )
