"""server.boot: ports first, then a host that they fit, then the guest.

    create_ports   every port of the server exists, host-independent      undo: release those made for it
    claim_host     the plan; CPU, memory and disk are claimed on its best  undo: give the claim back
    bind_ports     the ports are bound to that host                        undo: unbind; refusal: next host
    spawn_guest    the host builds the guest                               undo: destroy it; refusal: next host
    ports_plugged  every port is ACTIVE                                    deadline: vif_plugging_timeout
    activate       the server is ACTIVE

Source of the order: network-aware scheduling, phases prepare and bind (docs/architecture.md).
"""

import random
import zlib
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.compute import actions, groups, server_state
from moorage.compute.errors import NoValidHost
from moorage.compute.model import Server
from moorage.compute.operations import spawn
from moorage.compute.operations.services import Services
from moorage.compute.tables import placements
from moorage.core.errors import Conflict
from moorage.network.errors import PortBindingFailed
from moorage.network.model import RequestedNic
from moorage.operations import Command, NoRoom, Refusal, Step, back_to, local, operation, remote, wait
from moorage.placement.service import Placed
from moorage.scheduling import Request
from moorage.scheduling.company import Company
from moorage.store.schema import Json
from moorage.store.statement import Statement, text_param
from moorage.wire.messages import DestroyGuest

EVENT = "compute__do_build_and_run_instance"

_PLAN = sa.dialects.postgresql.insert(placements).values(
    server_id=text_param("server_id"),
    attempt=sa.bindparam("attempt", type_=sa.Integer),
    plan=sa.bindparam("plan", type_=Json),
)
_KEEP_PLAN = Statement(
    _PLAN.on_conflict_do_update(index_elements=["server_id", "attempt"], set_={"plan": _PLAN.excluded.plan})
)


def params_of(server: Server, request_id: str) -> dict[str, Any]:
    """What the steps need to know of a server without reading its row."""
    return {
        "server_id": server.id,
        "project_id": server.project_id,
        "user_id": server.user_id,
        "networks": server.requested_networks,
        "security_groups": server.security_groups,
        "resources": {
            rc: amount
            for rc, amount in (
                ("VCPU", server.vcpus),
                ("MEMORY_MB", server.memory_mb),
                ("DISK_GB", server.disk_gb),
            )
            if amount
        },
        "zone": server.pinned_zone,
        "host": server.requested_host,
        "group": server.server_group_id,
        "request_id": request_id,
    }


async def create_ports(step: Step) -> Any:
    """Get or create the ports of the server; the same again on every later attempt."""
    app: Services = step.app
    p = step.params
    await actions.event_started(step.tx, p["server_id"], p["request_id"], EVENT)
    ports = await app.network.prepare_ports(
        step.tx,
        server_id=p["server_id"],
        project_id=p["project_id"],
        user_id=p["user_id"],
        requested=[msgspec.convert(n, RequestedNic) for n in p["networks"]],
        security_groups=p["security_groups"],
    )
    return {"physical_networks": sorted({q.physical_network for q in ports if q.physical_network})}


async def release_ports(step: Step) -> None:
    """Delete the ports made for the server, give back the user's."""
    app: Services = step.app
    await app.network.release_ports(step.tx, server_id=step.params["server_id"])


async def claim_host(step: Step) -> Any:
    """Decide, and claim on the best host that still has room; the plan is kept for ``explain``.

    Where only hosts would do that have as much to do as they may, the boot waits for them.
    """
    app: Services = step.app
    p = step.params
    group = p.get("group")
    company = Company() if group is None else await groups.wishes(step.tx, group, server_id=p["server_id"])
    refused = {r["host"]: r["message"] for r in step.refusals}
    request = Request(
        resources=p["resources"],
        availability_zone=p["zone"],
        physical_networks=tuple(step.data["create_ports"]["physical_networks"]),
        requested_host=p["host"],
        excluded={**step.full, **refused},
        together=company.together,
        apart=company.apart,
        drawn=company.drawn,
    )
    attempt = len(step.refusals) + 1
    seed = zlib.crc32(f"{p['server_id']}:{attempt}".encode())
    placed = await _place(step, request, seed)
    if placed.host is None and await app.directory.refresh():
        # What this process knew of hosts and zones was behind.
        placed = await _place(step, request, seed)
    if placed.host is None and step.full:
        anywhere = await _place(step, msgspec.structs.replace(request, excluded=refused), seed)
        if anywhere.host is not None:
            # Those that wait are spread over the hosts, so that each that becomes free has one that fits.
            host = random.choice(list(anywhere.plan.best()))
            raise NoRoom(f"host {host} has as much to do as it may", subject=host)
    record = placed.plan.record()
    kept = {
        **msgspec.to_builtins(record),
        "chosen": placed.host,
        "lost": msgspec.to_builtins(placed.refused),
    }
    if placed.host is None:
        raise NoValidHost(
            f"No valid host was found. {record.summary}", plan=kept, attempt=attempt, refusals=step.refusals
        )
    await _KEEP_PLAN.run(step.tx, server_id=p["server_id"], attempt=attempt, plan=kept)
    zone = app.directory.zone_of(placed.host)
    await server_state.placed(step.tx, p["server_id"], host=placed.host, zone=zone)
    return placed.host


async def _place(step: Step, request: Request, seed: int) -> Placed:
    app: Services = step.app
    p = step.params
    return await app.placement.place(
        step.tx,
        request=request,
        states=app.directory.states,
        seed=seed,
        consumer=p["server_id"],
        project_id=p["project_id"],
        user_id=p["user_id"],
    )


async def release_claim(step: Step) -> None:
    """Give back what the server holds in placement, and forget the host."""
    app: Services = step.app
    await app.placement.ledger.release(step.tx, step.params["server_id"])
    await server_state.unplaced(step.tx, step.params["server_id"])


async def bind_ports(step: Step) -> Any:
    """Bind the ports to the chosen host; a host that cannot carry one is refused."""
    app: Services = step.app
    host: str = step.data["claim_host"]
    try:
        return await app.network.bind_ports(
            step.tx, server_id=step.params["server_id"], host=host, zone=app.directory.zone_of(host)
        )
    except PortBindingFailed as error:
        raise Refusal(error.message, subject=host, code=error.code) from error


async def unbind_ports(step: Step) -> None:
    """No host carries the ports."""
    app: Services = step.app
    await app.network.unbind_ports(step.tx, server_id=step.params["server_id"])


async def spawn_guest(step: Step) -> Command:
    """Tell the host to build the guest, with ports that are bound already."""
    app: Services = step.app
    server = await server_state.kept(step.tx, step.params["server_id"])
    if server is None:
        raise Conflict("the server is being deleted", code="compute.being_deleted")
    payload = spawn.payload(server, step.data["bind_ports"], app.settings)
    return Command(step.data["claim_host"], "guest.spawn", payload, app.settings.command_timeout)


async def destroy_guest(step: Step) -> Command | None:
    """Tell the host to remove all that belongs to the guest."""
    app: Services = step.app
    if "claim_host" not in step.data:
        return None
    payload = DestroyGuest(server_id=step.params["server_id"])
    return Command(step.data["claim_host"], "guest.destroy", payload, app.settings.command_timeout)


async def ports_plugged(step: Step) -> bool:
    """Whether every port of the server is ACTIVE."""
    app: Services = step.app
    return await app.network.plugged(step.tx, step.params["server_id"])


async def activate(step: Step) -> None:
    """The server is there."""
    p = step.params
    await server_state.running(step.tx, p["server_id"])
    await actions.event_finished(
        step.tx, p["server_id"], p["request_id"], EVENT, host=step.data["claim_host"]
    )


async def boot_failed(step: Step) -> None:
    """ERROR with a fault that says why."""
    error = step.error or {}
    p = step.params
    plan = (error.get("details") or {}).get("plan")
    if plan is not None:
        await _KEEP_PLAN.run(
            step.tx,
            server_id=p["server_id"],
            attempt=error["details"]["attempt"],
            plan=plan,
        )
    message = _message(error, step.refusals)
    await actions.event_finished(step.tx, p["server_id"], p["request_id"], EVENT, error=message)
    why = server_state.fault(message, code=error.get("status", 500), details=error.get("code", ""))
    await server_state.failed(step.tx, p["server_id"], why, unplace=True)


def _message(error: dict[str, Any], refusals: list[dict[str, Any]]) -> str:
    message = str(error.get("message") or "The build failed.")
    if refusals:
        message = f"{message.rstrip('.')}. The last host to refuse said: {refusals[-1]['message']}"
    return message


async def boot_stuck(step: Step) -> None:
    """ERROR: what the guest may still use is held until an administrator resumes the operation."""
    why = server_state.fault(
        f"The build failed and could not be undone; operation {step.operation_id} is stuck.",
        details=str((step.error or {}).get("message", "")),
    )
    await server_state.failed(step.tx, step.params["server_id"], why)


async def boot_abandoned(step: Step) -> None:
    """ERROR: what is left is still held, and goes with the server."""
    p = step.params
    message = (
        f"The build failed and an administrator gave up undoing it (operation {step.operation_id}). "
        "Delete the server to remove what is left of it."
    )
    left = ", ".join(str(each["undo"]) for each in (step.error or {}).get("left", ()))
    await actions.event_finished(step.tx, p["server_id"], p["request_id"], EVENT, error=message)
    why = server_state.fault(message, details=f"not done: {left}")
    await server_state.failed(step.tx, p["server_id"], why)


BOOT = operation(
    "server.boot",
    version=1,
    deadline=3600.0,
    steps=(
        local(create_ports, undo=release_ports),
        local(claim_host, undo=release_claim),
        local(bind_ports, undo=unbind_ports, on_refusal=back_to(claim_host)),
        remote(spawn_guest, undo=destroy_guest, on_refusal=back_to(claim_host)),
        wait(ports_plugged, deadline=lambda app: app.settings.vif_plugging_timeout),
        local(activate),
    ),
    on_failure=boot_failed,
    on_stuck=boot_stuck,
    on_abandoned=boot_abandoned,
)
