"""What happens to the processes and to what is between them; one method a fault, the table is ``schedule.FAULTS``."""

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable

from tests.chaos.programs import Program
from tests.chaos.proxy import LAB
from tests.chaos.schedule import Due
from tests.chaos.world import REAL, World

_SEVER = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = 'moorage' AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
)


class Faults:
    """``bring`` does one; those that last end by themselves, and ``end`` ends what is left."""

    def __init__(self, world: World) -> None:
        self.did: Counter[str] = Counter()
        self._world = world
        self._lasting: set[asyncio.Task[None]] = set()
        self._postgres_down = False

    def bring(self, due: Due) -> None:
        """Begin what is due."""
        self.did[due.what] += 1
        do: Callable[[random.Random], Awaitable[None]] = getattr(self, due.what)
        task = asyncio.ensure_future(do(random.Random(due.seed)))
        self._lasting.add(task)
        task.add_done_callback(self._lasting.discard)

    async def end(self) -> None:
        """No more of it: what lasts is waited for (seconds), what is frozen goes on, the weather is fine."""
        if self._lasting:
            await asyncio.gather(*self._lasting)
        for program in self._world.programs:
            program.thaw()
        self._world.proxy.weather.calm()

    async def kill_api(self, chance: random.Random) -> None:
        _kill(chance, self._world.apis)

    async def kill_conductor(self, chance: random.Random) -> None:
        _kill(chance, self._world.conductors)

    async def kill_agents(self, chance: random.Random) -> None:
        _kill(chance, self._world.fleets)

    async def kill_real_agent(self, chance: random.Random) -> None:
        """The agent of a host with real guests; they run on without it."""
        _signal(self._world.real_agent(chance.choice(REAL)), signal.SIGKILL)
        await asyncio.sleep(chance.uniform(0.5, 5))
        await asyncio.to_thread(self._world.build_lab)

    async def freeze_real_agent(self, chance: random.Random) -> None:
        """The same; it wakes up to what was decided without it."""
        pid = self._world.real_agent(chance.choice(REAL))
        _signal(pid, signal.SIGSTOP)
        await asyncio.sleep(chance.uniform(1, 15))
        _signal(pid, signal.SIGCONT)

    async def stop_conductor(self, chance: random.Random) -> None:
        chance.choice(self._world.conductors).send(signal.SIGTERM)

    async def freeze_api(self, chance: random.Random) -> None:
        chance.choice(self._world.apis).freeze(chance.uniform(1, 8))

    async def freeze_conductor(self, chance: random.Random) -> None:
        # Sometimes for longer than its leases: it comes back to operations that another has taken.
        chance.choice(self._world.conductors).freeze(
            chance.choice((2.0, 5.0, self._world.setting.lease * 1.3))
        )

    async def freeze_agents(self, chance: random.Random) -> None:
        chance.choice(self._world.fleets).freeze(chance.uniform(1, 15))

    async def restart_postgres_fast(self, chance: random.Random) -> None:
        await self._restart(signal.SIGINT, chance)

    async def restart_postgres_immediate(self, chance: random.Random) -> None:
        await self._restart(signal.SIGQUIT, chance)

    async def _restart(self, number: signal.Signals, chance: random.Random) -> None:
        if not self._postgres_down:
            self._postgres_down = True
            await self._world.restart_postgres(number, chance.uniform(0, 4))
            self._postgres_down = False

    async def fail_over_postgres(self, chance: random.Random) -> None:
        if not self._postgres_down:
            self._postgres_down = True
            await self._world.fail_over(chance.uniform(0, 4))
            self._postgres_down = False

    async def sever_connections(self, chance: random.Random) -> None:
        """All of them, or some."""
        if self._postgres_down:
            return
        share = chance.choice((0.3, 1.0))
        database = self._world.database()
        await database.open()
        try:
            async with database.read() as tx:
                await tx.fetch(f"{_SEVER} AND random() < {share}")
        finally:
            await database.close()

    async def cut_agents_off(self, chance: random.Random) -> None:
        """Some agents reach nobody for a while."""
        await self._cut_off(_some(chance, self._world.groups, 3), chance.uniform(2, 12))

    async def lose_agents(self, chance: random.Random) -> None:
        """A rack reaches nobody for so long that its hosts are taken for silent, and then it is back."""
        await self._lose(_some(chance, self._world.groups, 100))

    async def lose_real_agents(self, _chance: random.Random) -> None:
        """The same for the hosts with real guests."""
        await self._lose(frozenset({LAB}))

    async def _lose(self, cut: frozenset[str]) -> None:
        await self._cut_off(cut, self._world.setting.down_time + 15)

    async def _cut_off(self, cut: frozenset[str], seconds: float) -> None:
        weather = self._world.proxy.weather
        weather.cut_off |= cut
        await asyncio.sleep(seconds)
        weather.cut_off -= cut

    async def storm(self, chance: random.Random) -> None:
        """Slow, lost and doubled requests and answers for a while."""
        self._world.proxy.weather.storm()
        await asyncio.sleep(chance.uniform(3, 12))
        self._world.proxy.weather.calm()


def _some(chance: random.Random, groups: list[str], share: int) -> frozenset[str]:
    return frozenset(chance.sample(groups, max(1, len(groups) // share)))


def _signal(pid: int | None, number: signal.Signals) -> None:
    if pid is not None:
        # Another fault may have ended it meanwhile.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _kill(chance: random.Random, programs: list[Program]) -> None:
    chance.choice(programs).send(signal.SIGKILL)
