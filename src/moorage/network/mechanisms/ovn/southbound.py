"""The Southbound database: the real plug events.

A port is plugged when its Port_Binding is ``up`` *and* has a chassis: ``up`` alone stays true when a host's controller
has gone. The connection's thread hands what it sees to the event loop, which keeps the newest state of every port; one
task takes what is new and tells the network service, many ports in a transaction. What is told twice, or of a host
that isn't the port's any more, changes nothing there.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any

from ovsdbapp.backend.ovs_idl import connection

from moorage.core.errors import MoorageError, Unavailable
from moorage.core.ids import is_uuid
from moorage.core.log import get_logger
from moorage.network.binding import Bindings
from moorage.store.database import Database

log = get_logger(__name__)
_BATCH = 200
# The names of the chassis a port is up on (its name and its host's), empty when it is not plugged.
Names = tuple[str, ...]


class Southbound:
    """Follows the Southbound database and tells the service which ports are plugged, where."""

    def __init__(self, remote: str, database: Database, bindings: Bindings, *, timeout: float = 10.0) -> None:
        self._remote = remote
        self._database = database
        self._bindings = bindings
        self._timeout = timeout
        self._connection: Any = None
        self._state: dict[str, Names] = {}
        self._new: dict[str, None] = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self) -> None:
        """Connect in the background, and again until it succeeds."""
        self._stopping = False
        self._task = asyncio.create_task(self._run(), name="ovn-southbound")

    async def stop(self) -> None:
        """End the task and the connection."""
        self._stopping = True
        task, self._task = self._task, None
        while task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=1)
        if self._connection is not None:
            await asyncio.to_thread(self._connection.stop, self._timeout)
            self._connection = None

    def recheck(self, port_ids: Iterable[str]) -> None:
        """Tell the service once more what is known of these ports, where they are known to be plugged."""
        for port_id in port_ids:
            if self._state.get(port_id):
                self._new[port_id] = None
        if self._new:
            self._news.set()

    def _told(self, port_id: str, names: Names | None) -> None:
        if names is None:
            self._state.pop(port_id, None)
            return
        self._state[port_id] = names
        self._new[port_id] = None
        self._news.set()

    async def _run(self) -> None:
        pause = 0.5
        while not self._stopping:
            try:
                if self._connection is None:
                    self._connection = await asyncio.to_thread(self._connect, asyncio.get_running_loop())
                await self._news.wait()
                await self._tell()
                pause = 0.5
            except Exception as error:
                # Whatever it is, without this task no port would ever come up again.
                known = isinstance(error, MoorageError)
                log.warning(
                    "southbound.failed",
                    error=str(error) if known else repr(error),
                    next_attempt_in=pause,
                    exc_info=None if known else error,
                )
                await asyncio.sleep(pause)
                pause = min(pause * 2, 30.0)

    def _connect(self, loop: asyncio.AbstractEventLoop) -> Any:
        def told(port_id: str, names: Names | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed while this thread still ran
                loop.call_soon_threadsafe(self._told, port_id, names)

        try:
            idl = _Copy.from_server(
                self._remote, "OVN_Southbound", helper_tables=("Port_Binding", "Chassis"), told=told
            )
            found = connection.Connection(idl, self._timeout)
            found.start()
        except Exception as error:
            raise Unavailable(
                f"OVN's Southbound database at {self._remote} does not answer: {error!r}"
            ) from error
        return found

    async def _tell(self) -> None:
        batch = [*self._new][:_BATCH]
        for port_id in batch:
            del self._new[port_id]
        up = [(p, name) for p in batch for name in self._state.get(p, ())]
        lost = [p for p in batch if p in self._state and not self._state[p]]
        try:
            async with self._database.transaction() as tx:
                await self._bindings.up(tx, up)
                await self._bindings.lost(tx, lost, mechanism="ovn")
        except BaseException:
            self._new.update(dict.fromkeys(batch))
            raise
        if not self._new:
            self._news.clear()


class _Copy(connection.OvsdbIdl):  # type: ignore[misc]  # ovsdbapp has no types
    """The copy of port bindings in memory."""

    def __init__(self, *args: Any, told: Any, **kw: Any) -> None:
        super().__init__(*args, **kw)
        self._told = told

    def cooperative_yield(self) -> None:
        """Nothing: this thread is its own, and giving up the processor after every row made big updates slow."""

    def notify(self, event: str, row: Any, updates: Any = None) -> None:  # noqa: ARG002  the library's signature
        """Called for every row that came, changed or went."""
        if row._table.name != "Port_Binding" or row.type != "" or not is_uuid(row.logical_port):  # noqa: SLF001
            return
        if event == "delete":
            self._told(row.logical_port, None)
            return
        chassis = row.chassis[0] if row.chassis else None
        plugged = chassis is not None and list(row.up) == [True]
        names = (
            tuple(dict.fromkeys(n for n in (chassis.name, chassis.hostname) if n))
            if plugged and chassis
            else ()
        )
        self._told(row.logical_port, names)
