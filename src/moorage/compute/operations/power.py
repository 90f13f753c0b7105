"""server.start, server.stop, server.reboot: one command, then the state it leads to."""

from moorage.compute import actions, server_state
from moorage.compute.model import Server
from moorage.compute.operations import spawn
from moorage.compute.operations.services import Services
from moorage.core.errors import Conflict
from moorage.operations import Command, Step, local, operation, remote
from moorage.wire.messages import RebootGuest, StopGuest

DEADLINE = 1800.0
"""Seconds for the whole of each."""


async def _placed(step: Step, event: str) -> tuple[Server, str]:
    p = step.params
    await actions.event_started(step.tx, p["server_id"], p["request_id"], event)
    server = await server_state.get(step.tx, p["server_id"])
    if server is None or server.host is None:
        raise Conflict("the server is on no host", code="compute.no_host")
    return server, server.host


async def start_guest(step: Step) -> Command:
    """Power on. A guest that its host has lost is built again from its image, on the ports it has."""
    app: Services = step.app
    server, host = await _placed(step, "compute_start_instance")
    vifs = await app.network.bind_ports(
        step.tx, server_id=server.id, host=host, zone=app.directory.zone_of(host)
    )
    payload = spawn.payload(server, vifs, app.settings)
    return Command(host, "guest.spawn", payload, app.settings.command_timeout)


async def stop_guest(step: Step) -> Command:
    """Ask the guest to power off; pull the plug when it does not."""
    app: Services = step.app
    _, host = await _placed(step, "compute_stop_instance")
    payload = StopGuest(server_id=step.params["server_id"])
    return Command(host, "guest.stop", payload, app.settings.command_timeout)


async def reboot_guest(step: Step) -> Command:
    """Restart."""
    app: Services = step.app
    _, host = await _placed(step, "compute_reboot_instance")
    payload = RebootGuest(server_id=step.params["server_id"], hard=step.params["hard"])
    return Command(host, "guest.reboot", payload, app.settings.command_timeout)


async def mark_started(step: Step) -> None:
    """ACTIVE."""
    await server_state.running(step.tx, step.params["server_id"])
    await _finished(step, "compute_start_instance")


async def mark_rebooted(step: Step) -> None:
    """ACTIVE."""
    await server_state.running(step.tx, step.params["server_id"])
    await _finished(step, "compute_reboot_instance")


async def mark_stopped(step: Step) -> None:
    """SHUTOFF."""
    await server_state.stopped(step.tx, step.params["server_id"])
    await _finished(step, "compute_stop_instance")


async def _finished(step: Step, event: str, error: str | None = None) -> None:
    p = step.params
    await actions.event_finished(step.tx, p["server_id"], p["request_id"], event, error=error)


async def power_failed(step: Step) -> None:
    """ERROR: the power state on the host is not known."""
    message = str((step.error or {}).get("message") or "The host could not do it.")
    await _finished(step, step.params["event"], message)
    await server_state.failed(step.tx, step.params["server_id"], server_state.fault(message))


START = operation(
    "server.start",
    version=1,
    steps=(remote(start_guest), local(mark_started)),
    on_failure=power_failed,
    deadline=DEADLINE,
)
STOP = operation(
    "server.stop",
    version=1,
    steps=(remote(stop_guest), local(mark_stopped)),
    on_failure=power_failed,
    deadline=DEADLINE,
)
REBOOT = operation(
    "server.reboot",
    version=1,
    steps=(remote(reboot_guest), local(mark_rebooted)),
    on_failure=power_failed,
    deadline=DEADLINE,
)
