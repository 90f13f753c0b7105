"""Start, stop, reboot and the console of a server."""

from moorage.api.context import RequestContext
from moorage.compute import actions, server_state, servers
from moorage.compute.errors import NoConsole
from moorage.compute.model import Server
from moorage.compute.service import ComputeService
from moorage.compute.states import Task, Vm
from moorage.store.database import Tx

_REBOOTS = (Task.REBOOTING, Task.REBOOTING_HARD)


async def _begin(
    tx: Tx,
    context: RequestContext,
    server_id: str,
    *,
    action: str,
    task: str,
    vm_states: tuple[str, ...],
    task_states: tuple[str, ...] = (),
) -> Server:
    server = await servers.get(tx, context, server_id)
    server_state.check_lock(server, by_admin=context.is_admin)
    begun = await server_state.begin_task(
        tx, server, task, action=action, vm_states=vm_states, task_states=task_states
    )
    await actions.start(tx, server.id, context, action)
    return begun


async def start(tx: Tx, app: ComputeService, context: RequestContext, server_id: str) -> None:
    """Raises ServerNotFound, ServerLocked, ServerWrongState (only a stopped server starts)."""
    server = await _begin(
        tx, context, server_id, action="start", task=Task.POWERING_ON, vm_states=(Vm.STOPPED,)
    )
    await app.lifecycle.submit_start(tx, server, context=context)


async def stop(tx: Tx, app: ComputeService, context: RequestContext, server_id: str) -> None:
    """Raises ServerNotFound, ServerLocked, ServerWrongState."""
    server = await _begin(
        tx, context, server_id, action="stop", task=Task.POWERING_OFF, vm_states=(Vm.ACTIVE, Vm.ERROR)
    )
    await app.lifecycle.submit_stop(tx, server, context=context)


async def reboot(tx: Tx, app: ComputeService, context: RequestContext, server_id: str, *, hard: bool) -> None:
    """Raises ServerNotFound, ServerLocked, ServerWrongState. A hard reboot also mends an ERROR or ends a stuck one."""
    server = await _begin(
        tx,
        context,
        server_id,
        action="reboot",
        task=Task.REBOOTING_HARD if hard else Task.REBOOTING,
        vm_states=(Vm.ACTIVE, Vm.STOPPED, Vm.PAUSED, Vm.SUSPENDED, Vm.ERROR) if hard else (Vm.ACTIVE,),
        task_states=_REBOOTS if hard else (),
    )
    await app.lifecycle.submit_reboot(tx, server, hard=hard, context=context)


async def console_output(
    app: ComputeService, context: RequestContext, server_id: str, length: int | None
) -> str:
    """The last ``length`` lines; raises ServerNotFound, NoConsole, and what the host's answer is."""
    async with app.database.read() as tx:
        server = await servers.get(tx, context, server_id)
    if server.host is None or server.vm_state == Vm.BUILDING:
        raise NoConsole(f"Instance {server_id} is not ready: it has no console yet.")
    return await app.lifecycle.console_output(server, length=length)
