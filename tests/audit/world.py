"""A small consistent cloud, in rows alone: nothing of the code that is audited writes them."""

from collections.abc import Sequence

from moorage.audit import Report, audit_within
from moorage.store.database import Database, Tx

_FLAVOR = '{"vcpus": 2, "ram": 512, "disk": 3, "ephemeral": 1, "swap": 512}'


def server(
    name: str,
    state: str = "active",
    *,
    host: str | None = "h1",
    task: str | None = None,
    deleted: bool = False,
) -> str:
    """SQL: a server of two cores that last changed an hour ago. It uses quota only if the test says so."""

    def text(value: str | None) -> str:
        return "NULL" if value is None else f"'{value}'"

    return f"""
        INSERT INTO servers (id, project_id, user_id, name, hostname, reservation_id, flavor, vcpus, memory_mb, disk_gb,
            image_id, availability_zone, host, vm_state, task_state, requested_networks, created_at, deleted_at)
        VALUES ('{name}', 'p', 'u', '{name}', '{name}', 'r', '{_FLAVOR}', 2, 512, 5, 'image',
            {text("nova" if host else None)}, {text(host)}, '{state}', {text(task)},
            '[{{"network_id": "n"}}]', now() - interval '1 hour', {"now() - interval '1 hour'" if deleted else "NULL"})
    """  # noqa: S608  a test's own rows


def operation(name: str, subject: str, state: str, **more: str) -> str:
    """SQL: an operation; more columns as SQL expressions."""
    columns = {
        "kind": "'server.boot'", "version": "1", "priority": "5", "params": "'{}'", "data": "'{}'",
        "refusals": "'[]'", "step": "'s1'", "updated_at": "now()", **more,
    }  # fmt: skip
    return (
        f"INSERT INTO operations (id, subject, state, {', '.join(columns)})"  # noqa: S608  a test's own rows
        f" VALUES ('{name}', '{subject}', '{state}', {', '.join(columns.values())})"
    )


def log(operation_id: str, *events: str, step: str = "s1", number: int = 0) -> str:
    """SQL: events of one step."""
    rows = ", ".join(f"('{operation_id}', {number}, '{step}', '{event}', 1)" for event in events)
    return f'INSERT INTO operation_steps (operation, "round", step, event, fence) VALUES {rows}'  # noqa: S608


_COMMAND = """'{"_command": "c1"}'"""

CONSISTENT = (
    # Two hosts; h1 has a tree of two providers and shares the disk of a third.
    """INSERT INTO hosts (id, name, protocol, agent_version, facts, last_seen, guests) VALUES
        ('H1', 'h1', 3, '1', '{"vcpus": 16}', now(), '[{"server_id": "active", "power_state": "running"},
            {"server_id": "stopped", "power_state": "shutdown"}]'),
        ('H2', 'h2', 3, '1', '{"vcpus": 16}', now(), '[]')""",
    """INSERT INTO resource_providers (id, name, parent_id, root_id) VALUES
        ('P1', 'h1', NULL, 'P1'), ('P1a', 'h1:numa', 'P1', 'P1'), ('P2', 'h2', NULL, 'P2'),
        ('PS', 'pool', NULL, 'PS')""",
    "INSERT INTO provider_traits VALUES ('PS', 'MISC_SHARES_VIA_AGGREGATE')",
    "INSERT INTO provider_aggregates VALUES ('PS', 'A'), ('P1', 'A')",
    """INSERT INTO inventories (provider_id, resource_class, total, reserved, allocation_ratio, used) VALUES
        ('P1', 'MEMORY_MB', 8192, 512, 1, 1024), ('P1a', 'VCPU', 16, 0, 4, 4), ('PS', 'DISK_GB', 100, 0, 1, 10),
        ('P2', 'VCPU', 16, 0, 4, 0)""",
    # An aggregate of both hosts.
    "INSERT INTO aggregates (uuid, name) VALUES ('a', 'a')",
    "INSERT INTO aggregate_hosts SELECT id, 'h1' FROM aggregates",
    # Servers in every settled state.
    server("active"),
    server("stopped", "stopped"),
    server("failed", "error", host=None),
    server("gone", "deleted", deleted=True),
    "INSERT INTO quota_usages VALUES ('p', 3, 6, 1536), ('idle', 0, 0, 0)",
    """INSERT INTO consumers (id, project_id, user_id, consumer_type) VALUES
        ('active', 'p', 'u', 'INSTANCE'), ('stopped', 'p', 'u', 'INSTANCE')""",
    """INSERT INTO allocations (consumer_id, provider_id, resource_class, used) VALUES
        ('active', 'P1', 'MEMORY_MB', 512), ('active', 'P1a', 'VCPU', 2), ('active', 'PS', 'DISK_GB', 5),
        ('stopped', 'P1', 'MEMORY_MB', 512), ('stopped', 'P1a', 'VCPU', 2), ('stopped', 'PS', 'DISK_GB', 5)""",
    # A network of two subnets; each server has a port with an address of each.
    "INSERT INTO networks (id, project_id, mtu) VALUES ('n', 'p', 1442)",
    "INSERT INTO segments (id, network_id, network_type) VALUES ('seg', 'n', 'geneve')",
    """INSERT INTO subnets (id, network_id, project_id, ip_version, cidr, gateway_ip, updated_at) VALUES
        ('v4', 'n', 'p', 4, '10.0.0.0/24', '10.0.0.1', now() - interval '2 hours'),
        ('v6', 'n', 'p', 6, 'fd00::/64', NULL, now() - interval '2 hours')""",
    """INSERT INTO allocation_pools (subnet_id, start, "end") VALUES
        ('v4', '10.0.0.2', '10.0.0.99'), ('v4', '10.0.0.200', '10.0.0.254'), ('v6', 'fd00::2', 'fd00::ffff')""",
    """INSERT INTO ports (id, network_id, project_id, mac_address, device_id, device_owner, created_for_device, status,
                          created_at) VALUES
        ('p1', 'n', 'p', 'fa:16:3e:00:00:01', 'active', 'compute:nova', true, 'ACTIVE', now() - interval '1 hour'),
        ('p2', 'n', 'p', 'fa:16:3e:00:00:02', 'stopped', 'compute:nova', false, 'DOWN', now() - interval '1 hour'),
        ('free', 'n', 'p', 'fa:16:3e:00:00:03', '', '', false, 'DOWN', now() - interval '1 hour'),
        ('dhcp', 'n', 'p', 'fa:16:3e:00:00:04', 'dhcp-1', 'network:dhcp', false, 'ACTIVE', now())""",
    # p2's address was asked for: it is outside the pools.
    """INSERT INTO port_fixed_ips (port_id, subnet_id, address) VALUES
        ('p1', 'v4', '10.0.0.10'), ('p1', 'v6', 'fd00::10'), ('p2', 'v4', '10.0.0.150'), ('free', 'v4', '10.0.0.12')""",
    """INSERT INTO bindings (port_id, host, mechanism, vif_type) VALUES
        ('p1', 'h1', 'ovn', 'ovs'), ('p2', 'h1', 'ovn', 'ovs'), ('dhcp', 'h1', 'ovn', 'ovs')""",
    # Operations that ended: one that took a second round, one that was undone.
    operation("boot", "server:active", "done", owner="'c1'", lease_until="now() + interval '30 seconds'"),
    log("boot", "started", "failed", "undone"),
    log("boot", "started", "succeeded", number=1),
    operation("fail", "server:failed", "failed"),
    log("fail", "succeeded", "undone"),
    log("fail", "failed", "undo_started", "undo_failed", "undone", step="s2"),
    operation("given-up", "server:gone", "abandoned", error="""'{"left": []}'"""),
    log("given-up", "failed", "abandoned"),
    operation("end", "server:gone", "done"),
    log("end", "succeeded"),
    # Servers under way are nobody's fault: a boot at its beginning, and one that waits for its host.
    server("new", "building", host=None, task="scheduling"),
    operation("op-new", "server:new", "ready"),
    server("spawning", "building", task="spawning"),
    operation(
        "op-spawning", "server:spawning", "waiting", sent="true", data=_COMMAND, wake_at="now() + '1 minute'"
    ),
    operation("op-next", "server:spawning", "ready", kind="'server.delete'"),
    """INSERT INTO commands (id, host, operation, step, kind, fence, payload) VALUES
        ('c1', 'h1', 'op-spawning', 's1', 'guest.spawn', 1, '{"server_id": "spawning"}'),
        ('c2', 'h2', 'call:1', 'call', 'guest.console', 0, '{}')""",
    "UPDATE quota_usages SET instances = 5, cores = 10, ram = 2560 WHERE project_id = 'p'",
)


class World:
    """Rows to be changed, and audited."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def fill(self) -> None:
        """Write the sound cloud."""
        async with self.database.transaction() as tx:
            await _apply(tx, CONSISTENT)

    async def audit(self, *changes: str, grace: float = 10.0) -> Report:
        """What an audit finds after some statements, which are taken back."""
        async with self.database.transaction() as tx:
            # Foreign keys are off: what must not happen is what is written here.
            await tx.execute("SET LOCAL session_replication_role = replica")
            await _apply(tx, ["SAVEPOINT before", "UPDATE hosts SET last_seen = now()", *changes])
            report = await audit_within(tx, grace=grace)
            await tx.execute("ROLLBACK TO SAVEPOINT before")
        return report


async def _apply(tx: Tx, statements: Sequence[str]) -> None:
    for statement in statements:
        await tx.execute(statement)
