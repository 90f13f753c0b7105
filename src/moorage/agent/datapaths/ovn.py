"""Ports on Open vSwitch under OVN.

The agent makes the tap and puts it into the integration bridge with its port's id; the host's ovn-controller sees
the id, claims the port, programs its flows and marks the interface ``ovn-installed``, which is what ``plug`` waits
for. That the port is up for the whole cloud is seen in OVN's Southbound database by the control plane, so there is
no event to send from here.

The libraries for OVSDB and netlink block; each call runs in a thread.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ovsdbapp.backend.ovs_idl import connection, event
from ovsdbapp.schema.open_vswitch.impl_idl import OvsdbIdl
from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from moorage.agent.errors import DatapathFailure
from moorage.core.log import get_logger
from moorage.wire.messages import Event, Vif

log = get_logger(__name__)
T = TypeVar("T")
_TIMEOUT = 15


class OvnDatapath:
    """See ``base.Datapath``. ``ovsdb`` is this host's own Open vSwitch database."""

    def __init__(self, ovsdb: str, bridge: str = "br-int", plug_timeout: float = 30.0) -> None:
        self._ovsdb = ovsdb
        self._bridge = bridge
        self._plug_timeout = plug_timeout
        self._api: Any = None
        self._connection: Any = None
        self._events: Any = None

    async def start(self) -> None:
        """Connect to the host's Open vSwitch."""
        await _in_thread("connect to Open vSwitch", self._connect)

    async def stop(self) -> None:
        """Disconnect; ports stay plugged."""
        if self._connection is not None:
            self._events.shutdown()
            await asyncio.to_thread(self._connection.stop, _TIMEOUT)
            self._connection = None

    async def plug(self, vif: Vif) -> Event | None:
        """Tap, port, then wait for the controller."""
        installed = Installed(vif.iface, asyncio.get_running_loop())
        self._events.watch_event(installed)
        try:
            await _in_thread(f"plug port {vif.port_id}", lambda: self._plug(vif))
            if not await _in_thread("read the interface", lambda: self._is_installed(vif)):
                async with asyncio.timeout(self._plug_timeout):
                    await installed.seen.wait()
        except TimeoutError as error:
            message = (
                f"port {vif.port_id}: ovn-controller did not take it up within {self._plug_timeout:.0f} s; "
                "is it running, and is the port bound to this host?"
            )
            raise DatapathFailure(message, code="agent.plug_timeout") from error
        finally:
            self._events.unwatch_event(installed)
        return None

    async def unplug(self, vif: Vif) -> Event | None:
        """Port and tap away; what is not there needs no removal."""
        await _in_thread(f"unplug port {vif.port_id}", lambda: self._unplug(vif))
        return None

    async def physical_networks(self) -> tuple[str, ...]:
        """Those that ovn-bridge-mappings gives a bridge for."""
        mappings = (await self._external_ids()).get("ovn-bridge-mappings", "")
        return tuple(
            sorted(entry.partition(":")[0].strip() for entry in mappings.split(",") if entry.strip())
        )

    async def chassis(self) -> str | None:
        """The system-id, by which OVN knows this host."""
        found: str | None = (await self._external_ids()).get("system-id")
        return found

    async def _external_ids(self) -> dict[str, str]:
        return await _in_thread(
            "read Open_vSwitch",
            lambda: dict(self._api.db_get("Open_vSwitch", ".", "external_ids").execute(check_error=True)),
        )

    def _connect(self) -> None:
        idl = Idl.from_server(
            self._ovsdb, "Open_vSwitch", helper_tables=("Open_vSwitch", "Bridge", "Port", "Interface")
        )
        self._events = idl.notify_handler
        self._connection = connection.Connection(idl, timeout=_TIMEOUT)
        self._api = OvsdbIdl(self._connection)

    def _plug(self, vif: Vif) -> None:
        _make_tap(vif.iface, vif.mtu)
        ids = {"iface-id": vif.port_id, "attached-mac": vif.mac, "iface-status": "active"}
        bridge = vif.details.get("bridge", self._bridge)
        with self._api.transaction(check_error=True) as transaction:
            transaction.add(self._api.add_port(bridge, vif.iface, may_exist=True))
            transaction.add(self._api.db_set("Interface", vif.iface, ("external_ids", ids)))

    def _unplug(self, vif: Vif) -> None:
        self._api.del_port(vif.iface, if_exists=True).execute(check_error=True)
        with _netlink() as ip:
            for index in ip.link_lookup(ifname=vif.iface):
                ip.link("del", index=index)

    def _is_installed(self, vif: Vif) -> bool:
        ids = self._api.db_get("Interface", vif.iface, "external_ids").execute(check_error=True)
        return bool(ids.get("ovn-installed") == "true")


class Installed(event.RowEvent):  # type: ignore[misc]  # the library has no types
    """The controller's mark on one interface."""

    def __init__(self, iface: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__((self.ROW_UPDATE, self.ROW_CREATE), "Interface", (("name", "=", iface),))
        self.event_name = f"Installed-{iface}"
        self.seen = asyncio.Event()
        self._loop = loop

    def match_fn(self, _event: str, row: Any, _old: Any) -> bool:
        return bool(row.external_ids.get("ovn-installed") == "true")

    def run(self, _event: str, _row: Any, _old: Any) -> None:
        """Called from the library's thread."""
        self._loop.call_soon_threadsafe(self.seen.set)


class Idl(connection.OvsdbIdl):  # type: ignore[misc]  # the library has no types
    """A copy of the database in memory that tells of changes."""

    def __init__(self, remote: str, schema: Any, **kw: Any) -> None:
        self.notify_handler = event.RowEventHandler()
        super().__init__(remote, schema, **kw)

    def notify(self, event: str, row: Any, updates: Any = None) -> None:
        """Called by the library for each changed row."""
        self.notify_handler.notify(event, row, updates)


@contextlib.contextmanager
def _netlink() -> Iterator[Any]:
    with IPRoute() as ip:
        yield ip


def _make_tap(name: str, mtu: int) -> None:
    with _netlink() as ip:
        found = ip.link_lookup(ifname=name)
        if not found:
            ip.link("add", ifname=name, kind="tuntap", mode="tap")
            found = ip.link_lookup(ifname=name)
        ip.link("set", index=found[0], mtu=mtu, state="up")


async def _in_thread(what: str, work: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(work)
    except (NetlinkError, OSError) as error:
        message = f"cannot {what}: {error}"
        raise DatapathFailure(message) from error
    except Exception as error:
        # ovsdbapp raises bare Exceptions of its own and the ovs library's; none of them has a common root.
        message = f"cannot {what}: {type(error).__name__}: {error}"
        raise DatapathFailure(message) from error
