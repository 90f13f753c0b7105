"""A program: some simulated hosts in one process, whose guests and journals outlive it. They fail as they are told to,
until there is a file ``calm`` in their folder.

    python -m tests.chaos.fleet URL FOLDER PREFIX COUNT SEED TICKET LATENCY FAULTS
"""

import asyncio
import signal
import sys
from pathlib import Path

from moorage.agent.fleet import Fleet, SimulatedHost
from moorage.agent.hypervisors.simulated import Behaviour
from moorage.core import log


async def main(url: str, folder: Path, prefix: str, count: int, behaviour: Behaviour, ticket: str) -> None:
    """Until it is told to stop."""
    log.configure(level="INFO")
    hosts = [
        SimulatedHost(
            name=f"{prefix}-{n}", vcpus=4, memory_mb=8192, disk_gb=100, physical_networks=("physnet1",)
        )
        for n in range(1, count + 1)
    ]
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)

    async def until_calm() -> None:
        while not (folder / "calm").exists():
            await asyncio.sleep(0.3)
        behaviour.fault_rates, behaviour.latency = {}, 0.0

    calm = asyncio.create_task(until_calm())
    fleet = Fleet(
        url, hosts, ticket=ticket, state_dir=folder, behaviour=behaviour, heartbeat=2.0, poll_wait=10
    )
    begin = asyncio.create_task(fleet.start())
    await asyncio.wait([begin, asyncio.create_task(stop.wait())], return_when=asyncio.FIRST_COMPLETED)
    if begin.done():
        begin.result()
        await stop.wait()
    else:
        begin.cancel()
        await asyncio.wait([begin])
    await fleet.stop()
    calm.cancel()


if __name__ == "__main__":
    url, folder, prefix, count, seed, ticket, latency, faults = sys.argv[1:]
    rates = dict.fromkeys(("define", "power_on", "power_off", "undefine"), float(faults))
    asyncio.run(
        main(
            url,
            Path(folder),
            prefix,
            int(count),
            Behaviour(latency=float(latency), fault_rates=rates, seed=int(seed)),
            ticket,
        )
    )
