"""After the last fault: everything settles, and then nothing is open, stuck without a reason, leaked or forgotten."""

import asyncio
import random
import time
from collections import Counter
from typing import Any

import msgspec

from moorage.store.database import Database
from moorage.store.errors import StoreUnavailable
from tests.chaos.users import Api, User
from tests.chaos.world import World

_OPEN = (
    "SELECT id, kind, state, step, direction, subject, attempts, wake_at::text, error FROM operations "
    "WHERE state IN ('ready', 'running', 'waiting')"
)
_ENDS = "SELECT kind, state, count(*) FROM operations GROUP BY kind, state ORDER BY kind, state"
_STUCK = "SELECT id, kind, step, error FROM operations WHERE state = 'stuck'"
_HELD = (
    "SELECT 'connection ' || pid || ' ' || application_name || ' ' || left(query, 80) FROM pg_stat_activity "
    "WHERE datname = 'moorage' AND pid <> pg_backend_pid() AND backend_type = 'client backend' "
    "UNION ALL SELECT 'advisory lock of ' || pid FROM pg_locks WHERE locktype = 'advisory' "
    "UNION ALL SELECT 'prepared transaction ' || gid FROM pg_prepared_xacts "
    "UNION ALL SELECT 'lease of operation ' || id FROM operations WHERE state = 'running'"
)
_LEFT = (
    "SELECT 'server', count(*) FROM servers WHERE deleted_at IS NULL UNION ALL "
    "SELECT 'port', count(*) FROM ports UNION ALL "
    "SELECT 'address', count(*) FROM port_fixed_ips UNION ALL "
    "SELECT 'binding', count(*) FROM bindings UNION ALL "
    "SELECT 'allocation', count(*) FROM allocations UNION ALL "
    "SELECT 'used inventory', count(*) FROM inventories WHERE used <> 0 UNION ALL "
    "SELECT 'used quota', count(*) FROM quota_usages WHERE (instances, cores, ram) <> (0, 0, 0)"
)
# What a log may not have: faults of ours that no user was told of.
FAULTS_OF_OURS = (
    "request.failed",
    "Exception in ASGI application",
    "operation.engine_failed",
    "operation.step_crashed",
    "command.crashed",
    "command.unrecorded",
    "never retrieved",
    "was never awaited",
    "Task was destroyed",
)


class Verdict(msgspec.Struct):
    """``problems`` is empty after a clean run."""

    problems: list[str] = []
    operations: dict[str, int] = {}
    servers: dict[str, int] = {}
    settled_in: float = 0.0


async def judge(world: World, admin: Api, users: list[User]) -> Verdict:
    """Faults have ended and every process runs."""
    verdict = Verdict(problems=[*admin.told.wrong])
    database = world.database()
    await database.open()
    try:
        await _settles(world, database, verdict)
        await _servers(users, verdict)
        await _audit(admin, verdict, world.setting.settle)
        await _emptied(database, admin, users, verdict, world.setting.settle)
        verdict.problems += [w for w in admin.told.wrong if w not in verdict.problems]
        await _stops(world, database, verdict)
    finally:
        await database.close()
    if broken := world.proxy.did["answered 500"]:
        verdict.problems.append(f"agents were answered 500 {broken} times")
    _logs(world, verdict)
    return verdict


async def _settles(world: World, database: Database, verdict: Verdict) -> None:
    began = time.monotonic()
    still = await _until_none(database, _OPEN, world.setting.settle)
    verdict.settled_in = time.monotonic() - began
    verdict.problems += [f"not settled: {dict(row)}" for row in still]
    async with database.read() as tx:
        verdict.operations = {f"{r[0]} {r[1]}": r[2] for r in await tx.fetch(_ENDS)}
        for row in await tx.fetch(_STUCK):
            if not (row["error"] or {}).get("message"):
                verdict.problems.append(f"stuck without a reason: {dict(row)}")


async def _until_none(database: Database, sql: str, within: float) -> list[Any]:
    """What a query still finds when it should find nothing any more."""
    deadline = time.monotonic() + within
    found: list[Any] = [None]
    while found and time.monotonic() < deadline:
        try:
            async with database.read() as tx:
                found = await tx.fetch(sql)
        except StoreUnavailable:
            pass
        await asyncio.sleep(0.3)
    return found


async def _servers(users: list[User], verdict: Verdict) -> None:
    chance = random.Random(0)
    ends: Counter[str] = Counter()
    for user in users:
        for server, deleted in user.promised.items():
            status, body = await user.api.request(chance, "compute", "GET", f"/servers/{server}")
            if status == 404:
                ends["gone"] += 1
                if not deleted:
                    verdict.problems.append(f"{server} of {user.name} is gone, and nobody deleted it")
                continue
            if status != 200:
                verdict.problems.append(f"{server} of {user.name}: {status} {body}")
                continue
            found = body["server"]
            ends[found["status"]] += 1
            task = found.get("OS-EXT-STS:task_state")
            good = found["status"] in {"ACTIVE", "SHUTOFF"} or (
                found["status"] == "ERROR" and found.get("fault")
            )
            if task is not None or not good:
                what = f"{found['status']}, task {task}, fault {found.get('fault')}"
                verdict.problems.append(f"{server} of {user.name} is {what}")
    verdict.servers = dict(ends)


async def _audit(admin: Api, verdict: Verdict, within: float) -> None:
    # Hosts report every two seconds, and the audit holds nothing against what is younger than ten.
    deadline = time.monotonic() + within
    while True:
        status, report = await admin.request(random.Random(0), "compute", "GET", "/moorage/v1/audit")
        if (status == 200 and report["clean"]) or time.monotonic() > deadline:
            break
        await asyncio.sleep(1)
    if status != 200:
        verdict.problems.append(f"audit: {status} {report}")
    else:
        verdict.problems += [f"audit: {f['invariant']} {f['message']}" for f in report["findings"]]


async def _emptied(
    database: Database, admin: Api, users: list[User], verdict: Verdict, within: float
) -> None:
    """Users delete all they have; then nothing is held."""
    chance = random.Random(0)
    for user in users:
        _, found = await user.api.request(chance, "compute", "GET", "/servers")
        for server in found["servers"]:
            await user.api.request(chance, "compute", "DELETE", f"/servers/{server['id']}")
    open_servers = "SELECT id, vm_state, task_state FROM servers WHERE deleted_at IS NULL"
    still = await _until_none(database, open_servers, within)
    verdict.problems += [f"not deleted: {dict(row)}" for row in still]
    for user in users:
        _, found = await user.api.request(chance, "network", "GET", "/ports")
        for port in found["ports"]:
            await user.api.request(chance, "network", "DELETE", f"/ports/{port['id']}")
        _, found = await user.api.request(chance, "network", "GET", "/networks")
        for network in found["networks"]:
            status, body = await user.api.request(chance, "network", "DELETE", f"/networks/{network['id']}")
            if status != 204:
                verdict.problems.append(f"network {network['id']} cannot be deleted: {status} {body}")
    async with database.read() as tx:
        verdict.problems += [f"left: {r[1]} x {r[0]}" for r in await tx.fetch(_LEFT) if r[1]]
    await _audit(admin, verdict, within)


async def _stops(world: World, database: Database, verdict: Verdict) -> None:
    for name, status in (await world.stop_programs()).items():
        if status != 0:
            verdict.problems.append(f"{name} ended with {status} when it was told to stop")
    verdict.problems += [f"left: {row[0]}" for row in await _until_none(database, _HELD, 60)]


def _logs(world: World, verdict: Verdict) -> None:
    for path in sorted(world.logs.glob("*.log")):
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if any(words in line for words in FAULTS_OF_OURS):
                verdict.problems.append(f"{path.name}:{number}: {line[:300]}")
