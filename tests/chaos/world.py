"""The cloud under chaos: PostgreSQL, Keystone, Glance, APIs, conductors, agents, each a process of its own."""

import asyncio
import contextlib
import hashlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec

from moorage.agentlink.authority import Authority
from moorage.agentlink.certificates import Certificates
from moorage.agentlink.enrolment import Enrolment
from moorage.lab import up as lab
from moorage.lab.ovn import OvnCentral
from moorage.server import migrations
from moorage.store.database import Database
from moorage.store.embedded import SETTINGS, EmbeddedPostgres
from moorage.store.signals import Signals
from tests.chaos.programs import Program
from tests.chaos.proxy import LAB, Proxy
from tests.support.identity import Identity
from tests.support.identity import identity as running_identity
from tests.support.ports import free_ports
from tests.support.standby import Pair

# A killed process loses nothing without fsync; only a lost machine would.
_POSTGRES = {**SETTINGS, "fsync": "off", "full_page_writes": "off", "max_connections": "200"}
_LAB = """
name: chaos
hosts: {vcpus: 2, memory_mb: 1024, disk_gb: 20}
physical_networks: [{name: physnet1}]
racks:
  - {name: rack1, underlay: 172.30.91.0/24, physical_networks: [physnet1], hosts: [{name: real1}, {name: real2}]}
"""

REAL = ("real1", "real2")


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """How large, and how wild. ``every``: mean seconds between two actions of a user, and between two faults.

    ``down_time``: seconds without a report after which a host is silent.
    """

    seed: int
    seconds: float
    hosts: int = 30
    groups: int = 6
    real: bool = False
    lease: float = 30.0
    down_time: float = 25.0
    action_every: float = 0.5
    fault_every: float = 4.0
    fault_rate: float = 0.03
    latency: float = 0.3
    settle: float = 120.0


class World:
    """Everything that runs; ``folder`` has its state and, in ``logs``, what it said."""

    def __init__(self, setting: Setting, folder: Path) -> None:
        self.setting = setting
        self.folder = folder
        self.logs = folder / "logs"
        self.postgres = Pair(folder / "postgres", _POSTGRES)
        self.upstreams = EmbeddedPostgres(folder / "upstreams", _POSTGRES)
        self.apis: list[Program] = []
        self.conductors: list[Program] = []
        self.fleets: list[Program] = []
        self.urls: list[dict[str, str]] = []
        self.proxy: Proxy
        self.identity: Identity
        self.image = ""
        self.tickets: dict[str, str] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = Authority.kept(folder)

    @property
    def programs(self) -> list[Program]:
        """All that chaos may touch."""
        return [*self.apis, *self.conductors, *self.fleets]

    @property
    def groups(self) -> list[str]:
        """The hosts that are cut off together, by the names that the proxy knows; those of the lab are one."""
        return [*(fleet.name for fleet in self.fleets), *((LAB,) if self.setting.real else ())]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start in order; stop in reverse, whatever state it is in."""
        self.logs.mkdir(parents=True, exist_ok=True)
        async with contextlib.AsyncExitStack() as stack:
            await asyncio.to_thread(self.postgres.start)
            stack.push_async_callback(self._end_postgres)
            await asyncio.to_thread(self.upstreams.start)
            await asyncio.to_thread(migrations.upgrade, self.url)
            self.identity = await stack.enter_async_context(
                running_identity(self.upstreams.url(), self.folder / "upstream", images=True)
            )
            self.image = await _upload(self.identity)
            ovn = await self._ovn(stack)
            stack.push_async_callback(self.stop_programs)
            await self._control_plane(ovn)
            await self._proxy(stack)
            await self._hosts(stack)
            yield

    @property
    def url(self) -> str:
        """Of the cloud's database."""
        return self.postgres.url

    def database(self) -> Database:
        """A handful of connections of the run's own; to be opened."""
        return Database(self.url, size=2)

    async def restart_postgres(self, number: signal.Signals, down: float) -> None:
        """SIGINT: fast, SIGQUIT: immediate; it stays down for a while. Keystone's and Glance's too."""
        servers = (self.postgres.primary, self.upstreams)
        for server in servers:
            pid = int((server.data / "postmaster.pid").read_text().split()[0])
            os.kill(pid, number)
            async with asyncio.timeout(180):
                while Path(f"/proc/{pid}").exists():
                    await asyncio.sleep(0.05)
        await asyncio.sleep(down)
        for server in servers:
            await asyncio.to_thread(server.start_again)
        await asyncio.to_thread(self.postgres.in_step)

    async def fail_over(self, down: float) -> None:
        """The cloud's primary is lost, after a while its standby is promoted, and a new standby is made."""
        await asyncio.to_thread(self.postgres.lose_primary)
        await asyncio.sleep(down)
        await asyncio.to_thread(self.postgres.promote)
        await asyncio.to_thread(self.postgres.renew)

    async def stop_programs(self) -> dict[str, int | None]:
        """Stop ours in order, hosts last; the exit status of each that was running."""
        found = {}
        for group in (self.fleets, self.apis, self.conductors):
            ends = await asyncio.gather(*(p.stop() for p in group))
            found.update({p.name: status for p, status in zip(group, ends, strict=True)})
            group.clear()
        return found

    def build_lab(self) -> None:
        """Two real hosts; what runs of them already is left as it is. Blocks."""
        file = self.folder / "lab.yaml"
        file.write_text(_LAB)
        lab.up(
            file,
            self.folder / "lab",
            southbound=OvnCentral(self.folder / "ovn").sb_socket,
            control_url=f"https+unix://{self.folder / 'agent.sock'}",
            enroll=lambda name: self.tickets[name],
        )

    def real_agent(self, name: str) -> int | None:
        """The process of the agent of a lab host, while it runs."""
        return lab.host_named(self.folder / "lab", name).pid("agent")

    # --- parts -------------------------------------------------------------------------------------------------

    async def _end_postgres(self) -> None:
        await asyncio.to_thread(self.postgres.stop)
        await asyncio.to_thread(self.upstreams.stop)

    async def _control_plane(self, ovn: dict[str, str]) -> None:
        shared = {
            "MOORAGE_STATE": str(self.folder / "state"),
            "MOORAGE_DATABASE_URL": self.url,
            "MOORAGE_IDENTITY_URL": self.identity.auth_url,
            "MOORAGE_IDENTITY_PASSWORD": self.identity.service_password,
            "MOORAGE_IMAGE_URL": self.identity.image_url,
            "MOORAGE_AGENT_CA_KEY": str(self.folder / "agents-ca.key"),
            "MOORAGE_AGENT_CA_CERTS": str(self.folder / "agents-ca.crt"),
            "MOORAGE_SERVICE_DOWN_TIME": str(self.setting.down_time),
            "MOORAGE_CONDUCTOR_LEASE": str(self.setting.lease),
            # Few enough that boots wait for room.
            "MOORAGE_CONDUCTOR_OPERATIONS_PER_HOST": "3",
            "MOORAGE_QUOTA_INSTANCES": "100",
            "MOORAGE_QUOTA_CORES": "100",
            **ovn,
        }
        for number in (1, 2):
            *apis, metrics, metrics_too = free_ports(6)
            ports = dict(zip(("compute", "placement", "network", "agent"), apis, strict=True))
            self.urls.append({api: f"http://127.0.0.1:{port}" for api, port in ports.items()})
            env = {
                **shared,
                "MOORAGE_METRICS_PORT": str(metrics),
                **{f"MOORAGE_{api.upper()}_PORT": str(port) for api, port in ports.items()},
            }
            self.apis.append(self._program(f"api-{number}", env, "moorage.cli.main", "api"))
            self.conductors.append(
                self._program(
                    f"conductor-{number}",
                    {**shared, "MOORAGE_METRICS_CONDUCTOR_PORT": str(metrics_too)},
                    "moorage.cli.main",
                    "conductor",
                )
            )
        await asyncio.gather(*(p.start() for p in [*self.apis, *self.conductors]))
        await self.serving()
        async with asyncio.timeout(180):
            while not all(p.said("is ready") for p in self.conductors):
                await asyncio.sleep(0.1)

    async def serving(self, within: float = 180) -> None:
        """Returns when every API answers."""
        async with asyncio.timeout(within), aiohttp.ClientSession() as session:
            for urls in self.urls:
                while True:
                    with contextlib.suppress(aiohttp.ClientError):
                        async with session.get(urls["compute"] + "/healthcheck") as answer:
                            if answer.status == 200:
                                break
                    await asyncio.sleep(0.1)

    async def _proxy(self, stack: contextlib.AsyncExitStack) -> None:
        self.proxy = Proxy(
            [urls["agent"].replace("http:", "https:") for urls in self.urls],
            self.setting.seed,
            self.authority,
            self.folder,
        )
        self.proxy_port = free_ports(1)[0]
        await self.proxy.start(self.proxy_port, self.folder / "agent.sock")
        stack.push_async_callback(self.proxy.stop)

    async def _hosts(self, stack: contextlib.AsyncExitStack) -> None:
        setting = self.setting
        database = self.database()
        await database.open()
        enrolment = Enrolment(self.authority, Certificates(database, Signals(database), lambda _host: None))
        async with database.transaction() as tx:
            ticket = await enrolment.create_ticket(tx, uses=setting.hosts)
            real = {name: await enrolment.create_ticket(tx, host=name) for name in REAL}
        each = setting.hosts // setting.groups
        for number in range(1, setting.groups + 1):
            group = f"rack{number}"
            folder = self.folder / "hosts" / group
            folder.mkdir(parents=True)
            words = (
                f"https://127.0.0.1:{self.proxy_port}/{group}",
                folder,
                group,
                each,
                setting.seed * 100 + number,
                ticket,
                setting.latency,
                setting.fault_rate,
            )
            self.fleets.append(self._program(group, {}, "tests.chaos.fleet", *map(str, words)))
        # Not all at once: each takes a second of the processor to begin.
        for fleet in self.fleets:
            await fleet.start()
        if setting.real:
            stack.push_async_callback(asyncio.to_thread, lab.down, self.folder / "lab")
            self.tickets = real
            await asyncio.to_thread(self.build_lab)
        wanted = each * setting.groups + len(REAL) * setting.real
        async with asyncio.timeout(240):
            while True:
                async with database.read() as tx:
                    found = await tx.fetch("SELECT count(*) FROM hosts WHERE facts IS NOT NULL")
                if found[0][0] >= wanted:
                    break
                await asyncio.sleep(0.2)
        await database.close()

    async def _ovn(self, stack: contextlib.AsyncExitStack) -> dict[str, str]:
        if not self.setting.real:
            return {}
        central = OvnCentral(self.folder / "ovn")
        await central.start()
        stack.push_async_callback(asyncio.to_thread, central.stop_now)
        return {"MOORAGE_NETWORK_OVN_NB": central.nb_socket, "MOORAGE_NETWORK_OVN_SB": central.sb_socket}

    def _program(self, name: str, env: dict[str, str], module: str, *words: str) -> Program:
        root = Path(__file__).parents[2]
        path = os.pathsep.join((str(root / "src"), str(root)))
        argv = (sys.executable, "-m", module, *words)
        return Program(name, argv, self.logs / f"{name}.log", {"PYTHONPATH": path, **env})


async def _upload(identity: Identity) -> str:
    headers = {"X-Auth-Token": await identity.token("admin")}
    async with aiohttp.ClientSession(headers=headers) as session:
        body = {"name": "tiny", "disk_format": "raw", "container_format": "bare", "visibility": "public"}
        async with session.post(f"{identity.image_url}/v2/images", json=body) as answer:
            found = str((await answer.json())["id"])
        url = f"{identity.image_url}/v2/images/{found}/file"
        octets = {"Content-Type": "application/octet-stream"}
        async with session.put(url, data=hashlib.sha256(b"tiny").digest() * 32, headers=octets) as answer:
            assert answer.status == 204, await answer.text()
    return found
