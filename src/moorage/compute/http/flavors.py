"""/flavors, their extra specs and access lists."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import UNSET, UnsetType, field

from moorage.api.endpoint import names, since
from moorage.api.fields import only
from moorage.api.paging import next_link
from moorage.compute import flavors
from moorage.compute.errors import FlavorNotFound, InvalidField
from moorage.compute.http import values
from moorage.compute.http.values import Body, ComputeCall, Flag, Number
from moorage.compute.model import Flavor
from moorage.core.errors import Conflict, NotFound
from moorage.core.ids import new_id

_ID = re.compile(r"(?! )[a-zA-Z0-9. _-]{1,255}(?<! )\Z")
QUERY = names("limit", "marker", "is_public", "minRam", "minDisk", "sort_key", "sort_dir", strict="2.75")
_SPECS = "os_compute_api:os-flavor-extra-specs:index"


class NewFlavor(Body, frozen=True):
    name: str
    ram: Number
    vcpus: Number
    disk: Number
    id: str | int | float | UnsetType | None = UNSET
    ephemeral: Number | UnsetType = field(default=UNSET, name="OS-FLV-EXT-DATA:ephemeral")
    swap: Number | UnsetType = UNSET
    rxtx_factor: float | str | UnsetType = UNSET
    is_public: Flag | UnsetType = field(default=UNSET, name="os-flavor-access:is_public")
    description: Annotated[str | UnsetType | None, only(since("2.55"))] = UNSET


class CreateFlavor(Body, frozen=True):
    flavor: NewFlavor


class Description(Body, frozen=True):
    description: str | None


class UpdateFlavor(Body, frozen=True):
    flavor: Description


class Specs(Body, frozen=True):
    extra_specs: dict[str, Any]


class Tenant(Body, frozen=True):
    tenant: str


async def index(call: ComputeCall) -> dict[str, Any]:
    """GET /flavors."""
    return await _list(call, "/flavors", whole=False)


async def details(call: ComputeCall) -> dict[str, Any]:
    """GET /flavors/detail."""
    return await _list(call, "/flavors/detail", whole=True)


async def _list(call: ComputeCall, path: str, *, whole: bool) -> dict[str, Any]:
    limit = values.page_limit(call)
    async with call.app.database.read() as tx:
        found = await flavors.list_(
            tx,
            project_id=call.context.project_id,
            is_public=_public(call),
            any_project=call.context.is_admin,
            min_ram=_least(call, "minRam"),
            min_disk=_least(call, "minDisk"),
            sort_key=_sort_key(call),
            descending=_descending(call),
            limit=limit,
            marker=values.last(call, "marker"),
        )
    answer: dict[str, Any] = {"flavors": [_view(call, f) if whole else _brief(call, f) for f in found]}
    if found and len(found) == limit:
        answer["flavors_links"] = [next_link(call.url(path), call.query, found[-1].id)]
    return answer


def _public(call: ComputeCall) -> bool | None:
    value = values.last(call, "is_public")
    if not call.context.is_admin:
        # Others see public flavors and the private ones they have access to, whatever they ask.
        return None
    if value is None:
        return True
    return None if value.lower() == "none" else values.flag(value, "is_public")


def _least(call: ComputeCall, key: str) -> int:
    value = values.last(call, key)
    return 0 if value is None else values.number(value, key, -values.MAX_INT)


def _sort_key(call: ComputeCall) -> str:
    key = values.last(call, "sort_key") or "flavorid"
    if key not in flavors.SORT_KEYS:
        raise InvalidField(f"Invalid input for query parameter sort_key: {key[:64]}", field="sort_key")
    return key


def _descending(call: ComputeCall) -> bool:
    direction = values.last(call, "sort_dir") or "asc"
    if direction not in ("asc", "desc"):
        raise InvalidField("sort_dir is asc or desc.", field="sort_dir")
    return direction == "desc"


async def show(call: ComputeCall) -> dict[str, Any]:
    """GET /flavors/{flavor_id}."""
    return {"flavor": _view(call, await _flavor(call))}


async def _flavor(call: ComputeCall) -> Flavor:
    async with call.app.database.read() as tx:
        return await flavors.get(
            tx, call.path["flavor_id"], project_id=call.context.project_id, any_project=call.context.is_admin
        )


async def create(call: ComputeCall) -> dict[str, Any]:
    """POST /flavors; a private one is nobody's until access is given, as upstream's is."""
    columns = _columns(call.body.flavor)
    async with call.app.database.transaction() as tx:
        made = await flavors.create(tx, **columns)
    return {"flavor": _view(call, made)}


def _columns(given: NewFlavor) -> dict[str, Any]:
    flavor_id = given.id
    if flavor_id in (UNSET, None, "", "auto"):
        flavor_id = new_id()
    flavor_id = str(flavor_id)
    if not _ID.match(flavor_id):
        raise InvalidField("Invalid input for flavor.id.", field="flavor.id")
    return {
        "id": flavor_id,
        "name": values.name(given.name, "flavor.name"),
        "memory_mb": values.number(given.ram, "flavor.ram", 1),
        "vcpus": values.number(given.vcpus, "flavor.vcpus", 1),
        "root_gb": values.number(given.disk, "flavor.disk"),
        "ephemeral_gb": values.number(values.given(given.ephemeral, 0), "flavor.OS-FLV-EXT-DATA:ephemeral"),
        "swap_mb": values.number(values.given(given.swap, 0), "flavor.swap"),
        "rxtx_factor": _factor(given.rxtx_factor),
        "is_public": values.flag(values.given(given.is_public, True), "flavor.os-flavor-access:is_public"),
        "description": values.description(values.given(given.description), "flavor.description", 65535),
        "extra_specs": {},
    }


def _factor(value: float | str | UnsetType) -> float:
    if value is UNSET:
        return 1.0
    try:
        found = float(value)
    except ValueError as error:
        raise InvalidField("flavor.rxtx_factor is a number.", field="flavor.rxtx_factor") from error
    if not 0 < found <= 3.40282e38:
        raise InvalidField("flavor.rxtx_factor is greater than 0.", field="flavor.rxtx_factor")
    return found


async def update(call: ComputeCall) -> dict[str, Any]:
    """PUT /flavors/{flavor_id}: the description, from 2.55 on."""
    text = values.description(call.body.flavor.description, "flavor.description", 65535)
    async with call.app.database.transaction() as tx:
        return {"flavor": _view(call, await flavors.describe(tx, call.path["flavor_id"], text))}


async def delete(call: ComputeCall) -> None:
    """DELETE /flavors/{flavor_id}."""
    async with call.app.database.transaction() as tx:
        await flavors.delete(tx, call.path["flavor_id"])


def _brief(call: ComputeCall, flavor: Flavor) -> dict[str, Any]:
    view = {"id": flavor.id, "name": flavor.name, "links": values.links(call, f"/flavors/{flavor.id}")}
    return {**view, "description": flavor.description} if call.version >= (2, 55) else view


def _view(call: ComputeCall, flavor: Flavor) -> dict[str, Any]:
    view: dict[str, Any] = {
        **_brief(call, flavor),
        "ram": flavor.memory_mb,
        "disk": flavor.root_gb,
        "vcpus": flavor.vcpus,
        "swap": flavor.swap_mb if flavor.swap_mb or call.version >= (2, 75) else "",
        "rxtx_factor": flavor.rxtx_factor,
        "os-flavor-access:is_public": flavor.is_public,
        "OS-FLV-EXT-DATA:ephemeral": flavor.ephemeral_gb,
        "OS-FLV-DISABLED:disabled": False,
    }
    if call.version >= (2, 61) and call.allowed(_SPECS):
        view["extra_specs"] = flavor.extra_specs
    return view


# --- extra specs ----------------------------------------------------------------------------------------------------


async def specs(call: ComputeCall) -> dict[str, Any]:
    """GET …/os-extra_specs."""
    return {"extra_specs": (await _flavor(call)).extra_specs}


async def spec(call: ComputeCall) -> dict[str, Any]:
    """GET …/os-extra_specs/{key}."""
    found, key = (await _flavor(call)).extra_specs, call.path["key"]
    if key not in found:
        raise NotFound(f"Flavor {call.path['flavor_id']} has no extra specs with key {key}.")
    return {key: found[key]}


async def add_specs(call: ComputeCall) -> dict[str, Any]:
    """POST …/os-extra_specs."""
    items = _specs_of(call.body.extra_specs)
    async with call.app.database.transaction() as tx:
        await flavors.add_specs(tx, call.path["flavor_id"], items)
    return {"extra_specs": items}


async def set_spec(call: ComputeCall) -> dict[str, Any]:
    """PUT …/os-extra_specs/{key}."""
    items, key = _specs_of(call.body), call.path["key"]
    if list(items) != [key]:
        raise InvalidField("Request body and URI mismatch: exactly the key of the path is needed.", field=key)
    async with call.app.database.transaction() as tx:
        await flavors.add_specs(tx, call.path["flavor_id"], items)
    return items


async def delete_spec(call: ComputeCall) -> None:
    """DELETE …/os-extra_specs/{key}."""
    async with call.app.database.transaction() as tx:
        await flavors.drop_spec(tx, call.path["flavor_id"], call.path["key"])


def _specs_of(given: Mapping[str, Any]) -> dict[str, str]:
    plain = {
        k: str(v) if isinstance(v, int | float) and not isinstance(v, bool) else v for k, v in given.items()
    }
    return values.metadata(plain, "extra_specs")


# --- access ---------------------------------------------------------------------------------------------------------


async def access(call: ComputeCall) -> dict[str, Any]:
    """GET …/os-flavor-access: of a private flavor."""
    flavor = await _flavor(call)
    if flavor.is_public:
        raise FlavorNotFound("Access list not available for public flavors.")
    async with call.app.database.read() as tx:
        return _access_view(flavor.id, await flavors.access(tx, flavor.id))


async def grant(call: ComputeCall) -> dict[str, Any]:
    """AddTenantAccess."""
    flavor, tenant = await _flavor(call), call.body.tenant
    _check_private(call, flavor, tenant)
    async with call.app.database.transaction() as tx:
        await flavors.grant(tx, flavor.id, tenant)
        return _access_view(flavor.id, await flavors.access(tx, flavor.id))


async def revoke(call: ComputeCall) -> dict[str, Any]:
    """RemoveTenantAccess."""
    flavor, tenant = await _flavor(call), call.body.tenant
    async with call.app.database.transaction() as tx:
        await flavors.revoke(tx, flavor.id, tenant)
        return _access_view(flavor.id, await flavors.access(tx, flavor.id))


def _check_private(call: ComputeCall, flavor: Flavor, tenant: str) -> None:
    values.name(tenant, "addTenantAccess.tenant")
    if flavor.is_public and call.version >= (2, 7):
        raise Conflict("Can not add access to a public flavor.", code="compute.flavor_is_public")


def _access_view(flavor_id: str, projects: list[str]) -> dict[str, Any]:
    return {"flavor_access": [{"flavor_id": flavor_id, "tenant_id": p} for p in projects]}
