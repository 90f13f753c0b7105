"""What users do: random requests over HTTP, as several projects, and what they were promised by the answers."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiohttp

from tests.chaos.schedule import Due
from tests.support.identity import Identity

_PATIENCE = aiohttp.ClientTimeout(total=60, sock_connect=5)
_MOST = 14
_PREFIX = {"compute": "/v2.1", "network": "/v2.0", "placement": ""}
NOTHING = "00000000-0000-4000-8000-000000000000"


class Told:
    """How the cloud answered everybody: counts, and every answer that no user may get."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        self.actions: Counter[str] = Counter()
        self.wrong: list[str] = []

    def note(self, method: str, path: str, status: int, body: Any, headers: Any) -> None:
        """One answer."""
        self.answers[str(status)] += 1
        if status >= 500 and status != 503:
            self.wrong.append(f"{method} {path}: {status} {body}")
        if status == 503 and "Retry-After" not in headers:
            self.wrong.append(f"{method} {path}: 503 without Retry-After: {body}")
        if status == 401:
            self.wrong.append(f"{method} {path}: 401 with a valid token: {body}")


class Api:
    """Requests of one user to one of the APIs, another one where it does not answer."""

    def __init__(
        self, session: aiohttp.ClientSession, urls: Sequence[dict[str, str]], token: str, told: Told
    ) -> None:
        self.told = told
        self._session = session
        self._urls = urls
        self._token = token

    async def request(
        self, chance: random.Random, api: str, method: str, path: str, body: Any = None
    ) -> tuple[int, Any]:
        """Status and body; status 0 where nobody answered, so that it is not known what was done."""
        prefix = "" if path.startswith("/moorage") else _PREFIX[api]
        headers = {"X-Auth-Token": self._token, "OpenStack-API-Version": f"{api} latest"}
        for urls in chance.sample(self._urls, len(self._urls)):
            try:
                async with self._session.request(
                    method, urls[api] + prefix + path, json=body, headers=headers, timeout=_PATIENCE
                ) as answer:
                    found = await answer.json() if answer.content_type == "application/json" else None
                    self.told.note(method, path, answer.status, found, answer.headers)
                    return answer.status, found
            except aiohttp.ClientConnectorError:
                continue
            except (aiohttp.ClientError, TimeoutError, OSError):
                break
        self.told.answers["none"] += 1
        return 0, None


class User:
    """One project's user; ``act`` does one thing. ``promised`` are the servers it was told of, by id."""

    def __init__(self, name: str, api: Api, image: str, flavors: Sequence[str], zones: Sequence[str]) -> None:
        self.name = name
        self.api = api
        self.promised: dict[str, bool] = {}
        self.networks: list[str] = []
        self.ports: list[str] = []
        self._image = image
        self._flavors = flavors
        self._zones = zones
        self._number = 0
        self._subnets = 0

    async def act(self, due: Due) -> None:
        """Do what is due."""
        self.api.told.actions[due.what] += 1
        do: Callable[[random.Random], Awaitable[None]] = getattr(self, due.what)
        await do(random.Random(due.seed))

    async def begin(self) -> None:
        """Two networks to boot on."""
        chance = random.Random(self.name)
        while len(self.networks) < 2:
            await self.create_network(chance)

    @property
    def kept(self) -> list[str]:
        """Servers that nobody has asked to delete."""
        return [server for server, deleted in self.promised.items() if not deleted]

    # --- servers -----------------------------------------------------------------------------------------------

    async def boot(self, chance: random.Random) -> None:
        await self._boot(chance, [{"uuid": chance.choice(self.networks)}])

    async def boot_on_port(self, chance: random.Random) -> None:
        if not self.ports:
            await self.create_port(chance)
        if self.ports:
            port = self.ports.pop(chance.randrange(len(self.ports)))
            await self._boot(chance, [{"port": port}])

    async def boot_many(self, chance: random.Random) -> None:
        many = {"min_count": 1, "max_count": chance.randint(2, 4)}
        await self._boot(chance, [{"uuid": chance.choice(self.networks)}], **many)

    async def boot_and_delete(self, chance: random.Random) -> None:
        made = await self._boot(chance, [{"uuid": chance.choice(self.networks)}])
        await asyncio.sleep(chance.choice((0, 0.1, 0.5)))
        if made is not None:
            await self._delete(chance, made)

    async def delete_server(self, chance: random.Random) -> None:
        if self.kept:
            await self._delete(chance, chance.choice(self.kept))

    async def stop_server(self, chance: random.Random) -> None:
        await self._action(chance, {"os-stop": None})

    async def start_server(self, chance: random.Random) -> None:
        await self._action(chance, {"os-start": None})

    async def reboot_server(self, chance: random.Random) -> None:
        await self._action(chance, {"reboot": {"type": chance.choice(("SOFT", "HARD"))}})

    async def _boot(self, chance: random.Random, networks: list[dict[str, str]], **more: Any) -> str | None:
        if len(self.kept) >= _MOST:
            await self.delete_server(chance)
            return None
        self._number += 1
        body = {
            "name": f"{self.name}-{self._number}",
            "imageRef": self._image,
            "flavorRef": chance.choice(self._flavors),
            "networks": networks,
            **more,
        }
        if self._zones and chance.random() < 0.25:
            body["availability_zone"] = chance.choice(self._zones)
        status, found = await self.api.request(chance, "compute", "POST", "/servers", {"server": body})
        if status != 202:
            return None
        made = str(found["server"]["id"])
        self.promised.setdefault(made, False)
        return made

    async def _delete(self, chance: random.Random, server: str) -> None:
        # From here on it may be gone, whatever the answer says.
        self.promised[server] = True
        await self.api.request(chance, "compute", "DELETE", f"/servers/{server}")

    async def _action(self, chance: random.Random, body: Any) -> None:
        if self.kept:
            path = f"/servers/{chance.choice(self.kept)}/action"
            await self.api.request(chance, "compute", "POST", path, body)

    # --- networks ----------------------------------------------------------------------------------------------

    async def create_network(self, chance: random.Random) -> None:
        status, found = await self.api.request(
            chance, "network", "POST", "/networks", {"network": {"name": f"{self.name}-net"}}
        )
        if status != 201:
            return
        network = found["network"]["id"]
        self._subnets += 1
        subnet = {
            "network_id": network,
            "ip_version": 4,
            "cidr": f"10.{self._subnets % 250}.{chance.randrange(250)}.0/24",
        }
        status, _ = await self.api.request(chance, "network", "POST", "/subnets", {"subnet": subnet})
        if status == 201:
            self.networks.append(network)

    async def delete_network(self, chance: random.Random) -> None:
        if len(self.networks) > 2:
            network = chance.choice(self.networks)
            # Taken out first: another action may choose one while this is under way.
            self.networks.remove(network)
            status, _ = await self.api.request(chance, "network", "DELETE", f"/networks/{network}")
            if status not in {204, 404}:
                self.networks.append(network)

    async def create_port(self, chance: random.Random) -> None:
        body = {"port": {"network_id": chance.choice(self.networks), "name": f"{self.name}-port"}}
        status, found = await self.api.request(chance, "network", "POST", "/ports", body)
        if status == 201:
            self.ports.append(found["port"]["id"])

    async def delete_port(self, chance: random.Random) -> None:
        if self.ports:
            port = self.ports.pop(chance.randrange(len(self.ports)))
            await self.api.request(chance, "network", "DELETE", f"/ports/{port}")

    # --- looking, and mistakes ---------------------------------------------------------------------------------

    async def look(self, chance: random.Random) -> None:
        api, path = chance.choice(
            (
                ("compute", "/servers/detail"),
                ("network", "/ports"),
                ("network", "/networks"),
                ("compute", "/limits"),
                ("compute", "/flavors"),
                ("compute", f"/servers/{chance.choice([*self.kept, NOTHING])}"),
            )
        )
        status, found = await self.api.request(chance, api, "GET", path)
        if status == 200 and path == "/servers/detail":
            strange = [s["name"] for s in found["servers"] if not s["name"].startswith(f"{self.name}-")]
            if strange:
                self.api.told.wrong.append(f"{self.name} sees servers of others: {strange}")
            # Those whose answer was lost, and all but the first of several, are found here.
            for server in found["servers"]:
                self.promised.setdefault(server["id"], False)

    async def bad_request(self, chance: random.Random) -> None:
        api, method, path, body, wanted = chance.choice(
            (
                ("compute", "POST", "/servers", {"server": {"name": 7}}, 400),
                ("compute", "POST", "/servers", {"colour": "red"}, 400),
                ("compute", "GET", f"/servers/{NOTHING}", None, 404),
                ("compute", "DELETE", f"/servers/{NOTHING}", None, 404),
                ("compute", "POST", f"/servers/{NOTHING}/action", {"os-start": None}, 404),
                ("network", "POST", "/ports", {"port": {"network_id": NOTHING}}, 404),
                ("network", "POST", "/networks", {"network": {"mtu": "wide"}}, 400),
                ("network", "DELETE", f"/networks/{NOTHING}", None, 404),
            )
        )
        status, found = await self.api.request(chance, api, method, path, body)
        if status not in {0, 503, wanted}:
            self.api.told.wrong.append(f"{method} {path} {body}: {status} where {wanted} is right: {found}")


async def make_users(
    session: aiohttp.ClientSession,
    identity: Identity,
    urls: Sequence[dict[str, str]],
    told: Told,
    *,
    image: str,
    zones: Sequence[str],
) -> tuple[Api, list[User]]:
    """The administrator's requests, and two users of two projects with flavors to boot."""
    admin = Api(session, urls, await identity.token("admin"), told)
    chance = random.Random(0)
    flavors = []
    for number, (vcpus, ram) in enumerate(((1, 128), (2, 256))):
        body = {"flavor": {"name": f"chaos-{number}", "vcpus": vcpus, "ram": ram, "disk": 1}}
        _, found = await admin.request(chance, "compute", "POST", "/flavors", body)
        flavors.append(str(found["flavor"]["id"]))
    if zones:
        # The real hosts are a zone of their own, so that they get their share of the servers.
        body = {"aggregate": {"name": "real", "availability_zone": "real"}}
        _, found = await admin.request(chance, "compute", "POST", "/os-aggregates", body)
        for host in ("real1", "real2"):
            path = f"/os-aggregates/{found['aggregate']['id']}/action"
            await admin.request(chance, "compute", "POST", path, {"add_host": {"host": host}})
    users = [
        User(name, Api(session, urls, await identity.token(name), told), image, flavors, zones)
        for name in ("demo", "other")
    ]
    for user in users:
        await user.begin()
    return admin, users
