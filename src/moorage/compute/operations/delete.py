"""server.delete: the guest first, then what it held.

destroy_guest   the host removes guest, taps and files; one that is not heard of does so when it is back
release         ports, claim and quota are given back, the server is DELETED
"""

from moorage.compute import actions, server_state
from moorage.compute.operations.services import Services
from moorage.operations import URGENT, Command, Step, local, operation, remote
from moorage.wire.messages import DestroyGuest

EVENT = "compute_terminate_instance"


async def destroy_guest(step: Step) -> Command | None:
    """Tell the host; nothing to tell where no host was ever chosen."""
    app: Services = step.app
    p = step.params
    await actions.event_started(step.tx, p["server_id"], p["request_id"], EVENT)
    # The boot that ran before this operation may have placed the server after the delete was asked for.
    server = await server_state.get(step.tx, p["server_id"])
    if server is None or server.host is None:
        return None
    payload = DestroyGuest(server_id=server.id)
    return Command(server.host, "guest.destroy", payload, app.settings.command_timeout)


async def leave_to_host(_step: Step) -> None:
    """The host gets to it when it is back; users get their quota and addresses back now."""


async def release(step: Step) -> None:
    """Give everything back."""
    app: Services = step.app
    p = step.params
    await app.network.release_ports(step.tx, server_id=p["server_id"])
    await app.placement.ledger.release(step.tx, p["server_id"])
    await server_state.deleted(step.tx, p["server_id"])
    await actions.event_finished(step.tx, p["server_id"], p["request_id"], EVENT)


async def delete_failed(step: Step) -> None:
    """ERROR: what the guest may still use is not given back. It can be deleted again."""
    message = str((step.error or {}).get("message") or "The server could not be deleted.")
    p = step.params
    await actions.event_finished(step.tx, p["server_id"], p["request_id"], EVENT, error=message)
    await server_state.failed(step.tx, p["server_id"], server_state.fault(message), deleting=True)


DELETE = operation(
    "server.delete",
    version=1,
    priority=URGENT,
    deadline=3600.0,
    steps=(remote(destroy_guest, on_silence=leave_to_host), local(release)),
    on_failure=delete_failed,
)
