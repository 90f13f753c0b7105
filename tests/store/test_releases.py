"""From release to release: the schema is upgraded under the old code, which goes on running against the new one.

``releases/REVISION.sql`` are rows as a release left them, whose newest revision that was. So that its code can run with
the next schema, nothing that it reads or writes may go, be renamed, change its type, or become stricter.
"""

import asyncio
import contextlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.script import ScriptDirectory

from moorage.agent.fleet import Fleet, hosts
from moorage.audit import audit
from moorage.operations.model import FINISHED
from moorage.server import migrations
from moorage.store.database import Database
from moorage.store.embedded import EmbeddedPostgres
from tests.support.cloud import running_cloud, whole
from tests.support.identity import Identity

_FOLDER = Path(__file__).with_name("releases")
RELEASES = sorted(path.stem for path in _FOLDER.glob("*.sql"))
_numbers = itertools.count()
_NAME_OF_VERSION = "alembic_version"


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(postgres: EmbeddedPostgres, release: str) -> Iterator[str]:
    """A database as that release left it."""
    name = f"release_{release}_{next(_numbers)}"
    postgres.create(name)
    found = postgres.url(name)
    migrations.upgrade(found, release)
    _load(found, release)
    yield found
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def _load(url: str, release: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute((_FOLDER / f"{release}.sql").read_bytes())


def _tables(url: str) -> sa.MetaData:
    found = sa.MetaData()
    with migrations.engine(url).connect() as connection:
        found.reflect(connection)
    found.remove(found.tables[_NAME_OF_VERSION])
    return found


def _rows(url: str) -> dict[str, list[Any]]:
    """What every table has, in the columns of that release."""
    with migrations.engine(url).connect() as connection:
        return {
            table.name: sorted(map(repr, connection.execute(sa.select(table)).all()))
            for table in _tables(url).sorted_tables
        }


def test_what_an_older_release_reads_and_writes_is_still_there(url: str) -> None:
    before = _tables(url)
    migrations.upgrade(url)
    after = _tables(url)
    assert set(before.tables) <= set(after.tables)
    wrong = []
    for name, old in before.tables.items():
        new = after.tables[name]
        for column in old.columns:
            kept = new.columns.get(column.name)
            if kept is None:
                wrong.append(f"{name}.{column.name} is gone")
            elif repr(kept.type) != repr(column.type):
                wrong.append(f"{name}.{column.name} was {column.type!r} and is {kept.type!r}")
            elif column.nullable and not kept.nullable:
                wrong.append(f"{name}.{column.name} may not be NULL any more")
            elif column.server_default is not None and kept.server_default is None:
                wrong.append(f"{name}.{column.name} has lost its default")
        wrong += [
            f"{name}.{column.name} is new, and an insert that doesn't know it fails"
            for column in new.columns
            if column.name not in old.columns
            and not column.nullable
            and column.server_default is None
            and column.identity is None
            and column.computed is None
        ]
    assert not wrong


# What no row of a table may be twice, and what each must be: (table, rule).
_RULES = """
    SELECT rel.relname, CASE WHEN contype = 'f' THEN 'foreign' ELSE 'check' END, pg_get_constraintdef(c.oid)
    FROM pg_constraint c JOIN pg_class rel ON rel.oid = c.conrelid
    WHERE c.connamespace = 'public'::regnamespace AND c.contype IN ('c', 'f', 'x')
    UNION
    SELECT rel.relname, 'unique', regexp_replace(pg_get_indexdef(i.indexrelid), '^.* USING ', '')
    FROM pg_index i JOIN pg_class rel ON rel.oid = i.indrelid
    WHERE i.indisunique AND rel.relnamespace = 'public'::regnamespace
"""
# Rules that are stricter than those of a release whose code goes on writing, and why it breaks none of them.
STRICTER = {
    (
        "operations",
        "unique",
        (
            "btree (subject) WHERE ((state = ANY (ARRAY['ready'::text, 'running'::text, 'waiting'::text, "
            "'stuck'::text])) AND (fence > 0))"
        ),
    ): "0.1.0 begins one operation of a subject at a time too, and has one conductor: no other one races with it",
}


def _rules(url: str, tables: set[str]) -> set[tuple[str, str, str]]:
    with psycopg.connect(url) as connection:
        found = {(str(table), str(kind), str(rule)) for table, kind, rule in connection.execute(_RULES)}
    return {rule for rule in found if rule[0] in tables}


def _takes_all_of(rule: tuple[str, str, str], earlier: tuple[str, str, str]) -> bool:
    """Whether a check of a column's values is another one with further values."""
    value = re.compile("'[^']*'::text(, )?")
    same = rule[:2] == earlier[:2] == (rule[0], "check") and value.sub("", rule[2]) == value.sub(
        "", earlier[2]
    )
    return same and set(re.findall("'[^']*'", earlier[2])) <= set(re.findall("'[^']*'", rule[2]))


def test_no_rule_for_its_rows_is_stricter_and_none_that_it_relies_on_is_gone(url: str) -> None:
    tables = set(_tables(url).tables)
    before = _rules(url, tables)
    assert {kind for _, kind, _ in before} == {"unique", "check", "foreign"}
    migrations.upgrade(url)
    after = _rules(url, tables)
    new = {rule for rule in after - before if not any(_takes_all_of(rule, old) for old in before)}
    assert new <= set(STRICTER)
    assert set(STRICTER) <= after, "a reason for a rule that is not there"
    # An insert names what it would be twice of (ON CONFLICT), and what goes with a deleted row is left to the database.
    assert {rule for rule in before - after if rule[1] != "check"} == set()


async def test_what_it_had_under_way_is_ended_by_the_next_release(url: str, identity: Identity) -> None:
    """Its conductor is gone, its command is in the host's queue, and its host comes back with the agent of now."""
    migrations.upgrade(url)
    async with contextlib.AsyncExitStack() as stack:
        database = Database(url)
        await database.open()
        stack.push_async_callback(database.close)
        async with database.transaction() as tx:
            # It began shortly before the upgrade: not so long ago that its time is over.
            open_ones = await tx.fetch(
                "UPDATE operations SET created_at = now(), wake_at = now() + interval '10 minutes' "
                "WHERE state = 'waiting' RETURNING id, kind, step, params ->> 'server_id'"
            )
        assert [tuple(op)[1:3] for op in open_ones] == [("server.boot", "spawn_guest")]
        ((operation, _, _, server),) = open_ones
        cloud = (await stack.enter_async_context(running_cloud(database, identity, hosts=[]))).cloud

        async def ticket(name: str) -> str:
            async with database.transaction() as tx:
                return await cloud.link.enrolment.create_ticket(tx, host=name)

        # Named as its hosts.
        await stack.enter_async_context(Fleet(cloud.url("agent"), hosts(2), ticket=ticket))
        async with asyncio.timeout(180):
            while True:
                async with database.read() as tx:
                    ((state,),) = await tx.fetch("SELECT state FROM operations WHERE id = $1", (operation,))
                    ((vm_state,),) = await tx.fetch("SELECT vm_state FROM servers WHERE id = $1", (server,))
                if state in FINISHED:
                    break
                await asyncio.sleep(0.05)
        assert (state, vm_state) == ("done", "active")
        await whole(database)


async def test_its_rows_are_sound_after_the_upgrade_and_the_same_after_the_downgrade(
    url: str, release: str
) -> None:
    before = _rows(url)
    assert before["servers"]
    migrations.upgrade(url)
    migrations.check(url)
    database = Database(url)
    await database.open()
    report = await audit(database, grace=0)
    # Its hosts have been silent since, so that what they last said counts for nothing.
    assert not report.findings
    assert report.checked
    await database.close()
    command.downgrade(migrations.config(url), release)
    assert _rows(url) == before


def test_its_code_can_write_into_the_new_schema(url: str, release: str) -> None:
    migrations.upgrade(url)
    tables = _tables(url)
    with migrations.engine(url).begin() as connection:
        names = ", ".join(f'"{name}"' for name in tables.tables)
        connection.execute(sa.text(f"TRUNCATE {names}"))
    _load(url, release)
    with migrations.engine(url).connect() as connection:
        counts = {
            name: connection.scalar(sa.select(sa.func.count()).select_from(t))
            for name, t in tables.tables.items()
        }
    assert counts["servers"] == 5


def test_a_program_says_which_revisions_its_database_lacks(url: str, release: str) -> None:
    known = [r.revision for r in ScriptDirectory.from_config(migrations.config(url)).walk_revisions()][::-1]
    assert migrations.missing(url) == known[known.index(release) + 1 :]
    migrations.upgrade(url)
    assert migrations.missing(url) == []
    # A newer release has upgraded it: by the online rule, this one runs with it.
    with migrations.engine(url).begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = 'from_the_future'"))
    assert migrations.missing(url) == []
