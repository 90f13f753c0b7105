"""Servers: making, finding, changing and ending them. The long part is the operations' (``lifecycle``).

Statements of a creation, in order: flavor, keypair, server group (the ones asked for), limits, networks (one or two),
the rows with their actions (one, for any number of servers), the operation's, and last the claim on the quota, because
that one locks the project's row until the commit.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from moorage.api.context import RequestContext
from moorage.compute import actions, aggregates, flavors, groups, keypairs, networking, quotas, server_state
from moorage.compute.errors import (
    FlavorNotFound,
    ImageNotUsable,
    InvalidField,
    KeypairNotFound,
    QuotaExceeded,
    ServerGroupNotFound,
    ServerNotFound,
    UnknownZone,
)
from moorage.compute.images import Image
from moorage.compute.model import CreateRequest, Flavor, Keypair, NicRequest, Server
from moorage.compute.service import ComputeService
from moorage.compute.states import Task, Vm
from moorage.compute.tables import instance_actions, servers
from moorage.core.errors import NotFound
from moorage.core.ids import new_id
from moorage.store.database import Tx
from moorage.store.schema import Json
from moorage.store.statement import Statement, text_param, texts_param

_visible = sa.or_(sa.bindparam("any", type_=sa.Boolean), servers.c.project_id == text_param("project_id"))
_GET = Statement(
    sa.select(servers).where(servers.c.id == text_param("id"), servers.c.deleted_at.is_(None), _visible),
    row=Server,
)
_GET_ALSO_DELETED = Statement(
    sa.select(servers).where(servers.c.id == text_param("id"), _visible), row=Server
)
_GIB = 1 << 30

# One INSERT for any number of servers: what differs comes as arrays, what is common as parameters.
_new = (
    sa.func.unnest(
        texts_param("ids"),
        texts_param("names"),
        texts_param("hostnames"),
        sa.bindparam("indexes", type_=sa.ARRAY(sa.Integer)),
    )
    .table_valued("id", "name", "hostname", "launch_index")
    .render_derived(name="wanted")
)
_COMMON: dict[str, Any] = {
    **dict.fromkeys(
        (
            "project_id", "user_id", "description", "reservation_id", "image_id", "key_name", "key_type", "key_data",
            "user_data", "access_ip_v4", "access_ip_v6", "disk_config", "pinned_zone", "requested_host",
            "server_group_id", "vm_state", "task_state",
        ),
        sa.Text(),
    ),
    **dict.fromkeys(("vcpus", "memory_mb", "disk_gb"), sa.Integer()),
    **dict.fromkeys(
        ("flavor", "image", "metadata", "trusted_image_certificates", "scheduler_hints", "requested_networks", "security_groups"),
        Json(),
    ),
    "tags": sa.ARRAY(sa.Text),
    "config_drive": sa.Boolean(),
}  # fmt: skip
_made = (
    sa.insert(servers)
    .from_select(
        ["id", "name", "hostname", "launch_index", *_COMMON],
        sa.select(
            _new.c.id,
            _new.c.name,
            _new.c.hostname,
            _new.c.launch_index,
            *(sa.cast(sa.bindparam(name, type_=kind), kind) for name, kind in _COMMON.items()),
        ),
    )
    .returning(servers)
    .cte("made")
)
_recorded = (
    sa.insert(instance_actions)
    .from_select(
        ["server_id", "action", "request_id", "user_id", "project_id", "updated_at"],
        sa.select(
            _made.c.id,
            sa.literal_column("'create'"),
            text_param("request_id"),
            text_param("user_id"),
            text_param("project_id"),
            sa.func.now(),
        ),
    )
    .cte("recorded")
)
_INSERT = Statement(sa.select(_made).order_by(_made.c.launch_index).add_cte(_recorded), row=Server)


async def get(tx: Tx, context: RequestContext, server_id: str, *, deleted: bool = False) -> Server:
    """A server of the caller's project (any for an administrator); raises ServerNotFound."""
    statement = _GET_ALSO_DELETED if deleted else _GET
    found = await statement.first(tx, id=server_id, any=context.is_admin, project_id=context.project_id)
    if found is None:
        raise ServerNotFound(f"Instance {server_id} could not be found.")
    return found


async def create(
    tx: Tx, app: ComputeService, context: RequestContext, request: CreateRequest, image: Image
) -> list[Server]:
    """Make the rows of ``min_count`` to ``max_count`` servers and submit their boots.

    ``image`` is what the image service says of ``request.image_id``: it is asked before the transaction. Raises
    BadRequest of several kinds, QuotaExceeded, Conflict (networks); nothing is left then.
    """
    assert context.project_id is not None
    assert context.user_id is not None
    flavor = await _flavor(tx, context, request.flavor_id)
    _check_image(image, flavor)
    key = await _keypair(tx, context, request.key_name)
    group_id = await _group(tx, context, request.hints)
    await _check_zone(tx, app, request)
    limits = await quotas.limits(tx, app.limits, context.project_id)
    _check_metadata(request.metadata, limits)
    nics = await networking.resolve(tx, app.networks, context.project_id, request)
    count = await _count(tx, context.project_id, request, flavor, limits)
    rows = await _INSERT.all(
        tx, **_names(request, count), **_common(context, request, flavor, image, key, group_id, nics)
    )
    for server in rows:
        await app.lifecycle.submit_boot(tx, server, context=context)
    await quotas.claim(
        tx,
        context.project_id,
        limits,
        instances=count,
        cores=count * flavor.vcpus,
        ram=count * flavor.memory_mb,
    )
    return rows


async def _flavor(tx: Tx, context: RequestContext, flavor_id: str) -> Flavor:
    try:
        return await flavors.get(tx, flavor_id, project_id=context.project_id, any_project=context.is_admin)
    except FlavorNotFound as error:
        raise InvalidField(error.message, field="server.flavorRef") from error


def _check_image(image: Image, flavor: Flavor) -> None:
    if image.status != "active":
        raise ImageNotUsable(f"Image {image.id} is not active.", field="server.imageRef")
    if flavor.memory_mb < image.min_ram:
        raise ImageNotUsable("Flavor's memory is too small for requested image.", field="server.flavorRef")
    if flavor.root_gb and image.size is not None and image.size > flavor.root_gb * _GIB:
        raise ImageNotUsable(
            f"Flavor's disk is too small for requested image. Flavor disk is {flavor.root_gb * _GIB} bytes, "
            f"image is {image.size} bytes.",
            field="server.flavorRef",
        )
    if flavor.root_gb and flavor.root_gb < image.min_disk:
        raise ImageNotUsable(
            "Flavor's disk is smaller than the minimum size specified in image metadata.",
            field="server.flavorRef",
        )


async def _keypair(tx: Tx, context: RequestContext, name: str | None) -> Keypair | None:
    if name is None:
        return None
    try:
        return await keypairs.get(tx, context.user_id or "", name)
    except KeypairNotFound as error:
        raise InvalidField("Invalid key_name provided.", field="server.key_name") from error


async def _group(tx: Tx, context: RequestContext, hints: Mapping[str, Any]) -> str | None:
    group_id = hints.get("group")
    if group_id is None:
        return None
    try:
        group = await groups.get(tx, group_id, project_id=context.project_id, any_project=False)
    except ServerGroupNotFound as error:
        raise InvalidField(error.message, field="os:scheduler_hints.group") from error
    return group.id


async def _check_zone(tx: Tx, app: ComputeService, request: CreateRequest) -> None:
    zone, host = request.availability_zone, request.host
    if zone is not None and zone != app.default_zone and zone not in (await aggregates.zones(tx)).values():
        raise UnknownZone(
            "The requested availability zone is not available", field="server.availability_zone"
        )
    if host is not None:
        try:
            await app.registry.host(tx, host)
        except NotFound as error:
            raise InvalidField(f"Compute host {host} could not be found.", field="server.host") from error


def _check_metadata(metadata: Mapping[str, str], limits: Mapping[str, int]) -> None:
    if 0 <= limits["metadata_items"] < len(metadata):
        raise QuotaExceeded(
            f"Maximum number of metadata items exceeds {limits['metadata_items']}",
            resources=["metadata_items"],
        )


async def _count(
    tx: Tx, project_id: str, request: CreateRequest, flavor: Flavor, limits: Mapping[str, int]
) -> int:
    """As many as fit between min_count and max_count; the claim decides in the end."""
    if request.min_count == request.max_count:
        return request.max_count
    used = await quotas.usage(tx, project_id)
    room = [
        (limits[name] - have) // each
        for name, have, each in (
            ("instances", used.instances, 1),
            ("cores", used.cores, flavor.vcpus),
            ("ram", used.ram, flavor.memory_mb),
        )
        if limits[name] >= 0
    ]
    return max(request.min_count, min([request.max_count, *room]))


def _names(request: CreateRequest, count: int) -> dict[str, list[Any]]:
    several = request.max_count > 1
    names = [f"{request.name}-{i + 1}" if several else request.name for i in range(count)]
    ids = [new_id() for _ in range(count)]
    if request.hostname is not None:
        hostnames = [request.hostname] * count
    else:
        hostnames = [hostname_of(name) or f"server-{sid}" for name, sid in zip(names, ids, strict=True)]
    return {"ids": ids, "names": names, "hostnames": hostnames, "indexes": list(range(count))}


def _common(
    context: RequestContext,
    request: CreateRequest,
    flavor: Flavor,
    image: Image,
    key: Keypair | None,
    group_id: str | None,
    nics: Sequence[NicRequest],
) -> dict[str, Any]:
    return {
        "request_id": context.request_id,
        "project_id": context.project_id,
        "user_id": context.user_id,
        "description": request.description,
        "reservation_id": f"r-{new_id()[:8]}",
        "image_id": image.id,
        "image": image.snapshot(),
        "key_name": key.name if key else None,
        "key_type": key.type if key else None,
        "key_data": key.public_key if key else None,
        "user_data": request.user_data,
        "access_ip_v4": request.access_ip_v4,
        "access_ip_v6": request.access_ip_v6,
        "disk_config": request.disk_config or "MANUAL",
        "pinned_zone": request.availability_zone,
        "requested_host": request.host,
        "server_group_id": group_id,
        "vm_state": Vm.BUILDING,
        "task_state": Task.SCHEDULING,
        "vcpus": flavor.vcpus,
        "memory_mb": flavor.memory_mb,
        "disk_gb": flavor.root_gb + flavor.ephemeral_gb + (flavor.swap_mb + 1023) // 1024,
        "flavor": flavor.snapshot(),
        "metadata": dict(request.metadata),
        "trusted_image_certificates": request.trusted_image_certificates,
        "scheduler_hints": dict(request.hints),
        "requested_networks": [
            {"network_id": n.network_id, "port_id": n.port_id, "fixed_ip": n.fixed_ip, "tag": n.tag}
            for n in nics
        ],
        "security_groups": list(request.security_groups) or ["default"],
        "tags": list(request.tags),
        "config_drive": request.config_drive,
    }


def hostname_of(name: str) -> str:
    """A host name made from a server's name: lower case, what DNS does not take left out; may be empty."""
    text = re.sub(r"[ _.]", "-", name.strip()).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9-]+", "", text).strip("-")[:63].rstrip("-")


async def delete(tx: Tx, app: ComputeService, context: RequestContext, server_id: str) -> None:
    """Begin the end of a server; a second request while it ends changes nothing. Raises ServerNotFound, ServerLocked."""
    server = await get(tx, context, server_id)
    server_state.check_lock(server, by_admin=context.is_admin)
    begun = await server_state.begin_delete(tx, server)
    if begun is not None:
        await actions.start(tx, server.id, context, "delete")
        await app.lifecycle.submit_delete(tx, begun, context=context)
