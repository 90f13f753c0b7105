"""Running the invariants over one snapshot."""

import asyncio
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.audit import addresses, claims, guests, operations, ports, rows, servers
from moorage.audit.model import Finding, Invariant, Report
from moorage.store.database import Database, Tx
from moorage.store.statement import Statement

INVARIANTS: tuple[Invariant, ...] = (
    *servers.INVARIANTS,
    *claims.INVARIANTS,
    *ports.INVARIANTS,
    *addresses.INVARIANTS,
    *guests.INVARIANTS,
    *operations.INVARIANTS,
    *rows.INVARIANTS,
)

# live         servers that are not deleted, with the time of their last change
# settled      those of them that nothing is being done to, and nothing was in the last `grace` seconds
# hosts_heard  hosts whose word counts: one that is silent for a minute is down. Their last report must know of every
#              change up to `knows`
PREAMBLE = """
WITH parameters AS (SELECT CAST(:grace AS double precision) * interval '1 second' AS grace),
open_operations AS (
    SELECT * FROM operations WHERE state IN ('ready', 'running', 'waiting', 'stuck')
),
live AS (
    SELECT s.*, coalesce(s.updated_at, s.created_at) AS changed_at FROM servers s WHERE s.deleted_at IS NULL
),
settled AS (
    SELECT s.* FROM live s, parameters
    WHERE s.changed_at <= now() - grace
      AND NOT EXISTS (SELECT FROM open_operations o WHERE o.subject = 'server:' || s.id)
),
hosts_heard AS (
    SELECT h.*, h.last_seen - grace AS knows FROM hosts h, parameters
    WHERE h.facts IS NOT NULL AND h.last_seen > now() - interval '60 seconds'
),
things AS MATERIALIZED (
"""
_BROKEN = """)
SELECT (SELECT count(*) FROM things) AS checked,
       (SELECT coalesce(jsonb_agg(to_jsonb(t) - 'broken' ORDER BY t.subject), CAST('[]' AS jsonb))
        FROM things t WHERE t.broken) AS found
"""
_ALL = """)
SELECT (SELECT count(*) FROM things) AS checked,
       (SELECT coalesce(jsonb_agg(to_jsonb(t) ORDER BY t.subject), CAST('[]' AS jsonb)) FROM things t) AS found
"""


class _Answer(msgspec.Struct, frozen=True):
    checked: int
    found: list[dict[str, Any]]


def _statement(things: str, judged: bool) -> Statement[_Answer]:
    text = "".join((PREAMBLE, things, _ALL if judged else _BROKEN))
    return Statement(sa.text(text).bindparams(sa.bindparam("grace", type_=sa.Double)), row=_Answer)


_STATEMENTS = {i.name: _statement(i.things, i.judge is not None) for i in INVARIANTS}
_SNAPSHOT = Statement[None](sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))


async def audit(database: Database, *, grace: float = 10.0) -> Report:
    """Check every invariant. ``grace``: seconds that a change has to be old to be held against anything.

    Hosts report every few seconds: with a ``grace`` of at least one reporting interval, a sound cloud at work has
    no findings. Raises StoreUnavailable.
    """
    async with database.transaction() as tx:
        await _SNAPSHOT.run(tx)
        return await audit_within(tx, grace=grace)


async def audit_within(tx: Tx, *, grace: float = 10.0) -> Report:
    """The same in the caller's transaction, which sees what it has written itself."""
    findings: list[Finding] = []
    checked: dict[str, int] = {}
    for invariant in INVARIANTS:
        checked[invariant.name], found = await _check(tx, invariant, grace)
        findings += found
    checked[rows.PARENTS], found = await rows.orphans(tx)
    findings += found
    return Report(tuple(findings), checked)


async def _check(tx: Tx, invariant: Invariant, grace: float) -> tuple[int, list[Finding]]:
    answer = await _STATEMENTS[invariant.name].one(tx, grace=grace)
    judge = invariant.judge
    if judge is None:
        broken = [(thing, invariant.message.format_map(thing)) for thing in answer.found]
    else:
        # Comparing a hundred thousand addresses takes a second: not in the event loop.
        broken = await asyncio.to_thread(lambda: [(dict(t), m) for t, m in judge(answer.found)])
    return answer.checked, [
        Finding(invariant.name, str(t["subject"]), message, {k: v for k, v in t.items() if k != "subject"})
        for t, message in broken
    ]
