"""/os-hypervisors, /os-services and /os-availability-zone: three views of the compute hosts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from moorage.api.endpoint import names, since
from moorage.api.fields import only
from moorage.api.paging import next_link
from moorage.compute import hosts
from moorage.compute.errors import HostNotFound, InvalidField
from moorage.compute.hosts import HostedServer
from moorage.compute.http import values
from moorage.compute.http.values import Body, ComputeCall, Flag
from moorage.compute.model import HostView
from moorage.core.errors import BadRequest
from moorage.core.ids import is_uuid

QUERY = names("with_servers", strict="2.53")
PAGES = names("limit", "marker", "hypervisor_hostname_pattern", "with_servers", strict="2.53")
_BINARY = "nova-compute"
_TYPES = {"qemu": "QEMU", "simulated": "fake"}


class ServiceChange(Body, frozen=True):
    """PUT /os-services/{id}, from 2.53 on."""

    status: Literal["enabled", "disabled"] | UnsetType = UNSET
    disabled_reason: str | UnsetType = UNSET
    forced_down: Flag | UnsetType = UNSET


class OlderServiceChange(Body, frozen=True):
    """PUT /os-services/enable and the like, before 2.53."""

    host: str
    binary: str
    disabled_reason: str | UnsetType = UNSET
    forced_down: Annotated[Flag | UnsetType, only(since("2.11"))] = UNSET


async def _hosts(call: ComputeCall) -> list[HostView]:
    async with call.app.database.transaction() as tx:
        return await hosts.list_(
            tx, call.app.registry, down_time=call.app.service_down_time, default_zone=call.app.default_zone
        )


# --- hypervisors ----------------------------------------------------------------------------------------------------


async def hypervisors(call: ComputeCall) -> dict[str, Any]:
    """GET /os-hypervisors."""
    return await _hypervisors(call, "/os-hypervisors", whole=False)


async def hypervisor_details(call: ComputeCall) -> dict[str, Any]:
    """GET /os-hypervisors/detail."""
    return await _hypervisors(call, "/os-hypervisors/detail", whole=True)


async def _hypervisors(call: ComputeCall, path: str, *, whole: bool) -> dict[str, Any]:
    found = [h for h in await _hosts(call) if h.facts]
    with_servers = False
    if call.version >= (2, 53):
        found = _matching(call, found)
        with_servers = values.flag(values.last(call, "with_servers") or "false", "with_servers")
    page = _page(call, found) if call.version >= (2, 33) else found
    servers = await _servers_on(call, page) if with_servers else {}
    view = _whole if whole else _brief
    answer: dict[str, Any] = {"hypervisors": [{**view(call, h), **_servers(servers, h)} for h in page]}
    if call.version >= (2, 33) and "limit" in call.query and len(found) > len(page) and page:
        last = str(_id(call, page[-1]))
        answer["hypervisors_links"] = [next_link(call.url(path), call.query, last)]
    return answer


def _matching(call: ComputeCall, found: list[HostView]) -> list[HostView]:
    pattern = values.last(call, "hypervisor_hostname_pattern")
    if pattern is None:
        return found
    if "limit" in call.query or "marker" in call.query:
        raise BadRequest("Paging over hypervisors with the hypervisor_hostname_pattern is not supported.")
    if not values.HOST_NAME.match(pattern):
        raise InvalidField(
            "hypervisor_hostname_pattern is a part of a host name.", field="hypervisor_hostname_pattern"
        )
    matching = [h for h in found if pattern in h.name]
    if not matching:
        raise HostNotFound(f"No hypervisor matching '{pattern}' could be found.")
    return matching


def _page(call: ComputeCall, found: list[HostView]) -> list[HostView]:
    marker, limit = values.last(call, "marker"), values.page_limit(call)
    if marker is not None:
        places = [i for i, h in enumerate(found) if str(_id(call, h)) == marker]
        if not places:
            raise BadRequest(f"Marker {marker} could not be found", field="marker")
        found = found[places[0] + 1 :]
    return found[:limit]


async def _servers_on(call: ComputeCall, found: Sequence[HostView]) -> Mapping[str, list[HostedServer]]:
    async with call.app.database.read() as tx:
        return await hosts.servers_on(tx, [h.name for h in found])


def _servers(servers: Mapping[str, list[HostedServer]], host: HostView) -> dict[str, Any]:
    found = servers.get(host.name)
    return {"servers": [{"uuid": s.id, "name": s.name} for s in found]} if found else {}


async def hypervisor(call: ComputeCall) -> dict[str, Any]:
    """GET /os-hypervisors/{hypervisor_id}."""
    host = _find(call, await _hosts(call), call.path["hypervisor_id"])
    with_servers = call.version >= (2, 53) and values.flag(
        values.last(call, "with_servers") or "false", "with_servers"
    )
    servers = await _servers_on(call, [host]) if with_servers else {}
    return {"hypervisor": {**_whole(call, host), **_servers(servers, host)}}


def _find(call: ComputeCall, found: list[HostView], key: str) -> HostView:
    for host in found:
        if host.facts and str(_id(call, host)) == key:
            return host
    _check_id(call, key, "hypervisor_id")
    raise HostNotFound(f"Compute host {key} could not be found.")


def _check_id(call: ComputeCall, key: str, field: str) -> None:
    """From 2.53 on ids are UUIDs, and others refused; before, whatever is no number is not found."""
    if call.version >= (2, 53) and not is_uuid(key):
        raise BadRequest(f"Invalid uuid {key[:64]}", field=field)


async def uptime(call: ComputeCall) -> dict[str, Any]:
    """GET /os-hypervisors/{hypervisor_id}/uptime, until 2.87. Hosts do not report it: the text is empty."""
    host = _find(call, await _hosts(call), call.path["hypervisor_id"])
    return {"hypervisor": {**_brief(call, host), "uptime": ""}}


async def search(call: ComputeCall) -> dict[str, Any]:
    """GET /os-hypervisors/{pattern}/search, until 2.52."""
    found = _by_pattern(await _hosts(call), call.path["hypervisor_id"])
    return {"hypervisors": [_brief(call, h) for h in found]}


async def servers_of(call: ComputeCall) -> dict[str, Any]:
    """GET /os-hypervisors/{pattern}/servers, until 2.52."""
    found = _by_pattern(await _hosts(call), call.path["hypervisor_id"])
    servers = await _servers_on(call, found)
    return {"hypervisors": [{**_brief(call, h), **_servers(servers, h)} for h in found]}


def _by_pattern(found: list[HostView], pattern: str) -> list[HostView]:
    matching = [h for h in found if h.facts and pattern in h.name]
    if not matching:
        raise HostNotFound(f"No hypervisor matching '{pattern}' could be found.")
    return matching


async def statistics(call: ComputeCall) -> dict[str, Any]:
    """GET /os-hypervisors/statistics, until 2.87: sums over enabled hosts."""
    total: Counter[str] = Counter(dict.fromkeys((*_SIZES, "current_workload", "running_vms", "count"), 0))
    for host in await _hosts(call):
        if host.facts and not host.disabled:
            total.update({**_sizes(host), "count": 1})
    return {"hypervisor_statistics": {**total, "disk_available_least": total["free_disk_gb"]}}


_SIZES = (
    "vcpus", "vcpus_used", "memory_mb", "memory_mb_used", "free_ram_mb", "local_gb", "local_gb_used", "free_disk_gb",
)  # fmt: skip


def _sizes(host: HostView) -> dict[str, int]:
    facts = host.facts
    return {
        "vcpus": facts["vcpus"],
        "vcpus_used": host.vcpus_used,
        "memory_mb": facts["memory_mb"],
        "memory_mb_used": host.memory_mb_used,
        "free_ram_mb": facts["memory_mb"] - host.memory_mb_used,
        "local_gb": facts["disk_gb"],
        "local_gb_used": host.disk_gb_used,
        "free_disk_gb": facts["disk_gb"] - host.disk_gb_used,
        "current_workload": host.building,
        "running_vms": host.servers,
    }


def _id(call: ComputeCall, host: HostView) -> str | int:
    return host.id if call.version >= (2, 53) else host.number


def _brief(call: ComputeCall, host: HostView) -> dict[str, Any]:
    return {
        "id": _id(call, host),
        "hypervisor_hostname": host.name,
        "state": "up" if host.up else "down",
        "status": "disabled" if host.disabled else "enabled",
    }


def _whole(call: ComputeCall, host: HostView) -> dict[str, Any]:
    facts = host.facts
    kind = str(facts.get("hypervisor_type"))
    view: dict[str, Any] = {
        **_brief(call, host),
        "hypervisor_type": _TYPES.get(kind, kind),
        "hypervisor_version": facts.get("hypervisor_version", 0),
        "host_ip": facts.get("host_ip"),
        "service": {"id": _id(call, host), "host": host.name, "disabled_reason": host.disabled_reason},
    }
    if call.version >= (2, 88):
        return {**view, "uptime": None}
    cpu = facts.get("cpu_info") or {}
    return {
        **view,
        **_sizes(host),
        "disk_available_least": facts["disk_gb"] - host.disk_gb_used,
        "cpu_info": cpu if call.version >= (2, 28) else msgspec.json.encode(cpu).decode(),
    }


# --- services -------------------------------------------------------------------------------------------------------


async def services(call: ComputeCall) -> dict[str, Any]:
    """GET /os-services: one for each compute host."""
    name, binary = values.last(call, "host"), values.last(call, "binary")
    found = [h for h in await _hosts(call) if name in (None, h.name) and binary in (None, _BINARY)]
    return {"services": [_service(call, h) for h in found]}


def _service(call: ComputeCall, host: HostView) -> dict[str, Any]:
    view: dict[str, Any] = {
        "id": _id(call, host),
        "binary": _BINARY,
        "host": host.name,
        "zone": host.zone,
        "status": "disabled" if host.disabled else "enabled",
        "state": "up" if host.up else "down",
        "updated_at": values.time_without_zone(host.last_seen),
        "disabled_reason": host.disabled_reason,
    }
    return {**view, "forced_down": False} if call.version >= (2, 11) else view


async def update_service(call: ComputeCall) -> dict[str, Any]:
    """PUT /os-services/{service_id}, from 2.53 on."""
    given: ServiceChange = call.body
    disabled = _asked_state(given)
    found = [h for h in await _hosts(call) if h.id == call.path["service_id"]]
    if not found:
        _check_id(call, call.path["service_id"], "service_id")
        raise HostNotFound(f"Service {call.path['service_id']} could not be found.")
    await _disable(call, found[0].name, disabled=disabled, reason=values.given(given.disabled_reason))
    return {"service": _service(call, hosts.find(await _hosts(call), found[0].id))}


def _asked_state(given: ServiceChange) -> bool:
    if given.forced_down is not UNSET:
        raise InvalidField("Forcing a service down is not offered.", field="forced_down")
    if given.status is UNSET:
        raise InvalidField("status is enabled or disabled.", field="status")
    if given.status == "enabled" and given.disabled_reason is not UNSET:
        raise InvalidField("disabled_reason goes with the status disabled.", field="disabled_reason")
    _check_reason(given)
    return given.status == "disabled"


def _check_reason(given: ServiceChange | OlderServiceChange) -> None:
    reason = values.given(given.disabled_reason)
    if reason is not None and not 1 <= len(reason) <= 255:
        raise InvalidField("disabled_reason has 1 to 255 characters.", field="disabled_reason")


async def _disable(call: ComputeCall, name: str, *, disabled: bool, reason: str | None) -> None:
    async with call.app.database.transaction() as tx:
        await call.app.registry.set_disabled(tx, name, disabled=disabled, reason=reason)


async def update_service_older(call: ComputeCall) -> dict[str, Any]:
    """PUT /os-services/enable, disable and disable-log-reason, until 2.52."""
    given: OlderServiceChange = call.body
    verb = call.path["service_id"]
    if verb not in ("enable", "disable", "disable-log-reason"):
        raise HostNotFound("Unknown action")
    reason = values.given(given.disabled_reason)
    if verb == "disable-log-reason" and reason is None:
        raise InvalidField("disabled_reason is required.", field="disabled_reason")
    _check_reason(given)
    if given.binary != _BINARY:
        raise HostNotFound(f"Could not find binary {given.binary} on host {given.host}.")
    await _disable(call, given.host, disabled=verb != "enable", reason=reason if verb != "disable" else None)
    status = "enabled" if verb == "enable" else "disabled"
    view = {"host": given.host, "binary": given.binary, "status": status}
    return {"service": {**view, "disabled_reason": reason} if verb == "disable-log-reason" else view}


# --- availability zones ---------------------------------------------------------------------------------------------


async def zones(call: ComputeCall) -> dict[str, Any]:
    """GET /os-availability-zone."""
    return {"availabilityZoneInfo": _zones(call, await _hosts(call), whole=False)}


async def zone_details(call: ComputeCall) -> dict[str, Any]:
    """GET /os-availability-zone/detail: with the hosts."""
    return {"availabilityZoneInfo": _zones(call, await _hosts(call), whole=True)}


def _zones(call: ComputeCall, found: list[HostView], *, whole: bool) -> list[dict[str, Any]]:
    # A zone is available while one of its hosts is enabled.
    names = sorted({h.zone for h in found}) or [call.app.default_zone]
    return [
        {
            "zoneName": name,
            "zoneState": {"available": any(h.zone == name and not h.disabled for h in found)},
            "hosts": {h.name: _in_zone(h) for h in found if h.zone == name} if whole else None,
        }
        for name in names
    ]


def _in_zone(host: HostView) -> dict[str, Any]:
    return {
        _BINARY: {
            "available": host.up,
            "active": not host.disabled,
            "updated_at": values.time_without_zone(host.last_seen),
        }
    }
