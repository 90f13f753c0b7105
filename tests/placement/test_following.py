"""The follower, where its reading of the log does not end well: nothing that it read is lost."""

from __future__ import annotations

import asyncio

import pytest

from moorage.core.errors import Unavailable
from moorage.core.ids import new_id
from moorage.placement import providers
from moorage.placement.following import Follower
from moorage.placement.index import Index
from moorage.placement.ledger import Ledger
from moorage.placement.model import Inventory
from moorage.store.database import Database, Tx
from tests.support.blocking import until_blocked
from tests.support.mirror import known, stored

LEDGER = Ledger()


async def host(database: Database) -> str:
    uuid = new_id()
    async with database.transaction() as tx:
        await LEDGER.ensure_provider(tx, uuid=uuid, name=uuid)
        await LEDGER.set_inventory(tx, uuid, {"VCPU": Inventory(total=4)})
    return uuid


@pytest.mark.parametrize("how", ["severed", "cancelled"])
async def test_a_look_at_the_log_that_ends_half_way_is_taken_again(database: Database, how: str) -> None:
    index = Index()
    follower = Follower(database, index, None)
    known = await host(database)
    await follower.catch_up()
    new = await host(database)
    async with database.transaction() as tx:
        await LEDGER.claim(
            tx, consumer=new_id(), project_id="p", user_id="u", allocations={known: {"VCPU": 3}}
        )
    # Whoever reads providers again waits for this lock, with the log read already.
    async with database.transaction() as tx:
        await tx.execute("LOCK TABLE provider_traits IN ACCESS EXCLUSIVE MODE")
        look = asyncio.create_task(follower.catch_up())
        (waiting,) = await until_blocked(database)
        if how == "severed":
            await tx.fetch("SELECT pg_terminate_backend($1, 50000)", (waiting,))
            with pytest.raises(Unavailable):
                await look
        else:
            look.cancel()
            with pytest.raises(asyncio.CancelledError):
                await look
    await follower.catch_up()
    columns = index.columns
    column = columns.classes["VCPU"]
    assert {
        provider: (int(column.capacity[column.at[row]]), int(column.used[column.at[row]]))
        for provider, row in columns.row_of.items()
    } == {known: (4, 3), new: (4, 0)}


async def test_providers_that_change_places_while_the_log_is_read_are_never_lost(database: Database) -> None:
    index = Index()
    follower = Follower(database, index, None)
    upper, lower, leaf = [await host(database) for _ in range(3)]

    async def move(tx: Tx, uuid: str, parent: str | None) -> None:
        await providers.update_provider(
            tx, provider=uuid, name=uuid, parent=parent, keep_parent=False, reparent=True
        )

    async with database.transaction() as tx:
        await move(tx, leaf, lower)
        await move(tx, lower, upper)
    await follower.catch_up()
    async with database.transaction() as tx:
        await LEDGER.set_aggregates(tx, upper, [new_id()])
    # The look knows of `upper` alone, and reads it when it is below `lower` already.
    async with database.transaction() as tx:
        await tx.execute("LOCK TABLE provider_traits IN ACCESS EXCLUSIVE MODE")
        look = asyncio.create_task(follower.catch_up())
        await until_blocked(database)
        await move(tx, lower, None)
        await move(tx, upper, lower)
    await look
    assert set(index.columns.row_of) == {upper, lower, leaf}
    await follower.catch_up()
    assert known(index.columns) == await stored(database)
