"""Tags of a resource: read and replaced as a whole, or one by one."""

from collections.abc import Awaitable, Callable
from typing import Any

import sqlalchemy as sa

from moorage.core.errors import NotFound
from moorage.network import errors, rows, tables
from moorage.network.http.common import NetworkCall, seen_by, target_of
from moorage.network.service import NetworkService
from moorage.store.database import Tx

Handler = Callable[[NetworkCall], Awaitable[Any]]
_TABLES: dict[str, tuple[str, sa.Table]] = {
    "networks": ("network", tables.networks),
    "subnets": ("subnet", tables.subnets),
    "ports": ("port", tables.ports),
    "security-groups": ("security_group", tables.security_groups),
}


async def _row(call: NetworkCall, tx: Tx, plural: str) -> Any:
    service: NetworkService = call.app.service
    part: Any = getattr(service, plural.replace("-", "_"))
    return await part.show(tx, call.path["id"], project_id=seen_by(call))


async def _change(call: NetworkCall, plural: str, change: Callable[[list[str]], list[str]]) -> list[str]:
    name, table = _TABLES[plural]
    async with call.app.database.transaction() as tx:
        row = await _row(call, tx, plural)
        await call.authorize(f"update_{name}", target_of(row))
        tags = sorted(set(change(row.tags)))
        if any(not tag or len(tag) > 60 for tag in tags) or len(tags) > 50:
            raise errors.InvalidInput("at most 50 tags of 1 to 60 characters", field="tags")
        await rows.update(tx, table, row.id, {"tags": tags})
    return tags


def handlers(plural: str) -> dict[tuple[str, str], Handler]:
    """The handlers of one resource's tags, by method and the path after the resource's."""

    async def index(call: NetworkCall) -> Any:
        async with call.app.database.read() as tx:
            return {"tags": (await _row(call, tx, plural)).tags}

    async def replace(call: NetworkCall) -> Any:
        return {"tags": await _change(call, plural, lambda _: call.body.tags)}

    async def clear(call: NetworkCall) -> None:
        await _change(call, plural, lambda _: [])

    async def check(call: NetworkCall) -> None:
        async with call.app.database.read() as tx:
            if call.path["tag"] not in (await _row(call, tx, plural)).tags:
                raise NotFound(f"Tag {call.path['tag']} could not be found.")

    async def add(call: NetworkCall) -> None:
        await _change(call, plural, lambda tags: [*tags, call.path["tag"]])

    async def remove(call: NetworkCall) -> None:
        await _change(call, plural, lambda tags: [t for t in tags if t != call.path["tag"]])

    return {
        ("GET", ""): index,
        ("PUT", ""): replace,
        ("DELETE", ""): clear,
        ("GET", "/{tag}"): check,
        ("PUT", "/{tag}"): add,
        ("DELETE", "/{tag}"): remove,
    }
