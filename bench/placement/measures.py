"""What is measured. Figures are milliseconds a request or things a second; nothing is asserted."""

import asyncio
import random
import statistics
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from bench.client import Failed
from bench.placement.http import Answer, Connection
from bench.placement.targets import Target
from bench.placement.world import EGRESS, FUNCTION, INGRESS, NORMAL, PHYSNETS, World, claim_of, zone
from bench.usage import Usage

CLIENTS = (1, 8, 32)


class Figure(NamedTuple):
    """One measurement: its name, its value and its unit (`ms` or `/s`), and what else was seen."""

    name: str
    value: float
    unit: str
    note: str = ""


def plain(amount: int = 0) -> str:
    """A server without ports; another `amount` is another shape."""
    return f"resources=VCPU:1,MEMORY_MB:{512 + amount},DISK_GB:4"


def _port(suffix: str, physnet: str, amount: int) -> str:
    return f"&resources{suffix}={EGRESS}:{1000 + amount},{INGRESS}:{1000 + amount}&required{suffix}={physnet}"


def _one_port(amount: int = 0) -> str:
    return plain(amount) + _port("_p1", f"{PHYSNETS[0]},{NORMAL}", amount)


def two_ports(amount: int = 0) -> str:
    """A server with a port on the bridge and one on a physical function."""
    return _one_port(amount) + _port("_p2", PHYSNETS[1], amount) + "&group_policy=none"


def eight_ports(policy: str, physnet: str | None = None) -> Callable[[int], str]:
    """A server with eight ports on virtual functions, all alike: bugs 2126751 and 2070257."""
    only = "" if physnet is None else f"&required{{0}}={physnet}"
    ports = "".join((f"&resources{{0}}={FUNCTION}:1" + only).format(f"_p{n}") for n in range(8))
    return lambda amount: f"resources=VCPU:1,MEMORY_MB:{512 + amount}{ports}&group_policy={policy}"


QUERIES: tuple[tuple[str, Callable[[int], str]], ...] = (
    ("plain", plain),
    ("aggregate and trait", lambda n: plain(n) + f"&member_of={zone(0)}&required=HW_CPU_X86_AVX2"),
    ("one port", _one_port),
    ("two ports", two_ports),
)


class Measures:
    """All measurements on one target, in order. `seconds` bounds each; `say` is told each figure."""

    def __init__(self, target: Target, seconds: float, say: Callable[[Figure], None]) -> None:
        self.target = target
        self.world: World = target.world
        self.seconds = seconds
        self.say = say
        self._random = random.Random(1)

    async def candidates(self) -> None:
        """Searches by one client: the same shape again and again, and a new shape each time."""
        for name, query in QUERIES:
            for limit in (10, 1000):
                await self._search(f"{name}, limit {limit}", lambda _, q=query: q(0), limit)
            await self._search(f"{name}, limit 10, new shapes", query, 10)

    async def eight_groups(self) -> None:
        """Searches for eight ports over the 64 functions of each host, and for eight where there are seven places."""
        cases = (("none", 10), ("none", 1000), ("isolate", 10), ("isolate", 1000))
        for policy, limit in cases:
            await self._both(f"8 functions, {policy}, limit {limit}", eight_ports(policy), limit)
        await self._both("8 functions of 7", eight_ports("none", PHYSNETS[2]), 10)

    async def _both(self, name: str, query: Callable[[int], str], limit: int) -> None:
        await self._search(name, lambda _: query(0), limit)
        # Amounts that were not asked for with another limit: those shapes are known.
        await self._search(f"{name}, new shapes", lambda number: query(limit + number), limit)

    async def _search(self, name: str, query: Callable[[int], str], limit: int) -> None:
        connection = Connection(self.target.url)
        times: list[float] = []
        first: Answer | None = None
        cpu = self.target.cpu()
        end = time.perf_counter() + self.seconds
        while (time.perf_counter() < end and len(times) < 200) or len(times) < 3:
            began = time.perf_counter()
            answer = await connection.call("GET", f"/allocation_candidates?{query(len(times))}&limit={limit}")
            times.append((time.perf_counter() - began) * 1000)
            first = first or _good(answer)
        cost = self._cost(cpu, len(times))
        await connection.close()
        # Reading megabytes takes seconds on a busy machine: a server closes a connection that is idle so long.
        found = len(first.json()["allocation_requests"]) if first else 0
        note = f"{found} found, first {times[0]:.1f} ms, {len(times)} times, {cost}"
        self.say(Figure(f"candidates, {name}", statistics.median(times), "ms", note))

    async def claims(self) -> None:
        """Claims a second on random hosts, and on one."""
        hosts = self.world.hosts
        for clients in CLIENTS:
            await self._rate(f"claims, {clients} clients", clients, lambda c: self._claim(c, None))
        hot = [self._random.randrange(hosts) for _ in CLIENTS]
        for clients, host in zip(CLIENTS, hot, strict=True):
            await self._rate(
                f"claims on one host, {clients} clients", clients, lambda c, h=host: self._claim(c, h)
            )

    async def cycles(self) -> None:
        """Search with two port groups and claim one of the ten found."""
        for clients in CLIENTS:
            await self._rate(f"search and claim, {clients} clients", clients, self._cycle)

    async def _rate(self, name: str, clients: int, work: Callable[[Connection], Awaitable[bool]]) -> None:
        done = refused = 0
        cpu = self.target.cpu()
        began = time.perf_counter()
        end = began + self.seconds

        async def client() -> None:
            nonlocal done, refused
            connection = Connection(self.target.url)
            while time.perf_counter() < end:
                if await work(connection):
                    done += 1
                else:
                    refused += 1
            await connection.close()

        await asyncio.gather(*(client() for _ in range(clients)))
        taken = time.perf_counter() - began
        self.say(
            Figure(
                name, done / taken, "/s", f"{done} done, {refused} refused, {self._cost(cpu, done + refused)}"
            )
        )

    def _cost(self, before: Usage, count: int) -> str:
        used = self.target.cpu().since(before)
        each = 1000 / max(1, count)
        return f"CPU {used.server * each:.1f} + {used.postgres * each:.1f} ms"

    async def _claim(self, connection: Connection, host: int | None) -> bool:
        number = self._random.randrange(self.world.hosts) if host is None else host
        return await self._put(connection, claim_of(self.world.ids[number]), None)

    async def _cycle(self, connection: Connection) -> bool:
        path = f"/allocation_candidates?{two_ports()}&limit=10"
        found = _good(await connection.call("GET", path)).json()["allocation_requests"]
        if not found:
            return False
        chosen = self._random.choice(found)
        allocations = {provider: entry["resources"] for provider, entry in chosen["allocations"].items()}
        return await self._put(connection, allocations, chosen["mappings"])

    async def _put(
        self, connection: Connection, allocations: dict[str, dict[str, int]], mappings: Any
    ) -> bool:
        body: dict[str, Any] = {
            "allocations": {provider: {"resources": amounts} for provider, amounts in allocations.items()},
            "project_id": "bench", "user_id": "bench", "consumer_generation": None, "consumer_type": "INSTANCE",
        }  # fmt: skip
        if mappings is not None:
            body["mappings"] = mappings
        answer = await connection.call("PUT", f"/allocations/{uuid.uuid4()}", body)
        if answer.status == 409:
            return False
        return _good(answer).status == 204


def _good(answer: Answer) -> Answer:
    if answer.status >= 300:
        raise Failed(f"{answer.status}: {answer.body[:300]!r}")
    return answer
