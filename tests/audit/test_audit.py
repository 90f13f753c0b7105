"""Each invariant, broken in the ways it can be: exactly that finding, and none in a sound cloud."""

from collections.abc import Sequence

import msgspec
import pytest

from audit.world import World, log, operation, server
from moorage.audit import INVARIANTS, audit, render
from moorage.store.database import Database

# SQL: the quota fits the servers again, so that one thing at a time is wrong.
QUOTA = (
    "UPDATE quota_usages q SET (instances, cores, ram) ="
    " (SELECT count(*), sum(vcpus), sum(memory_mb) FROM servers s"
    " WHERE s.project_id = q.project_id AND s.deleted_at IS NULL) WHERE project_id = 'p'"
)


def guests(*rows: tuple[str, str]) -> str:
    """SQL: what h1 says of its guests."""
    text = ", ".join(f'{{"server_id": "{name}", "power_state": "{state}"}}' for name, state in rows)
    return f"UPDATE hosts SET guests = '[{text}]' WHERE name = 'h1'"  # noqa: S608  a test's own rows


def server_row(name: str, **changes: str) -> str:
    """SQL: change columns of a server, long ago."""
    values = ", ".join(f"{column} = {value}" for column, value in changes.items())
    return f"UPDATE servers SET {values} WHERE id = '{name}'"  # noqa: S608  a test's own rows


ACTIVE, STOPPED = ("active", "running"), ("stopped", "shutdown")

# (invariant, what breaks it, the subjects of the findings)
BROKEN: list[tuple[str, Sequence[str], list[str]]] = [
    ("server.task", [server("x", "building", host=None), QUOTA], ["x"]),
    ("server.task", [server_row("active", task_state="'rebooting'")], ["active"]),
    ("server.host", [server("x", "stopped", host=None), QUOTA], ["x"]),
    ("server.host", [server("x", "shelved_offloaded", host="h2"), QUOTA], ["x"]),
    ("server.deleted", [server_row("gone", vm_state="'active'")], ["gone"]),
    ("server.deleted", [server_row("gone", task_state="'deleting'")], ["gone"]),
    ("server.deleted", [operation("x", "server:gone", "ready")], ["gone"]),
    ("server.deleted", [server_row("failed", vm_state="'deleted'")], ["failed"]),
    ("server.flavor", ["UPDATE servers SET flavor = flavor || '{\"ephemeral\": 2}' WHERE id = 'active'"], ["active"]),
    ("quota.usage", ["UPDATE quota_usages SET ram = ram + 1 WHERE project_id = 'p'"], ["p"]),
    ("quota.usage", ["UPDATE quota_usages SET cores = 1 WHERE project_id = 'idle'"], ["idle"]),
    ("quota.usage", ["DELETE FROM quota_usages WHERE project_id = 'p'"], ["p"]),
    ("claim.amounts", ["DELETE FROM allocations WHERE consumer_id = 'active' AND resource_class = 'DISK_GB'",
                       "UPDATE inventories SET used = 5 WHERE resource_class = 'DISK_GB'"], ["active"]),
    ("claim.amounts", ["UPDATE allocations SET used = 3 WHERE consumer_id = 'stopped' AND resource_class = 'VCPU'",
                       "UPDATE inventories SET used = 5 WHERE provider_id = 'P1a'"], ["stopped"]),
    ("claim.amounts", ["DELETE FROM allocations WHERE consumer_id = 'active'",
                       "DELETE FROM consumers WHERE id = 'active'",
                       "UPDATE inventories SET used = used / 2"], ["active"]),
    ("claim.host", ["UPDATE allocations SET provider_id = 'P2' WHERE consumer_id = 'active' AND resource_class = 'VCPU'",
                    "UPDATE inventories SET used = 2 WHERE resource_class = 'VCPU'"], ["active"]),
    ("claim.host", ["DELETE FROM provider_aggregates WHERE provider_id = 'PS'"], ["active", "stopped"]),
    ("claim.server", ["INSERT INTO consumers (id, project_id, user_id, consumer_type) VALUES ('x', 'p', 'u', 'INSTANCE')",
                      "INSERT INTO allocations (consumer_id, provider_id, resource_class, used) VALUES ('x', 'P2', 'VCPU', 1)",
                      "UPDATE inventories SET used = 1 WHERE provider_id = 'P2'"], ["x"]),
    ("claim.server", ["INSERT INTO consumers (id, project_id, user_id, consumer_type) VALUES ('failed', 'p', 'u', 'INSTANCE'), ('gone', 'p', 'u', 'INSTANCE')",
                      "INSERT INTO allocations (consumer_id, provider_id, resource_class, used) VALUES ('failed', 'P2', 'VCPU', 2), ('gone', 'P2', 'VCPU', 2)",
                      "UPDATE inventories SET used = 4 WHERE provider_id = 'P2'"], ["failed", "gone"]),
    ("claim.owner", ["UPDATE consumers SET project_id = 'q' WHERE id = 'active'"], ["active"]),
    ("consumer.holds", ["INSERT INTO consumers (id, project_id, user_id) VALUES ('x', 'p', 'u')"], ["x"]),
    ("inventory.used", ["UPDATE inventories SET used = 7 WHERE provider_id = 'P1a'"], ["P1a VCPU"]),
    ("inventory.used", ["UPDATE inventories SET used = 1 WHERE provider_id = 'P2'"], ["P2 VCPU"]),
    ("inventory.capacity", ["UPDATE inventories SET total = 9 WHERE provider_id = 'PS'"], ["PS DISK_GB"]),
    ("inventory.capacity", ["UPDATE inventories SET reserved = 7169 WHERE resource_class = 'MEMORY_MB'"],
     ["P1 MEMORY_MB"]),
    ("provider.tree", ["UPDATE resource_providers SET root_id = 'P2' WHERE id = 'PS'"], ["PS"]),
    ("provider.tree", ["INSERT INTO resource_providers (id, name, parent_id, root_id) VALUES ('x', 'x', 'P2', 'P1')"], ["x"]),
    ("provider.host", ["UPDATE resource_providers SET name = 'other' WHERE id = 'P2'"], ["h2"]),
    ("provider.host", ["UPDATE resource_providers SET parent_id = 'P1', root_id = 'P1' WHERE id = 'P2'"], ["h2"]),
    ("port.server", ["UPDATE ports SET device_id = 'x', device_owner = 'compute:nova' WHERE id = 'free'"], ["free"]),
    ("port.server", ["UPDATE ports SET created_for_device = true WHERE id = 'free'"], ["free"]),
    ("port.server", ["UPDATE ports SET device_id = 'gone' WHERE id = 'free'"], ["free"]),
    ("port.failed", ["UPDATE ports SET device_id = 'failed', device_owner = 'compute:nova' WHERE id = 'free'"],
     ["failed"]),
    ("port.binding", ["DELETE FROM bindings WHERE port_id = 'p1'"], ["p1"]),
    ("port.binding", ["UPDATE bindings SET host = 'h2' WHERE port_id = 'p2'"], ["p2"]),
    ("port.binding", ["UPDATE bindings SET status = 'INACTIVE' WHERE port_id = 'p1'"], ["p1"]),
    ("port.binding", ["UPDATE bindings SET vif_type = 'binding_failed' WHERE port_id = 'p1'"], ["p1"]),
    ("port.binding", ["INSERT INTO bindings (port_id, host, status, mechanism, vif_type) VALUES ('p1', 'h2', 'INACTIVE', 'ovn', 'ovs')"], ["p1"]),
    ("port.status", ["UPDATE ports SET status = 'DOWN' WHERE id = 'p1'"], ["p1"]),
    ("port.zone", ["UPDATE ports SET device_owner = 'compute:other' WHERE id = 'p2'"], ["p2"]),
    ("binding.server", ["INSERT INTO bindings (port_id, host, mechanism, vif_type) VALUES ('free', 'h1', 'ovn', 'ovs')"], ["free"]),
    ("binding.server", [server("x", "shelved_offloaded", host=None), QUOTA,
                        "UPDATE ports SET device_id = 'x', device_owner = 'compute:nova' WHERE id = 'free'",
                        "INSERT INTO bindings (port_id, host, mechanism, vif_type) VALUES ('free', 'h1', 'ovn', 'ovs')"], ["free"]),
    ("binding.host", ["UPDATE bindings SET host = 'h9' WHERE port_id = 'dhcp'"], ["dhcp"]),
    ("network.segment", ["INSERT INTO networks (id, project_id, mtu) VALUES ('x', 'p', 1442)"], ["x"]),
    ("address.subnet", ["UPDATE port_fixed_ips SET address = '10.0.1.12' WHERE port_id = 'free'"], ["10.0.1.12"]),
    ("address.subnet", ["UPDATE port_fixed_ips SET address = 'fd00::12' WHERE port_id = 'free'"], ["fd00::12"]),
    ("address.subnet", ["UPDATE port_fixed_ips SET address = '10.0.0.255' WHERE port_id = 'free'"], ["10.0.0.255"]),
    ("address.subnet", ["UPDATE port_fixed_ips SET address = '10.0.0.0' WHERE port_id = 'free'"], ["10.0.0.0"]),
    ("address.subnet", ["UPDATE port_fixed_ips SET address = 'ten' WHERE port_id = 'free'"], ["ten"]),
    ("address.subnet", ["INSERT INTO networks (id, project_id, mtu) VALUES ('x', 'p', 1442)",
                        "INSERT INTO segments (id, network_id, network_type, segmentation_id) VALUES ('x', 'x', 'geneve', 7)",
                        "UPDATE ports SET network_id = 'x' WHERE id = 'free'"], ["10.0.0.12"]),
    ("address.unique", ["INSERT INTO port_fixed_ips VALUES ('p2', 'v6', 'fd00:0::10')"], ["fd00::10"]),
    ("address.pool", ["UPDATE port_fixed_ips SET address = '10.0.0.151' WHERE address = '10.0.0.10'"], ["10.0.0.151"]),
    ("subnet.pools", ["UPDATE subnets SET gateway_ip = '10.0.0.99' WHERE id = 'v4'"], ["v4"]),
    ("subnet.pools", ["UPDATE subnets SET ip_version = 4 WHERE id = 'v6'"], ["v6"]),
    ("subnet.pools", ["INSERT INTO allocation_pools VALUES ('v4', '10.0.0.90', '10.0.0.120')"], ["v4"]),
    ("subnet.pools", ["INSERT INTO allocation_pools VALUES ('v4', '10.0.1.1', '10.0.1.9')"], ["v4"]),
    ("subnet.pools", ["INSERT INTO allocation_pools VALUES ('v4', '10.0.0.140', '10.0.0.130')"], ["v4"]),
    ("subnet.disjoint", ["INSERT INTO subnets (id, network_id, project_id, ip_version, cidr) VALUES ('x', 'n', 'p', 4, '10.0.0.128/25'), ('y', 'n', 'p', 4, '10.0.1.0/24')"], ["x"]),
    ("guest.server", [guests(ACTIVE, STOPPED, ("x", "running"))], ["x"]),
    ("guest.server", [guests(ACTIVE, STOPPED, ("gone", "running"))], ["gone"]),
    ("guest.server", ["UPDATE hosts SET guests = '[{\"server_id\": \"active\", \"power_state\": \"paused\"}]' WHERE name = 'h2'"], ["active"]),
    ("guest.power", [guests(STOPPED)], ["active"]),
    ("guest.power", [guests(("active", "crashed"), STOPPED)], ["active"]),
    ("guest.power", [guests(ACTIVE, ("stopped", "running"))], ["stopped"]),
    ("operation.wake", ["UPDATE operations SET wake_at = NULL WHERE id = 'op-spawning'"], ["op-spawning"]),
    ("operation.lease", ["UPDATE operations SET state = 'running' WHERE id = 'op-new'"], ["op-new"]),
    ("operation.lease", ["UPDATE operations SET state = 'running', owner = 'c' WHERE id = 'op-new'"], ["op-new"]),
    ("operation.finished", ["UPDATE operations SET sent = true WHERE id = 'boot'"], ["boot"]),
    ("operation.finished", ["UPDATE operations SET lease_until = now() + interval '6 minutes' WHERE id = 'end'"],
     ["end"]),
    ("operation.turn", ["UPDATE operations SET state = 'waiting', wake_at = now() WHERE id = 'op-next'"],
     ["server:spawning"]),
    ("operation.command", ["DELETE FROM commands WHERE id = 'c1'"], ["op-spawning"]),
    ("operation.command", ["UPDATE commands SET finished_at = now() - interval '1 hour' WHERE id = 'c1'"], ["op-spawning"]),
    ("operation.log", ["UPDATE operations SET state = 'done' WHERE id = 'fail'"], ["fail s1", "fail s2"]),
    ("operation.log", ["UPDATE operations SET state = 'failed' WHERE id = 'end'"], ["end s1"]),
    ("operation.log", [log("boot", "started", step="s2")], ["boot s2"]),
    ("operation.log", [log("fail", "started", step="s3")], ["fail s3"]),
    ("operation.log", [operation("x", "server:failed", "abandoned", error="'{\"left\": []}'"),
                       log("x", "failed", "abandoned", step="s2"), log("x", "succeeded")], ["x s1"]),
    ("operation.abandoned", [operation("x", "server:failed", "abandoned")], ["x"]),
    ("operation.abandoned", [operation("x", "server:active", "abandoned", error="'{\"left\": []}'")], ["x"]),
    ("operation.subject", [operation("x", "server:x", "ready")], ["x"]),
    ("operation.stuck", [operation("x", "server:active", "stuck")], ["x"]),
    ("command.operation", ["INSERT INTO commands (id, host, operation, step, kind, fence, payload) VALUES ('x', 'h1', 'op-x', 's', 'guest.stop', 1, '{}')"], ["x"]),
    ("aggregate.host", ["INSERT INTO aggregate_hosts SELECT id, 'h9' FROM aggregates"],
     ["1 h9"]),
    ("row.parent", ["INSERT INTO placements (server_id, attempt, plan) VALUES ('x', 1, '{}')"], ["placements x"]),
    ("row.parent", ["INSERT INTO allocations (consumer_id, provider_id, resource_class, used) VALUES ('active', 'P1', 'SRIOV_NET_VF', 1)"], ["allocations P1 SRIOV_NET_VF"]),
]  # fmt: skip


async def test_a_sound_cloud_has_no_findings(world: World):
    report = await audit(world.database)
    assert report.findings == ()
    assert report.clean
    # Every invariant looked at something, or it would not have been tried at all.
    assert [name for name, count in report.checked.items() if count == 0] == [
        "operation.lease",
        "operation.stuck",
    ]


async def test_an_empty_cloud_has_no_findings(database: Database):
    report = await audit(database)
    assert report.clean
    assert set(report.checked) == {i.name for i in INVARIANTS} | {"row.parent"}


@pytest.mark.parametrize(
    ("invariant", "statements", "subjects"), BROKEN, ids=[f"{b[0]}-{n}" for n, b in enumerate(BROKEN)]
)
async def test_what_is_broken_is_found_and_nothing_else(
    world: World, invariant: str, statements: Sequence[str], subjects: list[str]
):
    report = await world.audit(*statements)
    assert sorted({(f.invariant, f.subject) for f in report.findings}) == [(invariant, s) for s in subjects]
    assert all(f.message for f in report.findings)
    # Findings go to the command line and over HTTP.
    assert msgspec.json.decode(msgspec.json.encode(report))["findings"]


def test_every_invariant_is_seen_to_fail():
    assert {b[0] for b in BROKEN} == {i.name for i in INVARIANTS} | {"row.parent"}


@pytest.mark.parametrize(
    "change",
    [
        server_row("active", updated_at="now() - interval '5 seconds'"),
        operation("x", "server:active", "ready"),
    ],
)
async def test_a_server_that_has_not_settled_is_left_alone(world: World, change: str):
    assert (await world.audit(guests(STOPPED), "DELETE FROM bindings WHERE port_id = 'p1'", change)).clean


async def test_grace_is_the_callers(world: World):
    changes = [guests(STOPPED), server_row("active", updated_at="now() - interval '5 seconds'")]
    assert (await world.audit(*changes, grace=10)).clean
    assert [f.invariant for f in (await world.audit(*changes, grace=1)).findings] == ["guest.power"]


@pytest.mark.parametrize("last_seen", ["now() - interval '2 minutes'", "NULL"])
async def test_a_silent_host_says_nothing_of_its_guests(world: World, last_seen: str):
    assert (await world.audit(guests(("x", "running")), f"UPDATE hosts SET last_seen = {last_seen}")).clean  # noqa: S608


async def test_a_host_that_has_not_reported_since_is_not_behind(world: World):
    """A server stopped 15 s ago; its host was last heard of 12 s ago, when it may not have known."""
    report = await world.audit(
        guests(ACTIVE, ("stopped", "running")),
        server_row("stopped", updated_at="now() - interval '15 seconds'"),
        "UPDATE hosts SET last_seen = now() - interval '12 seconds'",
    )
    assert report.clean


async def test_a_deleted_guest_may_wait_for_its_host_to_return(world: World):
    report = await world.audit(
        guests(ACTIVE, STOPPED, ("gone", "running")),
        "INSERT INTO commands (id, host, operation, step, kind, fence, payload)"
        " VALUES ('x', 'h1', 'end', 'destroy_guest', 'guest.destroy', 0, '{\"server_id\": \"gone\"}')",
    )
    assert report.clean


async def test_an_address_may_be_outside_of_pools_that_changed_since_it_was_given(world: World):
    gone = "DELETE FROM allocation_pools"
    assert {f.invariant for f in (await world.audit(gone)).findings} == {"address.pool"}
    assert (await world.audit(gone, "UPDATE subnets SET updated_at = now() + interval '1 second'")).clean


async def test_the_report_as_text(world: World):
    assert render(await world.audit()).splitlines()[-1] == "audit: clean"
    report = await world.audit("UPDATE inventories SET total = 9 WHERE provider_id = 'PS'")
    lines = render(report).splitlines()
    assert lines[-1] == "audit: 1 finding"
    at = next(n for n, line in enumerate(lines) if line.startswith("inventory.capacity"))
    assert "4 checked  1 broken" in lines[at]
    assert lines[at + 1] == "    PS DISK_GB: provider pool: 10 of 9 are used"
    assert len(lines) == len(INVARIANTS) + 3
