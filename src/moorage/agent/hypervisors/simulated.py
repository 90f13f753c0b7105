"""Guests that are only a record: for tests, benchmarks and clouds without QEMU.

Latency and faults can be set, and changed while it runs. With a folder the records outlive the process.
"""

import asyncio
import random
from pathlib import Path

import msgspec

from moorage.agent.errors import GuestFailure, UnknownGuest
from moorage.agent.hypervisors.base import OnEnded
from moorage.agent.link import Download
from moorage.wire.messages import GuestState, PowerState, SpawnGuest, Vif


class Behaviour(msgspec.Struct):
    """How simulated guests behave; shared by the hosts of a fleet.

    ``latency``: mean seconds of a power change, spread by half. ``fault_rates``: the share of calls that fail,
    by the name of the hypervisor's method ("define", "power_on", "power_off", "undefine").
    """

    latency: float = 0.0
    fault_rates: dict[str, float] = {}
    seed: int = 0

    @classmethod
    def of(cls, latency: float, fault_rate: float) -> "Behaviour":
        """Starts that take this long and fail as often."""
        return cls(latency=latency, fault_rates={"power_on": fault_rate})


class SimulatedGuest(msgspec.Struct, frozen=True):
    """One record."""

    server_id: str
    name: str
    hostname: str
    vcpus: int
    memory_mb: int
    vifs: tuple[Vif, ...]
    power_state: PowerState = "shutdown"
    boots: int = 0


class SimulatedHypervisor:
    """See ``base.Hypervisor``."""

    type = "simulated"
    version = 1_000_000

    def __init__(self, behaviour: Behaviour | None = None, folder: Path | None = None) -> None:
        self.behaviour = behaviour or Behaviour()
        self.on_ended: OnEnded | None = None
        self._random = random.Random(self.behaviour.seed)
        self._folder = folder
        self._guests: dict[str, SimulatedGuest] = {}

    async def start(self, download: Download) -> None:  # noqa: ARG002  no image is ever read
        """Read the records back."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in self._folder.glob("*.json"):
            guest = msgspec.json.decode(path.read_bytes(), type=SimulatedGuest)
            self._guests[guest.server_id] = guest

    async def stop(self) -> None:
        """Nothing runs."""

    async def define(self, request: SpawnGuest) -> None:
        """Record it."""
        self._fault("define", request.server_id)
        if request.server_id not in self._guests:
            self._store(
                SimulatedGuest(
                    server_id=request.server_id,
                    name=request.name,
                    hostname=request.hostname,
                    vcpus=request.vcpus,
                    memory_mb=request.memory_mb,
                    vifs=request.vifs,
                )
            )

    async def power_on(self, server_id: str) -> None:
        """Takes the set latency."""
        guest = self._get(server_id)
        self._fault("power_on", server_id)
        if guest.power_state != "running":
            await self._take_time()
            self._store(msgspec.structs.replace(guest, power_state="running", boots=guest.boots + 1))

    async def power_off(self, server_id: str, *, soft: bool, timeout: float) -> None:  # noqa: ARG002  obeys at once
        """Takes the set latency when soft."""
        guest = self._get(server_id)
        self._fault("power_off", server_id)
        if guest.power_state != "shutdown":
            if soft:
                await self._take_time()
            self._store(msgspec.structs.replace(guest, power_state="shutdown"))

    async def undefine(self, server_id: str) -> None:
        """Forget it."""
        self._fault("undefine", server_id)
        self._guests.pop(server_id, None)
        if self._folder is not None:
            (self._folder / f"{server_id}.json").unlink(missing_ok=True)

    async def vifs(self, server_id: str) -> tuple[Vif, ...]:
        """See base."""
        return self._get(server_id).vifs

    async def console(self, server_id: str, length: int | None) -> str:
        """A few lines that a booting guest could have written."""
        guest = self._get(server_id)
        lines = [f"[simulated] boot {n + 1} of {guest.hostname}" for n in range(guest.boots)]
        lines += [f"[simulated] {vif.iface} {vif.mac}" for vif in guest.vifs]
        lines.append(f"{guest.hostname} login:")
        shown = lines if length is None else lines[max(0, len(lines) - length) :]
        return "".join(f"{line}\n" for line in shown)

    async def guests(self) -> list[GuestState]:
        """See base."""
        return [GuestState(g.server_id, g.power_state) for g in self._guests.values()]

    def _get(self, server_id: str) -> SimulatedGuest:
        try:
            return self._guests[server_id]
        except KeyError:
            message = f"guest {server_id} is not on this host"
            raise UnknownGuest(message) from None

    def _store(self, guest: SimulatedGuest) -> None:
        self._guests[guest.server_id] = guest
        if self._folder is not None:
            new = self._folder / f"{guest.server_id}.new"
            new.write_bytes(msgspec.json.encode(guest))
            new.rename(self._folder / f"{guest.server_id}.json")

    async def _take_time(self) -> None:
        latency = self.behaviour.latency
        if latency > 0:
            await asyncio.sleep(latency * self._random.uniform(0.5, 1.5))

    def _fault(self, method: str, server_id: str) -> None:
        rate = self.behaviour.fault_rates.get(method, 0.0)
        if rate and self._random.random() < rate:
            message = f"simulated fault of {method} for guest {server_id}"
            raise GuestFailure(message, code="agent.simulated_fault")
