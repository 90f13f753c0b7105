"""The store: statements, transactions, signals."""

import asyncio

import msgspec
import pytest
import sqlalchemy as sa

from moorage.store.database import Database
from moorage.store.errors import UniqueViolation, ValueRefused
from moorage.store.schema import Json
from moorage.store.signals import Signals
from moorage.store.statement import Statement, query, text_param, texts_param

T = sa.Table(
    "things",
    sa.MetaData(),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("data", Json),
    sa.Column("n", sa.Integer),
)


class Thing(msgspec.Struct, frozen=True):
    id: str
    data: dict[str, int] | None
    n: int


ADD = Statement(sa.insert(T))
GET = Statement(sa.select(T).where(T.c.id == text_param("key")), row=Thing)
SOME = Statement(
    sa.select(T).where(T.c.id == sa.any_(texts_param("ids"))).order_by(T.c.id).limit(10), row=Thing
)


@pytest.fixture
async def things(database: Database) -> Database:
    async with database.transaction() as tx:
        await tx.execute("CREATE TABLE things (id text PRIMARY KEY, data jsonb, n integer)")
    return database


async def test_statements_write_and_read_rows(things: Database) -> None:
    async with things.transaction() as tx:
        await ADD.many(tx, [{"id": "a", "data": {"x": 1}, "n": 1}, {"id": "b", "data": None, "n": 2}])
    async with things.read() as tx:
        assert await GET.first(tx, key="a") == Thing("a", {"x": 1}, 1)
        assert [t.id for t in await SOME.all(tx, ids=["a", "b", "z"])] == ["a", "b"]
        assert await query(tx, sa.select(T).where(T.c.id.in_(["a", "b"]), T.c.n > 1), Thing) == [
            Thing("b", None, 2)
        ]


async def test_a_plan_kept_from_when_a_table_was_empty_finds_rows_by_their_key(things: Database) -> None:
    read = "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'things'"
    async with things.read() as tx:
        await tx.execute("ANALYZE things")
        for _ in range(10):
            assert await GET.first(tx, key="a") is None
        await ADD.many(tx, [{"id": f"{n}", "data": None, "n": n} for n in range(300)])
        assert await GET.first(tx, key="7") == Thing("7", None, 7)
        await tx.fetch("SELECT pg_stat_force_next_flush()")
        assert [tuple(row) for row in await tx.fetch(read)] == [(0,)]


async def test_a_violation_is_typed_and_a_savepoint_keeps_the_transaction(things: Database) -> None:
    async with things.transaction() as tx:
        await ADD.run(tx, id="a", data=None, n=1)
        with pytest.raises(UniqueViolation) as caught:
            async with tx.savepoint():
                await ADD.run(tx, id="a", data=None, n=1)
        assert caught.value.constraint == "things_pkey"
        assert await GET.first(tx, key="a") is not None


@pytest.mark.parametrize(
    "values",
    [
        {"id": "a\0", "data": None, "n": 1},
        {"id": "a", "data": {"a\0": 1}, "n": 1},
        {"id": "a", "data": None, "n": 2**31},
        {"id": "a", "data": None, "n": 10**30},
    ],
)
async def test_what_no_column_can_hold_is_the_callers_mistake(
    things: Database, values: dict[str, object]
) -> None:
    with pytest.raises(ValueRefused):
        async with things.transaction() as tx:
            await ADD.run(tx, **values)


async def test_a_regular_expression_that_is_none_is_the_callers_mistake(things: Database) -> None:
    for pattern in ("(?P<", "[", "*"):
        async with things.read() as tx:
            with pytest.raises(ValueRefused):
                await tx.fetch("SELECT id FROM things WHERE 'a' ~ $1", (pattern,))


async def test_a_signal_arrives_after_the_commit(things: Database) -> None:
    signals = Signals(things)
    subscription = signals.subscribe("things")
    await signals.start()
    assert await subscription.wait(120)
    async with things.transaction() as tx:
        await tx.notify("things")
        assert not await subscription.wait(0.1)
    assert await subscription.wait(120)
    await signals.stop()
    assert not [t for t in asyncio.all_tasks() if t.get_name() == "store-signals"]
