"""POST /servers/{server_id}/action: what servers can be told."""

from typing import Literal

from msgspec import UNSET, UnsetType

from moorage.compute import server_edits, server_power, servers
from moorage.compute.errors import InvalidField
from moorage.compute.http import values
from moorage.compute.http.values import Body, ComputeCall, Number

_OVERRIDE = "os_compute_api:os-lock-server:unlock:unlock_override"


class Reboot(Body, frozen=True):
    type: Literal["SOFT", "Soft", "soft", "HARD", "Hard", "hard"]


class Console(Body, frozen=True):
    length: Number | UnsetType | None = UNSET


class Lock(Body, frozen=True):
    locked_reason: str | UnsetType = UNSET


class ResetState(Body, frozen=True):
    state: Literal["active", "error"]


async def start(call: ComputeCall) -> None:
    """os-start."""
    async with call.app.database.transaction() as tx:
        await server_power.start(tx, call.app, call.context, call.path["server_id"])


async def stop(call: ComputeCall) -> None:
    """os-stop."""
    async with call.app.database.transaction() as tx:
        await server_power.stop(tx, call.app, call.context, call.path["server_id"])


async def reboot(call: ComputeCall) -> None:
    """reboot: SOFT asks the guest, HARD does not."""
    hard = call.body.type.upper() == "HARD"
    async with call.app.database.transaction() as tx:
        await server_power.reboot(tx, call.app, call.context, call.path["server_id"], hard=hard)


async def console_output(call: ComputeCall) -> dict[str, str]:
    """os-getConsoleOutput; a length of -1 is all of it, 0 nothing."""
    asked = values.given(call.body.length)
    length = None if asked is None else values.number(asked, "os-getConsoleOutput.length", -1)
    output = await server_power.console_output(
        call.app, call.context, call.path["server_id"], None if length == -1 else length
    )
    return {"output": output}


async def lock(call: ComputeCall) -> None:
    """lock; from 2.73 on with a reason."""
    reason = values.given(call.body.locked_reason) if isinstance(call.body, Lock) else None
    if reason is not None and not 1 <= len(reason) <= 255:
        raise InvalidField("lock.locked_reason has 1 to 255 characters.", field="lock.locked_reason")
    async with call.app.database.transaction() as tx:
        await server_edits.lock(tx, call.context, call.path["server_id"], reason)


async def unlock(call: ComputeCall) -> None:
    """unlock: an administrator's lock is undone by an administrator."""
    async with call.app.database.transaction() as tx:
        server = await servers.get(tx, call.context, call.path["server_id"])
        if server.locked_by == "admin":
            await call.authorize(_OVERRIDE, {"project_id": server.project_id})
        await server_edits.unlock(tx, call.context, server.id)
