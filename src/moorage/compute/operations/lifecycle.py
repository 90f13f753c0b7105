"""From the API to the operations: implements ``compute.lifecycle.Lifecycle``."""

from typing import Any

from moorage.api.context import RequestContext
from moorage.compute.model import Server
from moorage.compute.operations import BOOT, DEFINITIONS, DELETE, REBOOT, START, STOP
from moorage.compute.operations.boot import params_of
from moorage.compute.operations.services import Services
from moorage.core.errors import Conflict
from moorage.operations import Definition, cancel, submit
from moorage.store.database import Database, Tx
from moorage.wire.messages import ConsoleOutput


def subject(server_id: str) -> str:
    """The name under which a server's operations are kept in order."""
    return f"server:{server_id}"


class OperationLifecycle:
    """Submits operations in the caller's transaction."""

    def __init__(self, database: Database, services: Services, *, console_timeout: float = 30.0) -> None:
        self._database = database
        self._services = services
        self._console_timeout = console_timeout

    async def submit_boot(self, tx: Tx, server: Server, *, context: RequestContext) -> None:
        """Place the server and start its guest. One statement."""
        params = params_of(server, context.request_id)
        await submit(tx, BOOT, subject=subject(server.id), params=params, project=server.project_id)

    async def submit_delete(self, tx: Tx, server: Server, *, context: RequestContext) -> None:
        """Stop what else is being done to it, then end it; what that cannot undo, this takes back."""
        await cancel(tx, subject(server.id), kinds=[d.kind for d in DEFINITIONS if d is not DELETE])
        await self._submit(tx, DELETE, server, context)

    async def submit_start(self, tx: Tx, server: Server, *, context: RequestContext) -> None:
        """Power on."""
        await self._submit(tx, START, server, context, event="compute_start_instance")

    async def submit_stop(self, tx: Tx, server: Server, *, context: RequestContext) -> None:
        """Power off."""
        await self._submit(tx, STOP, server, context, event="compute_stop_instance")

    async def submit_reboot(self, tx: Tx, server: Server, *, hard: bool, context: RequestContext) -> None:
        """Restart."""
        await self._submit(tx, REBOOT, server, context, event="compute_reboot_instance", hard=hard)

    async def _submit(
        self, tx: Tx, definition: Definition, server: Server, context: RequestContext, **more: Any
    ) -> None:
        params = {"server_id": server.id, "request_id": context.request_id, **more}
        await submit(tx, definition, subject=subject(server.id), params=params, project=server.project_id)

    async def console_output(self, server: Server, *, length: int | None) -> str:
        """Ask the host; raises Conflict where there is none, Unavailable where it does not answer."""
        if server.host is None:
            raise Conflict(f"Instance {server.id} is on no host yet.", code="compute.no_host")
        payload = ConsoleOutput(server_id=server.id, length=length)
        data = await self._services.calls.call(server.host, payload, timeout=self._console_timeout)
        return str(data.get("output", ""))
