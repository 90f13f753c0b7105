"""Boots per second and their latency, and port creates per second, with 100 simulated hosts.

The cloud is one process with every role and the hosts, beside its own PostgreSQL (durable, as it ships), Keystone and
Glance; the client is this process. All share the machine, so the client's own CPU is printed too.
"""

import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from bench.client import Boot, Client, Failed, Pace
from bench.usage import Usage, memory, postmaster, usage

HOSTS = 100
CLIENTS = (1, 16, 64)
# Whichever comes first ends a round.
SECONDS, MOST = 10.0, 600
IDLE = 5.0
PORT_CLIENTS, PORT_SECONDS, MOST_PORTS = 16, 5.0, 2000
# Seconds to wait at most for the cloud to be up, for servers to be gone, for the cloud to stop.
START, END = 120.0, 20.0


class Cloud:
    """The measured process."""

    def __init__(self, process: asyncio.subprocess.Process, up: dict[str, Any]) -> None:
        self._process = process
        self.pid: int = up["pid"]
        self.state = Path(up["state"])
        self._postmaster = postmaster(self.state)

    async def statements(self) -> int:
        """SQL statements run so far."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        return int(json.loads(await self._process.stdout.readline())["statements"])

    def usage(self) -> Usage:
        """CPU used so far."""
        return usage(self.pid, self._postmaster)


@contextlib.asynccontextmanager
async def cloud(hosts: int) -> AsyncIterator[Cloud]:
    """A cloud in a new state folder, up while the block runs; raises Failed where it does not come up."""
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as folder:
        Path(folder).chmod(0o711)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.serve", f"{folder}/state", str(hosts),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Cloud(process, await _up(process.stdout))
        finally:
            process.stdin.close()
            try:
                async with asyncio.timeout(END):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def _up(output: asyncio.StreamReader) -> dict[str, Any]:
    try:
        async with asyncio.timeout(START):
            line = await output.readline()
    except TimeoutError as error:
        raise Failed(f"the cloud was not up within {START:.0f} s") from error
    if not line:
        raise Failed("the cloud ended before it was up")
    found: dict[str, Any] = json.loads(line)
    return found


class Measured(NamedTuple):
    """One round: what was done, what was refused (the messages), in how many seconds, at what cost."""

    done: list[Any]
    failed: list[str]
    seconds: float
    cpu: Usage
    client: float
    statements: int

    def each(self, total: float) -> float:
        """A share of a total for each thing done."""
        return total / max(1, len(self.done))


async def measure(
    on: Cloud, clients: int, seconds: float, most: int, work: Callable[[], Awaitable[Any]]
) -> Measured:
    """Let so many clients do the same over and over, for so long or so often."""
    done: list[Any] = []
    failed: list[str] = []
    begun = 0
    end = time.perf_counter() + seconds

    async def client() -> None:
        nonlocal begun
        while begun < most and time.perf_counter() < end:
            begun += 1
            try:
                done.append(await work())
            except Failed as error:
                failed.append(str(error))
                await asyncio.sleep(0.5)

    statements, cpu, own, start = await on.statements(), on.usage(), time.process_time(), time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    taken = time.perf_counter() - start
    if failed:
        print(f"   {len(failed)} failed; the first: {failed[0]}", flush=True)
    return Measured(
        done,
        failed,
        taken,
        on.usage().since(cpu),
        time.process_time() - own,
        await on.statements() - statements,
    )


async def prepare(admin: Client, user: Client) -> dict[str, Any]:
    """An image, a flavor and a network; the body of a server that uses them, and the network's id."""
    image = await admin.call(
        "image", "POST", "/v2/images",
        json={"name": "bench", "disk_format": "raw", "container_format": "bare", "visibility": "public"},
    )  # fmt: skip
    octets = {"Content-Type": "application/octet-stream"}
    await admin.call("image", "PUT", f"/v2/images/{image['id']}/file", data=bytes(1024), headers=octets)
    flavor = {"name": "bench", "vcpus": 1, "ram": 64, "disk": 1}
    flavor = (await admin.call("compute", "POST", "/flavors", json={"flavor": flavor}))["flavor"]
    network = (await user.call("network", "POST", "/v2.0/networks", json={"network": {"name": "bench"}}))[
        "network"
    ]
    subnet = {"network_id": network["id"], "ip_version": 4, "cidr": "10.0.0.0/16"}
    await user.call("network", "POST", "/v2.0/subnets", json={"subnet": subnet})
    return {
        "name": "bench",
        "imageRef": image["id"],
        "flavorRef": flavor["id"],
        "networks": [{"uuid": network["id"]}],
    }


async def idle(on: Cloud) -> None:
    """What the cloud uses while nobody asks for anything: heartbeats, polls, timers."""
    start, cpu, statements = time.perf_counter(), on.usage(), await on.statements()
    await asyncio.sleep(IDLE)
    taken, used = time.perf_counter() - start, on.usage().since(cpu)
    print(
        f"idle   CPU a second: server {used.server / taken * 1000:.1f} ms, PostgreSQL"
        f" {used.postgres / taken * 1000:.1f} ms   SQL statements {(await on.statements() - statements) / taken:.1f}",
        flush=True,
    )


async def boots(on: Cloud, user: Client, spec: dict[str, Any], clients: int) -> None:
    """One round of boots, its figures, and the end of its servers."""
    pace = Pace()
    looks = user.looks
    found = await measure(on, clients, SECONDS, MOST, lambda: user.boot(spec, pace))
    done: list[Boot] = found.done
    # The servers of the last moments booted with fewer and fewer others; rates are of the whole all the same.
    latencies = sorted(boot.latency * 1000 for boot in done)
    quantiles = (
        statistics.quantiles(latencies, n=20, method="inclusive") if len(latencies) > 1 else latencies * 19
    )
    print(
        f"boots, {clients:>2} clients   {len(done) / found.seconds:7.1f}/s"
        f"   p50 {quantiles[9]:6.0f} ms   p95 {quantiles[18]:6.0f} ms   ({len(done)} in {found.seconds:.1f} s)\n"
        f"   CPU a boot: server {found.each(found.cpu.server) * 1000:.1f} ms, PostgreSQL"
        f" {found.each(found.cpu.postgres) * 1000:.1f} ms, this client {found.each(found.client) * 1000:.1f} ms"
        f"   SQL statements {found.each(found.statements):.1f}   looks {found.each(user.looks - looks):.1f}",
        flush=True,
    )
    await remove(user, [boot.server_id for boot in done])


async def remove(user: Client, server_ids: list[str]) -> None:
    """Delete servers, 16 at once, and wait (20 s at most) until they are gone."""
    start = time.perf_counter()
    gate = asyncio.Semaphore(16)

    async def one(server_id: str) -> None:
        async with gate:
            await user.delete(server_id)

    await asyncio.gather(*(one(server_id) for server_id in server_ids))
    while time.perf_counter() < start + END:
        if not (await user.call("compute", "GET", "/servers?limit=1"))["servers"]:
            taken = time.perf_counter() - start
            print(f"   deleted again: {len(server_ids) / taken:.1f}/s", flush=True)
            return
        await asyncio.sleep(0.1)
    print(f"   some of the {len(server_ids)} servers are not deleted after {END:.0f} s", flush=True)


async def ports(on: Cloud, user: Client, network_id: str) -> None:
    """Port creates."""
    body = {"port": {"network_id": network_id}}
    found = await measure(
        on,
        PORT_CLIENTS,
        PORT_SECONDS,
        MOST_PORTS,
        lambda: user.call("network", "POST", "/v2.0/ports", json=body),
    )
    print(
        f"ports, {PORT_CLIENTS} clients   {len(found.done) / found.seconds:7.1f}/s"
        f"   ({len(found.done)} in {found.seconds:.1f} s)\n"
        f"   CPU a port: server {found.each(found.cpu.server) * 1000:.1f} ms, PostgreSQL"
        f" {found.each(found.cpu.postgres) * 1000:.1f} ms   SQL statements {found.each(found.statements):.1f}",
        flush=True,
    )


async def run() -> None:
    """Everything, in about a minute and a half."""
    start = time.perf_counter()
    async with cloud(HOSTS) as on:
        print(
            f"{HOSTS} simulated hosts, {os.cpu_count()} cores, up in {time.perf_counter() - start:.1f} s",
            flush=True,
        )
        clouds = on.state / "clouds.yaml"
        async with Client(clouds, "moorage-admin") as admin, Client(clouds) as user:
            spec = await prepare(admin, user)
            warm = Pace()
            warmed = await asyncio.gather(*(user.boot(spec, warm) for _ in range(20)))
            await remove(user, [boot.server_id for boot in warmed])
            await idle(on)
            for clients in CLIENTS:
                await boots(on, user, spec, clients)
            await ports(on, user, spec["networks"][0]["uuid"])
        now, most = memory(on.pid)
        print(
            f"memory of the cloud's process, hosts included: {now:.0f} MiB now, {most:.0f} MiB at most",
            flush=True,
        )


def main() -> None:
    """Run, or say in one line why not."""
    try:
        asyncio.run(run())
    except (Failed, aiohttp.ClientError) as error:
        sys.exit(f"bench: {error}")


if __name__ == "__main__":
    main()
