"""Room at hosts: how many operations may be under way at one, and in all.

A host works on a few commands at a time; more of them would only lie there, with their time running out, while what
they hold is held. So an operation that is not urgent begins nothing at a host that has as many under way as it may:
its transaction is rolled back, and it waits for room (``_room`` in its data: the host) with what it had before that,
which for a new one is nothing. Undoing is never held up, nor is what is urgent.

A place that becomes free goes to the project with the fewest under way at that host, its oldest operation first: it is
told so (``_told``), and the host is not full for it. Who comes later waits behind those that wait. Conductors look for
such places when something here has ended, and with every poll.
"""

import time
from collections.abc import Mapping

import sqlalchemy as sa

from moorage.operations.definition import NoRoom
from moorage.operations.model import Operation
from moorage.operations.queue import CHANNEL
from moorage.operations.tables import AT_HOST, IS_AT_HOST, operations
from moorage.store.database import Database, Tx
from moorage.store.statement import Statement, text_param

_KEEP = 1.0  # seconds that is believed which hosts are full
_LOCK = Statement(
    sa.select(
        sa.func.pg_advisory_xact_lock(
            sa.func.hashtext("operations.room"), sa.func.hashtext(text_param("host"))
        )
    )
)
_COUNT: Statement[tuple[int, int]] = Statement(
    sa.select(
        sa.func.count().filter(operations.c.sent),
        sa.func.count().filter(~operations.c.sent),
    ).where(
        sa.text(IS_AT_HOST),
        sa.literal_column(AT_HOST, sa.Text) == text_param("host"),
        operations.c.id != text_param("key"),
    )
)
_FULL: Statement[tuple[str, int]] = Statement(
    sa.text(f"""
        SELECT {AT_HOST} AS host, count(*) FROM operations WHERE {IS_AT_HOST}
        GROUP BY 1 HAVING count(*) >= :places
    """).bindparams(sa.bindparam("places", type_=sa.Integer))  # noqa: S608  names of ours
)
# Those that were told and have not begun yet (ready, running) have their place.
_WAKE: Statement[tuple[int, int]] = Statement(
    sa.text(f"""
        WITH here AS (
            SELECT id, seq, project, state, sent,
                   {AT_HOST} AS host
            FROM operations WHERE {IS_AT_HOST}
        ), waiting AS (
            SELECT id, seq, project, host,
                   row_number() OVER (PARTITION BY host, project ORDER BY seq) AS nth
            FROM here WHERE NOT sent AND state = 'waiting'
        ), has AS (
            SELECT host, project, count(*) AS places
            FROM here WHERE (sent OR state <> 'waiting') AND host IN (SELECT host FROM waiting)
            GROUP BY 1, 2
        ), taken AS (
            SELECT host, sum(places) AS places FROM has GROUP BY 1
        ), ranked AS (
            SELECT w.id, w.host,
                   row_number() OVER (PARTITION BY w.host ORDER BY coalesce(h.places, 0) + w.nth, w.seq) AS place
            FROM waiting w LEFT JOIN has h ON h.host = w.host AND h.project = w.project
        ), told AS (
            UPDATE operations
            SET state = 'ready', wakes = wakes + 1, data = data || jsonb_build_object('_told', true)
            WHERE state = 'waiting' AND id IN (
                SELECT r.id FROM ranked r LEFT JOIN taken t ON t.host = r.host
                WHERE r.place + coalesce(t.places, 0) <= :places
            )
            RETURNING pg_notify('{CHANNEL}', '')::text AS word
        )
        SELECT (SELECT count(word) FROM told), (SELECT count(*) FROM waiting)
    """).bindparams(sa.bindparam("places", type_=sa.Integer))  # noqa: S608  names of ours
)


class Room:
    """``places``: how many operations may be under way at one host; 0: no limit."""

    def __init__(self, database: Database, places: int) -> None:
        self.places = places
        self.full: Mapping[str, str] = {}
        """Hosts that take nothing new at the moment, and why, as far as this process knows."""
        self._database = database
        self._until = 0.0
        self.wanted = False
        """Whether something waits for room, as far as this process knows."""

    async def look(self) -> None:
        """Bring ``full`` up to date, where it is older than a second."""
        if not self.places or time.monotonic() < self._until:
            return
        self._until = time.monotonic() + _KEEP
        async with self._database.read() as tx:
            self.full = {row[0]: _why(row[1]) for row in await _FULL.all(tx, places=self.places)}

    def full_for(self, work: Operation) -> Mapping[str, str]:
        """Those that are full for one operation: others wait where it was told of a place, but behind it."""
        if "_told" not in work.data:
            return self.full
        return {host: why for host, why in self.full.items() if host != work.data["_room"]}

    async def take(self, tx: Tx, work: Operation, host: str) -> None:
        """A place at the host until the transaction ends, when the command is out; raises NoRoom."""
        if not self.places:
            return
        # The lock makes the count exact: it is held until the command of whoever counted is there to be counted.
        await _LOCK.all(tx, host=host)
        [(under_way, waiting)] = await _COUNT.all(tx, host=host, key=work.id)
        before = under_way if work.data.get("_room") == host else under_way + waiting
        if before >= self.places:
            self.full = {**self.full, host: _why(before)}
            self.wanted = True
            raise NoRoom(f"host {host}: {_why(before)}", subject=host)

    async def wake(self) -> int:
        """Tell those that wait of places that are free; how many."""
        if not self.places:
            return 0
        async with self._database.transaction() as tx:
            [(woken, waiting)] = await _WAKE.all(tx, places=self.places)
        self.wanted = waiting > 0
        return woken


def _why(count: int) -> str:
    return f"{count} operations are under way there"
