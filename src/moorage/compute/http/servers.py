"""/servers: create, list, show, change, delete."""

from collections.abc import Callable
from typing import Any

from moorage.api.call import Reply
from moorage.api.endpoint import names
from moorage.api.paging import next_link
from moorage.compute import server_edits, server_lists, server_state, servers
from moorage.compute.errors import InvalidField
from moorage.compute.http import server_bodies, server_views, values
from moorage.compute.http.values import ComputeCall
from moorage.compute.model import CreateRequest, Server
from moorage.compute.server_lists import SORT_KEYS, ListRequest

_FORCED_HOST = "os_compute_api:servers:create:forced_host"
QUERY = names(
    "user_id", "project_id", "tenant_id", "launch_index", "image_ref", "image", "kernel_id", "ramdisk_id",
    "hostname", "key_name", "power_state", "vm_state", "task_state", "host", "node", "flavor",
    "reservation_id", "launched_at", "terminated_at", "availability_zone", "name", "display_name",
    "description", "display_description", "locked_by", "uuid", "root_device_name", "config_drive",
    "access_ip_v4", "access_ip_v6", "auto_disk_config", "progress", "sort_key", "sort_dir", "all_tenants",
    "soft_deleted", "deleted", "status", "changes-since", "ip", "ip6", "created_at", "block_device_mapping",
    "services", "metadata", "system_metadata", "info_cache", "security_groups", "pci_devices", "limit",
    "marker",
    strict="2.75",
    later={
        "tags": "2.26", "tags-any": "2.26", "not-tags": "2.26", "not-tags-any": "2.26", "changes-before": "2.66",
        "locked": "2.73",
    },
)  # fmt: skip
# Sort keys that were taken below 2.75 and say nothing here.
_OLD_SORT_KEYS = frozenset(
    [
        "architecture",
        "cell_name",
        "cleaned",
        "default_ephemeral_device",
        "default_swap_device",
        "deleted",
        "deleted_at",
        "disable_terminate",
        "ephemeral_gb",
        "ephemeral_key_uuid",
        "id",
        "key_data",
        "launched_on",
        "memory_mb",
        "os_type",
        "reservation_id",
        "root_gb",
        "shutdown_terminate",
        "user_data",
        "vcpus",
        "vm_mode",
    ]
)


async def create(call: ComputeCall) -> Reply:
    """POST /servers."""
    request = server_bodies.create_request(call.body, call.version)
    _check_create(call, request)
    image = await call.app.images.get(request.image_id, call.context.token)
    async with call.app.database.transaction() as tx:
        made = await servers.create(tx, call.app, call.context, request, image)
    if values.flag(
        values.given(call.body.server.return_reservation_id, False), "server.return_reservation_id"
    ):
        return Reply({"reservation_id": made[0].reservation_id})
    return Reply(
        {"server": _created(call, made[0])}, headers={"Location": call.url(f"/servers/{made[0].id}")}
    )


def _check_create(call: ComputeCall, request: CreateRequest) -> None:
    if call.context.project_id is None:
        raise InvalidField("Servers belong to a project: use a token scoped to one.", field="")
    if request.host is not None:
        call.policies.check(_FORCED_HOST, call.context)
    if request.max_count > call.app.max_servers_per_request:
        raise InvalidField(
            f"One request makes at most {call.app.max_servers_per_request} servers.", field="server.max_count"
        )


def _created(call: ComputeCall, server: Server) -> dict[str, Any]:
    view: dict[str, Any] = {
        "id": server.id,
        "links": values.links(call, f"/servers/{server.id}"),
        "OS-DCF:diskConfig": server.disk_config,
        "security_groups": [{"name": n} for n in server.security_groups],
    }
    password = values.given(call.body.server.admin_pass)
    return view if password is None else {**view, "adminPass": password}


async def index(call: ComputeCall) -> dict[str, Any]:
    """GET /servers."""
    request = _list_request(call, "os_compute_api:servers:index:get_all_tenants")
    async with call.app.database.read() as tx:
        found = await server_lists.page(
            tx, call.app.networks, call.context, request, wider=call.version >= (2, 83)
        )
    return _page(call, "/servers", request, found, lambda s: server_views.brief(call, s))


async def details(call: ComputeCall) -> dict[str, Any]:
    """GET /servers/detail."""
    request = _list_request(call, "os_compute_api:servers:detail:get_all_tenants")
    async with call.app.database.read() as tx:
        found = await server_lists.page(
            tx, call.app.networks, call.context, request, wider=call.version >= (2, 83)
        )
        around = await server_views.gather(tx, call, found)
    return _page(call, "/servers/detail", request, found, lambda s: server_views.detail(call, s, around))


async def show(call: ComputeCall) -> dict[str, Any]:
    """GET /servers/{server_id}."""
    async with call.app.database.read() as tx:
        server = await servers.get(tx, call.context, call.path["server_id"])
        around = await server_views.gather(tx, call, [server])
    return {"server": server_views.shown(call, server, around)}


async def update(call: ComputeCall) -> dict[str, Any]:
    """PUT /servers/{server_id}."""
    changes = server_bodies.changes(call.body, call.version)
    async with call.app.database.transaction() as tx:
        server = await server_edits.update(tx, call.context, call.path["server_id"], changes)
        around = await server_views.gather(tx, call, [server])
    return {"server": server_views.updated(call, server, around)}


async def delete(call: ComputeCall) -> None:
    """DELETE /servers/{server_id}, and the action forceDelete."""
    async with call.app.database.transaction() as tx:
        await servers.delete(tx, call.app, call.context, call.path["server_id"])


async def reset_state(call: ComputeCall) -> None:
    """POST …/action os-resetState: an administrator says what the server is."""
    async with call.app.database.transaction() as tx:
        server = await servers.get(tx, call.context, call.path["server_id"])
        await server_state.reset(tx, server.id, active=call.body.state == "active")


def _list_request(call: ComputeCall, everyone: str) -> ListRequest:
    known = QUERY.known(call.version)
    filters = {k: v for k, v in call.query.items() if k in known}
    if call.version < (2, 5) and not call.context.is_admin:
        filters.pop("ip6", None)
    all_projects = _all_tenants(call, filters)
    if all_projects:
        call.policies.check(everyone, call.context)
    return ListRequest(
        filters=filters,
        sort=_sort(call),
        limit=values.page_limit(call),
        marker=values.last(call, "marker"),
        all_projects=all_projects,
        unknown_status_is_error=call.version >= (2, 38),
    )


def _all_tenants(call: ComputeCall, filters: dict[str, list[str]]) -> bool:
    if "all_tenants" not in filters:
        # An administrator who names a project means that one.
        return call.context.is_admin and bool(filters.keys() & {"project_id", "tenant_id"})
    value = filters["all_tenants"][-1]
    return value == "" or values.flag(value, "all_tenants")


def _sort(call: ComputeCall) -> tuple[tuple[str, bool], ...]:
    keys, directions = call.query.get("sort_key", []), call.query.get("sort_dir", [])
    if not set(directions) <= {"asc", "desc"}:
        raise InvalidField("Unknown sort direction, must be 'desc' or 'asc'", field="sort_dir")
    found: list[tuple[str, bool]] = []
    for i, key in enumerate(keys):
        down = (directions[min(i, len(directions) - 1)] if directions else "desc") == "desc"
        if key in SORT_KEYS:
            found.append((key, down))
        elif call.version >= (2, 75) or key not in _OLD_SORT_KEYS:
            raise InvalidField(f"Invalid input for query parameter sort_key: {key[:64]}", field="sort_key")
    if not keys and directions:
        found.append(("created_at", directions[0] == "desc"))
    return tuple(found) or (("created_at", True),)


def _page(
    call: ComputeCall,
    path: str,
    request: ListRequest,
    found: list[Server],
    view: Callable[[Server], dict[str, Any]],
) -> dict[str, Any]:
    answer: dict[str, Any] = {"servers": [view(s) for s in found]}
    if found and len(found) == request.limit:
        answer["servers_links"] = [next_link(call.url(path), call.query, found[-1].id)]
    return answer
