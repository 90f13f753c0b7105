"""OVN's part of a control plane: the mechanism that binds ports to it, and what writes and watches its databases."""

from collections.abc import Sequence

from oslo_config import cfg

from moorage.keepers import Keeper
from moorage.network.mechanisms.base import Mechanism
from moorage.network.mechanisms.ovn.mechanism import OvnMechanism
from moorage.network.mechanisms.ovn.plane import OvnPlane
from moorage.network.service import NetworkService
from moorage.store.database import Database
from moorage.store.signals import Signals


class OvnKeepers:
    """Nothing, where no Northbound database is configured: then only simulated hosts can carry ports."""

    def __init__(self, database: Database, signals: Signals, nb: str | None, sb: str | None) -> None:
        self._database = database
        self._signals = signals
        self._mechanism = OvnMechanism(nb=nb, sb=sb) if nb and sb else None
        self._plane: OvnPlane | None = None

    @classmethod
    def of(cls, conf: cfg.ConfigOpts, database: Database, signals: Signals) -> "OvnKeepers":
        """From the options of [network]."""
        return cls(database, signals, conf.network.ovn_nb, conf.network.ovn_sb)

    @property
    def mechanisms(self) -> Sequence[Mechanism]:
        """For the network service."""
        return [self._mechanism] if self._mechanism is not None else []

    @property
    def keepers(self) -> Sequence[Keeper]:
        """What writes to OVN."""
        return [self._plane.keeper] if self._plane is not None else []

    async def start(self, network: NetworkService) -> None:
        """Connect, write what differs, follow."""
        if self._mechanism is not None:
            self._plane = OvnPlane(self._mechanism, network, self._database, self._signals)
            await self._plane.start()

    async def stop(self) -> None:
        """Stop following; OVN keeps what it has."""
        if self._plane is not None:
            await self._plane.stop()
