"""/limits, /os-quota-sets and /os-quota-class-sets."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import UNSET, UnsetType

from moorage.api.endpoint import until
from moorage.api.fields import only
from moorage.api.versions import Version
from moorage.compute import quotas
from moorage.compute.errors import InvalidField
from moorage.compute.http import values
from moorage.compute.http.values import Body, ComputeCall, Flag, Number

_LIMITS = {
    "maxTotalInstances": "instances",
    "maxTotalCores": "cores",
    "maxTotalRAMSize": "ram",
    "maxServerMeta": "metadata_items",
    "maxTotalKeypairs": "key_pairs",
    "maxServerGroups": "server_groups",
    "maxServerGroupMembers": "server_group_members",
}
# Resources that other services count now, or that servers here do not have; shown where a version wants them.
_FILES = {"injected_files": 0, "injected_file_content_bytes": 0, "injected_file_path_bytes": 0}
_NETWORK = {"fixed_ips": -1, "floating_ips": -1, "security_groups": -1, "security_group_rules": -1}
_GROUPS = ("server_groups", "server_group_members")


class Limits(Body, frozen=True):
    instances: Number | UnsetType = UNSET
    cores: Number | UnsetType = UNSET
    ram: Number | UnsetType = UNSET
    metadata_items: Number | UnsetType = UNSET
    key_pairs: Number | UnsetType = UNSET
    server_groups: Number | UnsetType = UNSET
    server_group_members: Number | UnsetType = UNSET
    injected_files: Annotated[Number | UnsetType, only(until("2.56"))] = UNSET
    injected_file_content_bytes: Annotated[Number | UnsetType, only(until("2.56"))] = UNSET
    injected_file_path_bytes: Annotated[Number | UnsetType, only(until("2.56"))] = UNSET


class ProjectLimits(Limits, frozen=True):
    fixed_ips: Annotated[Number | UnsetType, only(until("2.35"))] = UNSET
    floating_ips: Annotated[Number | UnsetType, only(until("2.35"))] = UNSET
    security_groups: Annotated[Number | UnsetType, only(until("2.35"))] = UNSET
    security_group_rules: Annotated[Number | UnsetType, only(until("2.35"))] = UNSET
    force: Flag | UnsetType = UNSET


class ClassLimits(Limits, frozen=True):
    fixed_ips: Annotated[Number | UnsetType, only(until("2.49"))] = UNSET
    floating_ips: Annotated[Number | UnsetType, only(until("2.49"))] = UNSET
    security_groups: Annotated[Number | UnsetType, only(until("2.49"))] = UNSET
    security_group_rules: Annotated[Number | UnsetType, only(until("2.49"))] = UNSET


class QuotaSet(Body, frozen=True):
    quota_set: ProjectLimits


class QuotaClass(Body, frozen=True):
    quota_class_set: ClassLimits


async def limits(call: ComputeCall) -> dict[str, Any]:
    """GET /limits."""
    project = values.last(call, "tenant_id") or call.context.project_id or ""
    if project != call.context.project_id:
        await call.authorize("os_compute_api:limits:other_project", {"project_id": project})
    async with call.app.database.read() as tx:
        most = await quotas.limits(tx, call.app.limits, project)
        used = await quotas.usage(tx, project)
    absolute = {
        **{name: most[resource] for name, resource in _LIMITS.items()},
        "totalInstancesUsed": used.instances,
        "totalCoresUsed": used.cores,
        "totalRAMUsed": used.ram,
        "totalServerGroupsUsed": used.server_groups,
        **_older_limits(call.version),
    }
    return {"limits": {"rate": [], "absolute": absolute}}


def _older_limits(version: Version) -> dict[str, int]:
    older: dict[str, int] = {}
    if version < (2, 57):
        older |= {"maxPersonality": 0, "maxPersonalitySize": 0}
    if version < (2, 39):
        older |= {"maxImageMeta": 128}
    if version < (2, 36):
        older |= {
            "maxTotalFloatingIps": -1,
            "maxSecurityGroups": -1,
            "maxSecurityGroupRules": -1,
            "totalFloatingIpsUsed": 0,
            "totalSecurityGroupsUsed": 0,
        }
    return older


def _resources(
    version: Version, most: Mapping[str, int], *, network_until: Version = (2, 36)
) -> dict[str, int]:
    found = dict(most)
    if version < (2, 57):
        found |= _FILES
    if version < network_until:
        found |= _NETWORK
    return found


async def show(call: ComputeCall) -> dict[str, Any]:
    """GET /os-quota-sets/{project_id}."""
    project = await _project(call, "show")
    async with call.app.database.read() as tx:
        most = await quotas.limits(tx, call.app.limits, project)
    return {"quota_set": {"id": project, **_resources(call.version, most)}}


async def _project(call: ComputeCall, verb: str) -> str:
    project = call.path["project_id"]
    await call.authorize(f"os_compute_api:os-quota-sets:{verb}", {"project_id": project})
    return project


async def detail(call: ComputeCall) -> dict[str, Any]:
    """GET /os-quota-sets/{project_id}/detail: with what is used."""
    project = await _project(call, "detail")
    async with call.app.database.read() as tx:
        most = await quotas.limits(tx, call.app.limits, project)
        used = await quotas.usage(tx, project)
    in_use = {n: getattr(used, n) for n in ("instances", "cores", "ram", "server_groups")}
    found = {
        name: {"limit": limit, "in_use": in_use.get(name, 0), "reserved": 0}
        for name, limit in _resources(call.version, most).items()
    }
    return {"quota_set": {"id": project, **found}}


async def defaults(call: ComputeCall) -> dict[str, Any]:
    """GET /os-quota-sets/{project_id}/defaults: what holds for projects without their own."""
    async with call.app.database.read() as tx:
        most = await quotas.limits(tx, call.app.limits, None)
    return {"quota_set": {"id": call.path["project_id"], **_resources(call.version, most)}}


async def update(call: ComputeCall) -> dict[str, Any]:
    """PUT /os-quota-sets/{project_id}: a limit below what is used needs force."""
    project = call.path["project_id"]
    wanted = _wanted(call, call.body.quota_set, "quota_set")
    force = values.flag(values.given(call.body.quota_set.force, False), "quota_set.force")
    async with call.app.database.transaction() as tx:
        if not force:
            _check_used(wanted, await quotas.usage(tx, project))
        await quotas.set_limits(tx, project, wanted)
        most = await quotas.limits(tx, call.app.limits, project)
    return {"quota_set": _resources(call.version, most)}


def _wanted(call: ComputeCall, given: Limits, where: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in given.__struct_fields__:
        value = getattr(given, name)
        if value is UNSET or name == "force":
            continue
        amount = values.number(value, f"{where}.{name}", -1)
        if name in call.app.limits:
            found[name] = amount
    return found


def _check_used(wanted: Mapping[str, int], used: quotas.Usage) -> None:
    for name, limit in wanted.items():
        have = getattr(used, name, 0)
        if 0 <= limit < have:
            raise InvalidField(
                f"Quota limit {limit} for {name} must be greater than or equal to already used and reserved {have}; "
                "force sets it all the same.",
                field=f"quota_set.{name}",
            )


async def delete(call: ComputeCall) -> None:
    """DELETE /os-quota-sets/{project_id}."""
    async with call.app.database.transaction() as tx:
        await quotas.reset(tx, call.path["project_id"])


async def show_class(call: ComputeCall) -> dict[str, Any]:
    """GET /os-quota-class-sets/{class_id}: "default" is the one there is."""
    async with call.app.database.read() as tx:
        most = await quotas.limits(tx, call.app.limits, None)
    return {"quota_class_set": {"id": call.path["class_id"], **_class(call.version, most)}}


async def update_class(call: ComputeCall) -> dict[str, Any]:
    """PUT /os-quota-class-sets/{class_id}: what holds for projects without their own limits."""
    wanted = _wanted(call, call.body.quota_class_set, "quota_class_set")
    if call.path["class_id"] != "default":
        raise InvalidField("There is one quota class: default.", field="class_id")
    async with call.app.database.transaction() as tx:
        await quotas.set_limits(tx, None, wanted)
        most = await quotas.limits(tx, call.app.limits, None)
    return {"quota_class_set": _class(call.version, most)}


def _class(version: Version, most: Mapping[str, int]) -> dict[str, int]:
    found = _resources(version, most, network_until=(2, 50))
    return found if version >= (2, 50) else {k: v for k, v in found.items() if k not in _GROUPS}
