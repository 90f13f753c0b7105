"""The migrations give the tables that the code expects."""

import os

import pytest
from alembic import command

from moorage.server import migrations
from moorage.store.embedded import EmbeddedPostgres


@pytest.fixture
def url(postgres: EmbeddedPostgres) -> str:
    name = f"migrations_{os.getpid()}"
    postgres.create(name)
    return postgres.url(name)


def test_upgrade_gives_the_tables_of_the_code_and_downgrade_takes_them_back(url: str) -> None:
    migrations.upgrade(url)
    migrations.check(url)
    command.downgrade(migrations.config(url), "base")
    migrations.upgrade(url)
    migrations.upgrade(url)
    migrations.check(url)
