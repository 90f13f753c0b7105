"""From release to release: the schema is upgraded under the old code, which goes on running against the new one.

``releases/REVISION.sql`` are rows as a release left them, whose newest revision that was. So that its code can run with
the next schema, nothing that it reads or writes may go, be renamed, change its type, or become stricter.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.script import ScriptDirectory

from moorage.audit import audit
from moorage.server import migrations
from moorage.store.database import Database
from moorage.store.embedded import EmbeddedPostgres

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
