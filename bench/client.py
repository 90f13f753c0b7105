"""A client of the cloud over HTTP, as thin as can be, so that it takes little of the machine it measures on."""

import asyncio
import itertools
import time
from pathlib import Path
from typing import Any, NamedTuple, Self

import aiohttp
import yaml


class Failed(Exception):
    """The cloud did not do what a measurement needs."""


class Boot(NamedTuple):
    """One server: when its request was sent, and when it was seen ACTIVE; seconds of one clock."""

    server_id: str
    posted: float
    active: float

    @property
    def latency(self) -> float:
        """Seconds from POST to ACTIVE."""
        return self.active - self.posted


class Pace:
    """When to look whether a server is ACTIVE: first shortly before it should be, then often.

    Looking costs the server CPU, so it is done three or four times a boot, however much boots differ: each pause is
    longer than the one before, and a boot seems to have taken a twentieth longer than it did. A first look that finds the server ACTIVE
    was too late, and its boot seems longer than it was: the next first look is much earlier.
    """

    def __init__(self) -> None:
        self.first = 0.02

    def saw(self, latency: float, looks: int) -> None:
        """A server was seen ACTIVE after so many seconds and looks."""
        self.first = self.first * 0.7 if looks == 1 else 0.7 * self.first + 0.3 * 0.85 * latency

    def next(self, looks: int) -> float:
        """Seconds until the next look."""
        return max(0.002, 0.06 * self.first) * 1.3**looks


class Client:
    """One user of the cloud that a clouds.yaml names. Use as a context manager."""

    def __init__(self, clouds: Path, cloud: str = "moorage") -> None:
        self._auth = yaml.safe_load(clouds.read_text())["clouds"][cloud]["auth"]
        self.looks = 0
        self._urls: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60))
        await self._login()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def _login(self) -> None:
        auth = self._auth
        domain = {"name": auth.get("user_domain_name", "Default")}
        user = {"name": auth["username"], "password": auth["password"], "domain": domain}
        scope = {"project": {"name": auth["project_name"], "domain": domain}}
        body = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}}
        async with self._session.post(f"{auth['auth_url'].rstrip('/')}/auth/tokens", json=body) as answer:
            answer.raise_for_status()
            catalog = (await answer.json())["token"]["catalog"]
            token = answer.headers["X-Subject-Token"]
        for entry in catalog:
            public = [e["url"] for e in entry["endpoints"] if e["interface"] == "public"]
            self._urls[entry["type"]] = public[0].rstrip("/")
        self._headers = {"X-Auth-Token": token, "X-OpenStack-Nova-API-Version": "2.37"}

    async def call(self, service: str, method: str, path: str, **more: Any) -> Any:
        """One request; the decoded body, None where there is none. Raises Failed with what the cloud says."""
        headers = {**self._headers, **more.pop("headers", {})}
        url = self._urls[service] + path
        async with self._session.request(method, url, headers=headers, **more) as answer:
            if answer.status >= 400:
                raise Failed(f"{method} {url}: {answer.status} {(await answer.text())[:300]}")
            return await answer.json(content_type=None) if answer.content_type == "application/json" else None

    async def boot(self, spec: dict[str, Any], pace: Pace) -> Boot:
        """Create a server and wait until it is ACTIVE; raises Failed where it ends in ERROR."""
        posted = time.perf_counter()
        server_id = (await self.call("compute", "POST", "/servers", json={"server": spec}))["server"]["id"]
        await asyncio.sleep(pace.first)
        for looks in itertools.count(1):
            self.looks += 1
            server = (await self.call("compute", "GET", f"/servers/{server_id}"))["server"]
            if server["status"] == "ACTIVE":
                boot = Boot(server_id, posted, time.perf_counter())
                pace.saw(boot.latency, looks)
                return boot
            if server["status"] == "ERROR":
                raise Failed(f"server {server_id}: {server.get('fault')}")
            await asyncio.sleep(pace.next(looks))
        raise AssertionError  # the count has no end

    async def delete(self, server_id: str) -> None:
        """Ask for the end of a server."""
        await self.call("compute", "DELETE", f"/servers/{server_id}")
