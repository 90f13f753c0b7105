"""What agents say, and what it means to the domains: reports, events, results."""

from collections.abc import Sequence

import msgspec

from moorage.agentlink.calls import Calls
from moorage.agentlink.service import AgentLink
from moorage.compute import power_sync
from moorage.compute.operations.lifecycle import subject
from moorage.core.clock import iso
from moorage.core.log import get_logger
from moorage.network.http.common import HostAgent
from moorage.network.service import NetworkService
from moorage.operations import complete, signal
from moorage.operations.queue import CHANNEL
from moorage.placement.model import Inventory
from moorage.placement.service import PlacementService
from moorage.store.database import Tx
from moorage.store.signals import Signals
from moorage.wire.messages import Event, HostReport, Result

log = get_logger(__name__)


class Ratios(msgspec.Struct, frozen=True, kw_only=True):
    """Over-commitment of what hosts report."""

    cpu: float = 4.0
    ram: float = 1.0
    disk: float = 1.0


class HostEvents:
    """The callbacks of an AgentLink. ``attach`` once all services exist."""

    def __init__(self, signals: Signals, link: AgentLink, calls: Calls, ratios: Ratios) -> None:
        self._signals = signals
        self._link = link
        self._calls = calls
        self._ratios = ratios

    def attach(self, network: NetworkService, placement: PlacementService) -> None:
        """Begin to pass on what hosts say."""
        self._network = network
        self._placement = placement
        self._link.on_result = self.on_result
        self._link.on_event = self.on_event
        self._link.registry.on_report = self.on_report

    async def on_report(self, tx: Tx, name: str, report: HostReport) -> None:
        """A host's capacity and reach become inventory and traits."""
        host = await self._link.registry.host(tx, name)
        ratios = self._ratios
        inventory = {
            "VCPU": Inventory(total=report.vcpus, max_unit=report.vcpus, allocation_ratio=ratios.cpu),
            "MEMORY_MB": Inventory(
                total=report.memory_mb,
                max_unit=report.memory_mb,
                reserved=min(report.reserved_memory_mb, report.memory_mb),
                allocation_ratio=ratios.ram,
            ),
            "DISK_GB": Inventory(total=report.disk_gb, max_unit=report.disk_gb, allocation_ratio=ratios.disk),
        }
        await self._placement.report_host(
            tx,
            host_name=name,
            provider_uuid=host.id,
            inventory=inventory,
            physical_networks=report.physical_networks,
        )

    async def on_result(self, tx: Tx, result: Result) -> None:
        """A command's end goes to who waits for it: a request, or an operation."""
        log.info(
            "command.ended",
            command_id=result.command_id,
            operation_id=result.operation,
            step=result.step,
            outcome=result.outcome,
        )
        if await self._calls.on_result(tx, result):
            return
        error = {"code": result.error.code, "message": result.error.message} if result.error else None
        await complete(
            tx,
            operation=result.operation,
            fence=result.fence,
            command=result.command_id,
            outcome=result.outcome,
            data=result.data,
            error=error,
        )
        tx.on_commit(self._wake)

    async def on_event(self, tx: Tx, host: str, event: Event) -> None:
        """What happened on a host unasked."""
        match event.kind:
            case "port.plugged":
                await self._network.port_up(tx, event.data["port_id"], host)
            case "port.unplugged":
                await self._network.port_down(tx, event.data["port_id"], host)
            case "guest.power" if event.data.get("power_state") in ("shutdown", "crashed"):
                await power_sync.guest_ended(tx, event.data["server_id"], host)
            case _:
                return
        tx.on_commit(self._wake)

    async def on_plugged(self, tx: Tx, devices: Sequence[str]) -> None:
        """Ports of these became ACTIVE: the operations that wait for it look again."""
        await signal(tx, *(subject(device) for device in devices))
        tx.on_commit(self._wake)

    async def network_agents(self, tx: Tx) -> list[HostAgent]:
        """The hosts as the Networking API's agents."""
        found = []
        for host in await self._link.registry.hosts(tx):
            facts = host.facts or {}
            found.append(
                HostAgent(
                    id=host.id,
                    host=host.name,
                    datapath=facts.get("datapath", ""),
                    alive=host.up(self._link.service_down_time),
                    admin_state_up=not host.disabled,
                    physical_networks=facts.get("physical_networks") or [],
                    created_at=iso(host.created_at),
                    heartbeat_at=iso(host.last_seen or host.created_at),
                )
            )
        return found

    def _wake(self) -> None:
        self._signals.wake(CHANNEL)
