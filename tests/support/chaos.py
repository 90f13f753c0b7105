"""Random writers on a few hosts; as a process of its own: `python -m tests.support.chaos URL SEED HOST...`."""

from __future__ import annotations

import asyncio
import random
import sys

from moorage.core.ids import new_id
from moorage.placement.errors import CapacityExceeded
from moorage.placement.index import Index
from moorage.placement.ledger import Ledger
from moorage.placement.model import ConsumerWrite, Inventory
from moorage.placement.service import PlacementService
from moorage.store.database import Database, Tx
from moorage.store.errors import SerializationConflict


class RolledBack(Exception):
    pass


class Chaos:
    """Random writers on five hosts, half of them through a ledger that feeds the index, some rolled back."""

    def __init__(
        self, hosts: list[str], index: Index, seed: int, *, sizes: tuple[int, int] = (4, 12)
    ) -> None:
        self.hosts = hosts
        self.sizes = sizes
        self.ledgers = [Ledger(), Ledger(index)]
        self.held: list[str] = []
        self.rng = random.Random(seed)

    async def step(self, database: Database) -> None:
        act = self.rng.choice([self.claim, self.claim, self.release, self.move, self.resize])
        try:
            async with database.transaction() as tx:
                await act(tx, self.rng.choice(self.ledgers))
                self.maybe_roll_back()
        except (CapacityExceeded, SerializationConflict, RolledBack):
            pass

    def maybe_roll_back(self) -> None:
        if self.rng.random() < 0.1:
            raise RolledBack

    async def claim(self, tx: Tx, ledger: Ledger) -> None:
        rng = self.rng
        chosen = rng.sample(self.hosts, rng.randint(1, 2))
        want = {host: {"VCPU": rng.randint(1, 4), "DISK_GB": rng.randint(1, 9)} for host in chosen}
        consumer = new_id()
        await ledger.claim(tx, consumer=consumer, project_id="p", user_id="u", allocations=want)
        self.held.append(consumer)

    async def release(self, tx: Tx, ledger: Ledger) -> None:
        if self.held:
            await ledger.release(tx, self.held.pop(self.rng.randrange(len(self.held))))

    async def move(self, tx: Tx, ledger: Ledger) -> None:
        if self.held:
            allocations = {self.rng.choice(self.hosts): {"VCPU": 1}}
            consumer = self.rng.choice(self.held)
            await ledger.write(
                tx,
                [ConsumerWrite(consumer_id=consumer, allocations=allocations, project_id="p", user_id="u")],
            )

    async def resize(self, tx: Tx, ledger: Ledger) -> None:
        inventory = {
            "VCPU": Inventory(total=self.rng.randint(*self.sizes), allocation_ratio=1.5),
            "DISK_GB": Inventory(total=self.rng.randint(30, 60)),
        }
        await ledger.set_inventory(tx, self.rng.choice(self.hosts), inventory)


async def main(url: str, seed: int, hosts: list[str]) -> None:
    """Claim, move, release and resize at random, eight at once; also claims that share transactions."""
    database = Database(url)
    await database.open()
    service = PlacementService(database)
    await service.start()
    chaos = Chaos(hosts, service.index, seed, sizes=(8, 8))
    for _ in range(12):
        await asyncio.gather(
            *(chaos.step(database) for _ in range(8)), *(together(service, chaos) for _ in range(4))
        )
        await service.follower.catch_up()
    await database.close()


async def together(service: PlacementService, chaos: Chaos) -> None:
    host = chaos.rng.choice(chaos.hosts)
    write = ConsumerWrite(
        consumer_id=new_id(), allocations={host: {"VCPU": 1, "DISK_GB": 2}}, project_id="p", user_id="u",
        check_generation=True,
    )  # fmt: skip
    try:
        await service.write([write])
    except (CapacityExceeded, SerializationConflict):
        return
    chaos.held.append(write.consumer_id)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
