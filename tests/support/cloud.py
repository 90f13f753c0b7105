"""The whole cloud in one process: real HTTP, real PostgreSQL, a real Keystone and Glance, simulated hosts."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from moorage.agent.fleet import Fleet, SimulatedHost
from moorage.agent.fleet import hosts as many_hosts
from moorage.agent.hypervisors.simulated import Behaviour
from moorage.audit import audit
from moorage.core import config
from moorage.operations.faults import Faults
from moorage.server.cloud import Cloud
from moorage.server.cloud import Identity as CloudIdentity
from moorage.server.options import options
from moorage.store.database import Database
from tests.support.authority import AUTHORITY
from tests.support.identity import Identity


class Client:
    """One user's requests to one cloud; answers are (status, body)."""

    def __init__(self, session: aiohttp.ClientSession, cloud: Cloud, token: str) -> None:
        self._session = session
        self._cloud = cloud
        self.token = token

    async def request(
        self, api: str, method: str, path: str, body: Any = None, *, version: str | None = None
    ) -> tuple[int, Any]:
        headers = {"X-Auth-Token": self.token}
        if version:
            headers["OpenStack-API-Version"] = f"{api} {version}"
        prefix = "/v2.1" if api == "compute" and not path.startswith("/moorage") else ""
        prefix = "/v2.0" if api == "network" else prefix
        url = self._cloud.url(api) + prefix + path
        async with self._session.request(method, url, json=body, headers=headers) as answer:
            return answer.status, await answer.json() if answer.content_type == "application/json" else None

    async def get(self, api: str, path: str, **kw: Any) -> Any:
        status, body = await self.request(api, "GET", path, **kw)
        assert status == 200, (status, body)
        return body

    async def make(self, api: str, path: str, body: Any, **kw: Any) -> Any:
        status, found = await self.request(api, "POST", path, body, **kw)
        assert status in (200, 201, 202), (status, found)
        return found

    async def wait_for(self, server_id: str, *states: str, within: float = 180) -> Any:
        """The server once its status is one of ``states``; "gone" is a 404."""
        async with asyncio.timeout(within):
            while True:
                status, body = await self.request("compute", "GET", f"/servers/{server_id}")
                found = "gone" if status == 404 else body["server"]["status"]
                if found in states:
                    return body.get("server")
                await asyncio.sleep(0.02)


class TestCloud:
    """A cloud, its hosts, its users."""

    __test__ = False

    def __init__(
        self, cloud: Cloud, fleet: Fleet, session: aiohttp.ClientSession, identity: Identity
    ) -> None:
        self.cloud = cloud
        self.fleet = fleet
        self.identity = identity
        self._session = session

    async def client(self, user: str = "demo") -> Client:
        return Client(self._session, self.cloud, await self.identity.token(user))


@contextlib.asynccontextmanager
async def running_cloud(
    database: Database,
    identity: Identity,
    *,
    hosts: int | list[SimulatedHost] = 4,
    behaviour: Behaviour | None = None,
    faults: Faults | None = None,
    fuse: bool = True,
    heartbeat: float = 10.0,
    state_dir: Path | None = None,
    kind: type[Cloud] = Cloud,
    **overrides: Any,
) -> AsyncIterator[TestCloud]:
    conf = config.load(
        options(),
        environ={},
        overrides={
            "compute_port": 0,
            "placement_port": 0,
            "network_port": 0,
            "metrics.port": 0,
            "agent_port": 0,
            "health.index_age": 180.0,
            **{k.replace("__", "."): v for k, v in overrides.items()},
        },
    )
    facts = CloudIdentity(
        auth_url=identity.auth_url,
        image_url=identity.image_url,
        username="moorage",
        password=identity.service_password,
    )
    cloud = kind(conf, database, facts, authority=AUTHORITY, faults=faults, fuse=fuse)
    # What answers late on a machine that has much else to do is well all the same.
    cloud.health._within = 180.0
    await cloud.start()
    wanted = list(many_hosts(hosts)) if isinstance(hosts, int) else hosts
    async with database.transaction() as tx:
        ticket = await cloud.link.enrolment.create_ticket(tx, uses=len(wanted) + 1)
    fleet = Fleet(
        cloud.url("agent"),
        wanted,
        ticket=ticket,
        state_dir=state_dir,
        behaviour=behaviour,
        heartbeat=heartbeat,
    )
    try:
        await fleet.start()
        await reported(cloud, len(wanted))
        async with aiohttp.ClientSession() as session:
            yield TestCloud(cloud, fleet, session, identity)
    finally:
        await fleet.stop()
        await cloud.stop()


async def reported(cloud: Cloud, count: int) -> None:
    """Return once so many hosts are up in the scheduler's eyes and known to the index."""
    async with asyncio.timeout(180):
        while True:
            await cloud.directory.refresh()
            up = int(cloud.directory.states.up.sum())
            if up >= count:
                break
            await asyncio.sleep(0.05)
    await cloud.placement.follower.catch_up()


async def silenced(cloud: Cloud, host: str) -> None:
    """A host whose agent has ended was heard of last an hour ago, by a control plane that has listened since."""
    async with asyncio.timeout(180):
        while not cloud.directory.silent(host):
            # Again where its last word was just being written down.
            await cloud.link.registry._touch()
            async with cloud.database.transaction() as tx:
                await tx.execute(
                    "UPDATE hosts SET last_seen = now() - interval '1 hour' WHERE name = $1", (host,)
                )
            await cloud.directory.refresh()  # which begins to listen anew where the last one is long ago
            cloud.directory._listening_since = -1e9


async def whole(database: Database, *, grace: float = 0, but: str = "") -> None:
    """Return once the audit finds nothing, ``but`` of one subject; what hosts say of guests comes with their next report."""
    async with asyncio.timeout(180):
        while findings := [f for f in (await audit(database, grace=grace)).findings if f.subject != but]:
            assert all(f.invariant.startswith("guest.") for f in findings), findings
            await asyncio.sleep(0.2)
