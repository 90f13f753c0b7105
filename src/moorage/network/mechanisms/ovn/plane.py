"""OVN as one part with a start and a stop: the keeper of the Northbound database and the events of the Southbound one."""

import asyncio

from moorage.keepers import Keeper
from moorage.network.mechanisms.ovn.keeper import NorthboundKeeper
from moorage.network.mechanisms.ovn.mechanism import OvnMechanism
from moorage.network.mechanisms.ovn.northbound import Northbound
from moorage.network.mechanisms.ovn.southbound import Southbound
from moorage.network.service import NetworkService
from moorage.store.database import Database
from moorage.store.signals import Signals


class OvnPlane:
    """Runs what the OVN mechanism needs. It may start before OVN does: it connects when OVN is there."""

    def __init__(
        self, mechanism: OvnMechanism, service: NetworkService, database: Database, signals: Signals
    ) -> None:
        self._northbound = Northbound(mechanism.nb)
        self._southbound = Southbound(mechanism.sb, database, service.bindings)
        self.keeper = Keeper(
            database, signals, NorthboundKeeper(database, self._northbound, self._southbound), first_pause=0.2
        )

    async def start(self) -> None:
        """Begin to follow both databases."""
        await self._southbound.start()
        await self.keeper.start()

    async def stop(self) -> None:
        """End both, with their connections."""
        await self.keeper.stop()
        await self._southbound.stop()
        await asyncio.to_thread(self._northbound.close)
