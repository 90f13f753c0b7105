"""Roles as programs of their own: what they cannot begin with, they say. (tests/chaos runs them.)"""

import pytest
from alembic import command

from moorage.core import config
from moorage.server import migrations
from moorage.server.cloud import Role
from moorage.server.options import options
from moorage.server.programs import NotConfigured, SchemaBehind, running
from moorage.store.errors import StoreUnavailable

_IDENTITY = {"identity_url": "http://127.0.0.1:1/v3", "identity_password": "x"}


@pytest.mark.parametrize("role", list(Role))
async def test_a_program_names_every_option_that_it_misses(role: Role) -> None:
    with pytest.raises(NotConfigured) as caught:
        async with running(config.load(options(), environ={}), role):
            pytest.fail("it began without a database")
    needed = ["database_url", "identity_url", "identity_password"]
    needed += ["agent_ca_key", "agent_ca_certs"] if role is Role.API else []
    for name in needed:
        assert name in caught.value.message


async def test_a_program_does_not_begin_on_an_older_schema(database_url: str) -> None:
    conf = config.load(options(), environ={}, overrides={"database_url": database_url, **_IDENTITY})
    command.downgrade(migrations.config(database_url), "base")
    with pytest.raises(SchemaBehind) as caught:
        async with running(conf, Role.CONDUCTOR):
            pytest.fail("it began without tables")
    assert "moorage db upgrade" in caught.value.message


async def test_a_program_without_its_database_ends_with_the_reason() -> None:
    url = "postgresql://nobody@/moorage?host=/nowhere"
    conf = config.load(options(), environ={}, overrides={"database_url": url, **_IDENTITY})
    with pytest.raises(StoreUnavailable):
        async with running(conf, Role.CONDUCTOR):
            pytest.fail("it began without PostgreSQL")
