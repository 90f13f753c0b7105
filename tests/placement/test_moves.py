"""Providers that move while others come below them or move too: each tree has one root, and nothing goes in a ring.

One of two changes is held open in a transaction of the test; the other comes by HTTP and waits for it, or both race.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moorage.core.ids import new_id
from moorage.placement import providers
from moorage.placement.following import Follower
from moorage.placement.index import Index
from moorage.store.database import Database, Tx
from tests.support.blocking import until_blocked
from tests.support.placement import Client, provider


async def trees(database: Database) -> dict[str, set[str]]:
    """The names below each root. Fails where the roots told, the parents and the index do not agree."""
    async with database.read() as tx:
        rows = await tx.fetch("SELECT id, name, parent_id, root_id FROM resource_providers")
    index = Index()
    await Follower(database, index, None).catch_up()
    columns = index.columns
    above = {row["id"]: row["parent_id"] for row in rows}
    names = {row["id"]: row["name"] for row in rows}
    found: dict[str, set[str]] = {}
    for row in rows:
        top, steps = row["id"], 0
        while above[top] is not None:
            top, steps = above[top], steps + 1
            assert steps <= len(rows), f"{row['name']} is in a ring"
        assert row["root_id"] == top, f"the root of {row['name']} is not {names[top]}"
        assert columns.ids[columns.root(columns.row_of[row["id"]])] == top
        found.setdefault(names[top], set()).add(row["name"])
    return found


@pytest.fixture
async def ids(admin: Client) -> dict[str, str]:
    """`m` with `p` below, which moves; `x` and `y`, which are alone."""
    made: dict[str, str] = {}
    for name, parent in (("m", None), ("p", "m"), ("x", None), ("y", None)):
        made[name] = (await provider(admin, name, made[parent] if parent else None))["uuid"]
    return made


async def move(tx: Tx, ids: dict[str, str], name: str, parent: str) -> None:
    await providers.update_provider(
        tx, provider=ids[name], name=name, parent=ids[parent], keep_parent=False, reparent=True
    )


def asked(admin: Client, ids: dict[str, str], name: str, parent: str, status: int | None = 200) -> Any:
    """A move by HTTP."""
    body = {"name": name, "parent_provider_uuid": ids[parent]}
    return admin("PUT", f"/resource_providers/{ids[name]}", body, status=status)


async def test_what_is_made_below_a_provider_that_is_about_to_move_goes_with_it(
    database: Database, admin: Client, ids: dict[str, str]
) -> None:
    async with database.transaction() as tx:
        await providers.create_provider(tx, provider=new_id(), name="c", parent=ids["p"])
        moving = asyncio.create_task(asked(admin, ids, "m", "x"))
        await until_blocked(database)
    assert (await moving)["root_provider_uuid"] == ids["x"]
    assert await trees(database) == {"x": {"m", "p", "c", "x"}, "y": {"y"}}


async def test_what_is_made_below_a_provider_that_is_moving_has_the_new_root(
    database: Database, admin: Client, ids: dict[str, str]
) -> None:
    async with database.transaction() as tx:
        await move(tx, ids, "m", "x")
        making = asyncio.create_task(provider(admin, "c", ids["p"]))
        await until_blocked(database)
    assert (await making)["root_provider_uuid"] == ids["x"]
    assert await trees(database) == {"x": {"m", "p", "c", "x"}, "y": {"y"}}


@pytest.mark.parametrize("first", ["inner", "outer"])
async def test_what_moves_below_a_provider_that_moves_has_the_new_root(
    database: Database, admin: Client, ids: dict[str, str], first: str
) -> None:
    changes = [("y", "p"), ("m", "x")]
    held, other = changes if first == "inner" else changes[::-1]
    async with database.transaction() as tx:
        await move(tx, ids, *held)
        moving = asyncio.create_task(asked(admin, ids, *other))
        await until_blocked(database)
    await moving
    assert await trees(database) == {"x": {"m", "p", "x", "y"}}


async def test_what_leaves_a_subtree_that_is_about_to_move_stays_away(
    database: Database, admin: Client, ids: dict[str, str]
) -> None:
    async with database.transaction() as tx:
        await move(tx, ids, "p", "y")
        moving = asyncio.create_task(asked(admin, ids, "m", "x"))
        await until_blocked(database)
    await moving
    assert await trees(database) == {"x": {"m", "x"}, "y": {"p", "y"}}


async def test_of_two_moves_that_would_make_a_ring_together_the_later_is_refused(
    database: Database, admin: Client, ids: dict[str, str]
) -> None:
    ids["q"] = (await provider(admin, "q", ids["y"]))["uuid"]
    async with database.transaction() as tx:
        await move(tx, ids, "m", "q")
        moving = asyncio.create_task(asked(admin, ids, "y", "p", status=400))
        await until_blocked(database)
    assert "loop" in (await moving)["errors"][0]["detail"]
    assert await trees(database) == {"x": {"x"}, "y": {"m", "p", "q", "y"}}


async def test_moves_that_would_make_rings_and_race_leave_trees(database: Database, admin: Client) -> None:
    ids: dict[str, str] = {}
    for number in range(12):
        for name, parent in (("a", None), ("b", None), ("below a", "a"), ("below b", "b")):
            above = ids[f"{parent}{number}"] if parent else None
            ids[f"{name}{number}"] = (await provider(admin, f"{name}{number}", above))["uuid"]

    async def status(name: str, parent: str) -> int:
        body = {"name": name, "parent_provider_uuid": ids[parent]}
        return await admin.status("PUT", f"/resource_providers/{ids[name]}", body)

    answers = await asyncio.gather(
        *(asyncio.gather(status(f"a{n}", f"below b{n}"), status(f"b{n}", f"below a{n}")) for n in range(12))
    )
    assert [sorted(pair) for pair in answers] == [[200, 400]] * 12
    assert sorted(map(len, (await trees(database)).values())) == [4] * 12
