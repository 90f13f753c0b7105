"""What is counted in the database for Prometheus, and who may read it."""

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from moorage.core import config
from moorage.server.metrics import CloudMetrics
from moorage.server.options import OptionsWrong, metrics_address, options
from moorage.store.database import Database

_HOST = """INSERT INTO hosts (id, name, disabled, protocol, agent_version, last_seen)
           VALUES ($1, $1, $2, 3, '1', now() - make_interval(secs => $3))"""
_OPERATION = """INSERT INTO operations (id, kind, version, state, priority, subject, params, step, data, refusals)
                VALUES ($1, $2, 1, $3, 0, $1, '{}', 's', '{}', '[]')"""
_COMMAND = """INSERT INTO commands (id, host, operation, step, kind, fence, payload, finished_at, outcome)
              VALUES ($1, 'a', $1, 's', $2, 1, '{}', now() + make_interval(secs => $3::float8), $4)"""


def samples(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Values by name and by the values of the labels, in the order of the labels' names."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[key] = sample.value
    return found


def metrics(database: Database, **more: Any) -> CloudMetrics:
    return CloudMetrics(
        database,
        service_down_time=60,
        index_age=lambda: 0.5,
        keepers=lambda: (),
        connections=lambda: {80: 2},
        **more,
    )


async def scrape(found: CloudMetrics) -> dict[str, dict[tuple[str, ...], float]]:
    text, _ = await found.exposition("")
    return samples(text.decode())


async def test_open_rows_are_counted_by_kind_and_state_and_by_what_they_wait_for(database: Database) -> None:
    async with database.transaction() as tx:
        for name, disabled, ago in (("a", False, 1), ("b", False, 100), ("c", True, 1)):
            await tx.execute(_HOST, (name, disabled, ago))
        kinds = [
            ("boot", "ready"),
            ("boot", "ready"),
            ("boot", "stuck"),
            ("boot", "done"),
            ("stop", "running"),
        ]
        for number, (kind, state) in enumerate(kinds):
            await tx.execute(_OPERATION, (str(number), kind, state))
        for number, (kind, seconds, outcome) in enumerate(
            [("spawn", None, None), ("spawn", 2.0, "succeeded"), ("stop", 1.0, "failed")]
        ):
            await tx.execute(_COMMAND, (str(number), kind, seconds, outcome))
    found = await scrape(metrics(database))
    assert found["moorage_hosts"] == {("up",): 1, ("down",): 1, ("disabled",): 1}
    assert found["moorage_operations"] == {("boot", "ready"): 2, ("boot", "stuck"): 1, ("stop", "running"): 1}
    assert found["moorage_operations_waiting"] == {
        ("boot", "turn"): 2,
        ("boot", "operator"): 1,
        ("stop", "conductor"): 1,
    }
    assert set(found["moorage_operations_oldest_seconds"]) == set(found["moorage_operations"])
    assert found["moorage_commands_outstanding"] == {("spawn",): 1}
    assert found["moorage_database_up"] == {(): 1}


async def test_what_was_read_is_kept_for_a_while_and_costs_one_statement(database: Database) -> None:
    found = metrics(database, keep=3600)
    assert (await scrape(found))["moorage_hosts"] == {("up",): 0, ("down",): 0, ("disabled",): 0}
    async with database.transaction() as tx:
        await tx.execute(_HOST, ("a", False, 1))
    assert (await scrape(found))["moorage_hosts"][("up",)] == 0
    assert (await scrape(metrics(database, keep=0)))["moorage_hosts"][("up",)] == 1


async def test_without_the_database_the_rest_is_shown(database: Database) -> None:
    lost = Database("postgresql://nobody@127.0.0.1:1/none")
    found = await scrape(metrics(lost))
    assert found["moorage_database_up"] == {(): 0}
    assert "moorage_hosts" not in found
    assert found["moorage_placement_index_age_seconds"] == {(): 0.5}
    assert found["moorage_http_connections"] == {("80",): 2}


@pytest.mark.parametrize(
    ("listen", "token", "ok"),
    [("127.0.0.1", None, True), ("::1", None, True), ("0.0.0.0", None, False), ("0.0.0.0", "t", True)],
)
def test_the_network_reads_metrics_with_a_token_only(listen: str, token: str | None, ok: bool) -> None:
    conf = config.load(options(), environ={}, overrides={"metrics.listen": listen, "metrics.token": token})
    if ok:
        assert metrics_address(conf) == listen
    else:
        with pytest.raises(OptionsWrong, match="set the token of"):
            metrics_address(conf)
