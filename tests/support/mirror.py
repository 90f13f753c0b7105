"""What an index knows of the forest and what the ledger has of it, in one form."""

from __future__ import annotations

from typing import Any

from moorage.placement.columns import Columns
from moorage.placement.reads import EVERYTHING
from moorage.store.database import Database

FIGURES = ("capacity", "used", "min_unit", "max_unit", "step_size", "version")


def known(columns: Columns) -> dict[str, Any]:
    """All that an index knows, by provider."""
    return {
        provider: {
            "name": columns.names[row],
            "parent": columns.ids[columns.parent[row]] if columns.parent[row] >= 0 else None,
            "root": columns.ids[columns.root(row)],
            "traits": sorted(columns.traits_of(row)),
            "aggregates": sorted(columns.aggregates_of(row)),
            "inventories": {
                name: dict(zip(FIGURES, column.get(row), strict=False))
                for name, column in columns.classes.items()
                if column.at[row] >= 0
            },
        }
        for provider, row in columns.row_of.items()
    }


async def stored(database: Database) -> dict[str, Any]:
    """All that the ledger has, by provider."""
    async with database.snapshot() as tx:
        records = await EVERYTHING.all(tx)
    return {
        record.id: {
            "name": record.name,
            "parent": record.parent_id,
            "root": record.root_id,
            "traits": sorted(record.traits or ()),
            "aggregates": sorted(record.aggregates or ()),
            "inventories": {
                name: dict(
                    zip(
                        FIGURES,
                        (int((total - reserved) * ratio), used, low, high, step, version),
                        strict=True,
                    )
                )
                for name, total, reserved, low, high, step, ratio, used, version in record.inventories or ()
            },
        }
        for record in records
    }


async def contradictions(database: Database) -> list[str]:
    """What in the ledger does not agree with itself: usage and allocations, consumers, parents and roots."""
    async with database.snapshot() as tx:
        sums = await tx.fetch(
            "SELECT provider_id, resource_class, i.used, coalesce(sum(a.used), 0)::bigint AS total FROM inventories i"
            " LEFT JOIN allocations a USING (provider_id, resource_class)"
            " GROUP BY provider_id, resource_class, i.used"
        )
        idle = await tx.fetch(
            "SELECT id FROM consumers c WHERE NOT EXISTS (SELECT FROM allocations a WHERE a.consumer_id = c.id)"
        )
        rows = await tx.fetch("SELECT id, parent_id, root_id FROM resource_providers")
    found = [f"used {row}" for row in sums if row["used"] != row["total"]]
    found += [f"consumer {row['id']} holds nothing" for row in idle]
    above = {row["id"]: row["parent_id"] for row in rows}
    for row in rows:
        top, steps = row["id"], 0
        while above[top] is not None and steps <= len(rows):
            top, steps = above[top], steps + 1
        if row["root_id"] != top or steps > len(rows):
            found.append(f"root of {row['id']}: {row['root_id']}, by its parents {top}")
    return found
