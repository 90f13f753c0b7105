"""/v2.0/quotas."""

from typing import Any

from moorage.network import errors, listing
from moorage.network.http.common import NetworkCall

MAX_INT = 2**31 - 1
# Switches of clients that mean something only to Neutron's own quota drivers.
_SWITCHES = ("force", "check_limit", "project_id", "tenant_id")


async def index(call: NetworkCall) -> Any:
    await call.authorize("update_quota")
    async with call.app.database.read() as tx:
        found = await call.app.service.quotas.everyone(tx)
    return {"quotas": [{**limits, "project_id": p, "tenant_id": p} for p, limits in found.items()]}


async def show(call: NetworkCall) -> Any:
    project_id = call.path["id"]
    await call.authorize("get_quota", {"project_id": project_id})
    async with call.app.database.read() as tx:
        return {"quota": await call.app.service.quotas.show(tx, project_id)}


async def details(call: NetworkCall) -> Any:
    project_id = call.path["id"]
    await call.authorize("get_quota", {"project_id": project_id})
    async with call.app.database.read() as tx:
        return {"quota": await call.app.service.quotas.details(tx, project_id)}


async def defaults(call: NetworkCall) -> Any:
    await call.authorize("get_quota", {"project_id": call.path["id"]})
    return {"quota": call.app.service.quotas.defaults}


async def update(call: NetworkCall) -> Any:
    limits: dict[str, int] = {}
    for name, value in call.body.quota.items():
        if name in _SWITCHES:
            continue
        limit = None if isinstance(value, bool) else listing.whole(str(value))
        if limit is None or not -1 <= limit <= MAX_INT:
            raise errors.InvalidInput(f"a limit is an integer from -1 to {MAX_INT}", field=name)
        limits[name] = limit
    async with call.app.database.transaction() as tx:
        await call.app.service.quotas.update(tx, call.path["id"], limits)
        return {"quota": await call.app.service.quotas.show(tx, call.path["id"])}


async def delete(call: NetworkCall) -> None:
    async with call.app.database.transaction() as tx:
        await call.app.service.quotas.reset(tx, call.path["id"])
