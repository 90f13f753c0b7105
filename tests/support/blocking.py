"""Statements that wait for a lock, as PostgreSQL tells of them."""

from __future__ import annotations

import asyncio

from moorage.store.database import Database


async def until_blocked(database: Database, count: int = 1) -> list[int]:
    """The processes of PostgreSQL that wait for a lock in this database, once there are so many."""
    async with asyncio.timeout(240):
        while True:
            async with database.read() as tx:
                rows = await tx.fetch(
                    "SELECT pid FROM pg_stat_activity"
                    " WHERE datname = current_database() AND wait_event_type = 'Lock' ORDER BY pid"
                )
            if len(rows) >= count:
                return [row["pid"] for row in rows]
            await asyncio.sleep(0.01)
