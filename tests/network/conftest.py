"""A network service over a real database, with four hosts of two kinds."""

from collections.abc import Sequence
from typing import Any

import pytest

from moorage.network.config import NetworkSettings
from moorage.network.mechanisms.ovn.mechanism import OvnMechanism
from moorage.network.model import HostNetworking
from moorage.network.networks import NetworkSpec
from moorage.network.segmentation import SegmentRules, SegmentSpec
from moorage.network.service import NetworkService
from moorage.network.subnets import SubnetSpec
from moorage.store.database import Database, Tx

HOSTS = {
    "h1": HostNetworking(host="h1", datapath="simulated", physical_networks=frozenset({"physnet1"})),
    "h2": HostNetworking(host="h2", datapath="simulated"),
    "o1": HostNetworking(
        host="o1", datapath="ovn", physical_networks=frozenset({"physnet1"}), chassis="chassis-o1"
    ),
    "o2": HostNetworking(host="o2", datapath="ovn", chassis="chassis-o2"),
}
SETTINGS = NetworkSettings(
    rules=SegmentRules(project_types=("geneve",), vlans={"physnet1": (range(100, 103),)}),
    quotas={"port": 50},
)


async def hosts(_tx: Tx, name: str) -> HostNetworking | None:
    return HOSTS.get(name)


class World:
    """The service, its database and the devices whose ports were plugged."""

    def __init__(self, database: Database, service: NetworkService, plugged: list[str]) -> None:
        self.database = database
        self.service = service
        self.plugged = plugged

    async def network(self, project_id: str = "p1", cidr: str = "10.0.0.0/24", **more: Any) -> str:
        segment = SegmentSpec(**more.pop("segment", {}))
        subnet = more.pop("subnet", {})
        async with self.database.transaction() as tx:
            spec = NetworkSpec(segment=segment, **more)
            network = await self.service.networks.create(tx, project_id=project_id, spec=spec)
            if cidr:
                subnet_spec = SubnetSpec(cidr=cidr, ip_version=6 if ":" in cidr else 4, **subnet)
                await self.service.subnets.create(
                    tx, project_id=project_id, network=network, spec=subnet_spec
                )
        return network.id

    async def count(self, table: str) -> int:
        async with self.database.read() as tx:
            return int((await tx.fetch(f"SELECT count(*) FROM {table}"))[0][0])  # noqa: S608  a test's table


@pytest.fixture
async def world(database: Database) -> World:
    plugged: list[str] = []

    async def on_plugged(_tx: Tx, devices: Sequence[str]) -> None:
        plugged.extend(devices)

    mechanisms = [OvnMechanism(nb="unix:/nowhere/nb", sb="unix:/nowhere/sb")]
    service = NetworkService(SETTINGS, hosts=hosts, mechanisms=mechanisms, on_plugged=on_plugged, seed=1)
    return World(database, service, plugged)
