"""Servers as the API shows them, by microversion."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from moorage.agentlink.model import Host
from moorage.api.versions import Version
from moorage.compute import states
from moorage.compute.http.values import ComputeCall, bookmark, links, time_of, time_without_zone
from moorage.compute.model import Server
from moorage.compute.placements import host_alias
from moorage.core.errors import NotFound
from moorage.network.model import Attachment
from moorage.store.database import Tx

_WITH_PROGRESS = {"ACTIVE", "BUILD", "REBUILD", "RESIZE", "VERIFY_RESIZE", "MIGRATING"}
_PREFIX = "OS-EXT-SRV-ATTR:"
EXTENDED = "os_compute_api:os-extended-server-attributes"
HOST_STATUS = "os_compute_api:servers:show:host_status"


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the views of some servers need beside their rows, by id."""

    ports: Mapping[str, list[Attachment]]
    hosts: Mapping[str, Host]
    extended: bool
    host_status: bool
    down_time: float


async def gather(tx: Tx, call: ComputeCall, servers: Sequence[Server]) -> Surroundings:
    """Read what views of these servers need: the same number of statements for one and for a thousand."""
    app = call.app
    ports = await app.networks.attachments(tx, [s.id for s in servers]) if servers else {}
    host_status = call.version >= (2, 16) and call.allowed(HOST_STATUS)
    hosts = await _hosts_of(tx, call, servers) if host_status else []
    return Surroundings(
        ports=ports,
        hosts={h.name: h for h in hosts},
        extended=call.allowed(EXTENDED),
        host_status=host_status,
        down_time=app.service_down_time,
    )


async def _hosts_of(tx: Tx, call: ComputeCall, servers: Sequence[Server]) -> list[Host]:
    """The hosts of these servers: one alone, or all of the cloud's; none for servers without."""
    names = {s.host for s in servers if s.host is not None}
    if len(names) != 1:
        return await call.app.registry.hosts(tx) if names else []
    try:
        return [await call.app.registry.host(tx, names.pop())]
    except NotFound:
        return []  # shown as UNKNOWN


def brief(call: ComputeCall, server: Server) -> dict[str, Any]:
    """The short form of lists."""
    return {"id": server.id, "name": server.name, "links": links(call, f"/servers/{server.id}")}


def addresses(ports: Sequence[Attachment], *, long: bool) -> dict[str, list[dict[str, Any]]]:
    """Addresses by the name of their network, in the order of the NICs."""
    found: dict[str, list[dict[str, Any]]] = {}
    for port in ports:
        for fixed in port.fixed_ips:
            item: dict[str, Any] = {
                "version": 6 if ":" in fixed["ip_address"] else 4,
                "addr": fixed["ip_address"],
            }
            if long:
                item["OS-EXT-IPS:type"] = "fixed"
                item["OS-EXT-IPS-MAC:mac_addr"] = port.mac_address
            found.setdefault(port.network, []).append(item)
    return found


def detail(call: ComputeCall, server: Server, around: Surroundings) -> dict[str, Any]:
    """The long form of lists."""
    return {**basic(call, server, around), **_extended(call.version, server, around)}


def shown(call: ComputeCall, server: Server, around: Surroundings) -> dict[str, Any]:
    """One server: as in lists, with its group from 2.71 on."""
    return {**detail(call, server, around), **_groups(call.version, server)}


def updated(call: ComputeCall, server: Server, around: Surroundings) -> dict[str, Any]:
    """The answer to a change: below 2.75 without what extensions once added."""
    if call.version >= (2, 75):
        return shown(call, server, around)
    short = addresses(around.ports.get(server.id, ()), long=False)
    return {**basic(call, server, around), **_groups(call.version, server), "addresses": short}


def basic(call: ComputeCall, server: Server, around: Surroundings) -> dict[str, Any]:
    """What every form of a whole server has."""
    version = call.version
    status = states.status_of(server.vm_state, server.task_state)
    view: dict[str, Any] = {
        "id": server.id,
        "name": server.name,
        "status": status,
        "tenant_id": server.project_id,
        "user_id": server.user_id,
        "metadata": server.metadata,
        "hostId": host_alias(server.project_id, server.host) if server.host else "",
        "image": {"id": server.image_id, "links": _bookmark(call, f"/images/{server.image_id}")},
        "flavor": _flavor(call, server),
        "created": time_of(server.created_at),
        "updated": time_of(server.updated_at or server.created_at),
        "addresses": addresses(around.ports.get(server.id, ()), long=True),
        "accessIPv4": server.access_ip_v4 or "",
        "accessIPv6": server.access_ip_v6 or "",
        "links": links(call, f"/servers/{server.id}"),
        "OS-DCF:diskConfig": server.disk_config,
    }
    if server.fault is not None and server.vm_state in (states.Vm.ERROR, states.Vm.DELETED):
        view["fault"] = _fault(call, server.fault)
    if status in _WITH_PROGRESS:
        view["progress"] = 100 if server.vm_state == states.Vm.ACTIVE else server.progress
    view.update(_added(version, server))
    return view


def _added(version: Version, server: Server) -> dict[str, Any]:
    added: tuple[tuple[Version, str, Any], ...] = (
        ((2, 9), "locked", server.locked),
        ((2, 19), "description", server.description),
        ((2, 26), "tags", server.tags),
        ((2, 63), "trusted_image_certificates", server.trusted_image_certificates),
        ((2, 73), "locked_reason", server.locked_reason),
        ((2, 96), "pinned_availability_zone", server.pinned_zone),
    )
    return {name: value for first, name, value in added if version >= first}


def _extended(version: Version, server: Server, around: Surroundings) -> dict[str, Any]:
    view: dict[str, Any] = {
        "key_name": server.key_name,
        "config_drive": "True" if server.config_drive else "",
        "OS-EXT-AZ:availability_zone": server.availability_zone or server.pinned_zone or "",
        "OS-EXT-STS:task_state": server.task_state,
        "OS-EXT-STS:vm_state": server.vm_state,
        "OS-EXT-STS:power_state": server.power_state,
        "OS-SRV-USG:launched_at": time_without_zone(server.launched_at),
        "OS-SRV-USG:terminated_at": time_without_zone(server.terminated_at),
        "os-extended-volumes:volumes_attached": [],
    }
    groups = _security_groups(server, around)
    if groups:
        view["security_groups"] = groups
    if around.extended:
        view.update(_attributes(version, server))
    elif version >= (2, 90):
        view[_PREFIX + "hostname"] = server.hostname
    if around.host_status:
        view["host_status"] = _host_status(server, around)
    return view


def _attributes(version: Version, server: Server) -> dict[str, Any]:
    view: dict[str, Any] = {
        "host": server.host,
        "hypervisor_hostname": server.host,
        "instance_name": f"instance-{server.number:08x}",
    }
    if version >= (2, 3):
        view |= {
            "hostname": server.hostname,
            "reservation_id": server.reservation_id,
            "launch_index": server.launch_index,
            "kernel_id": "",
            "ramdisk_id": "",
            "root_device_name": "/dev/vda",
            "user_data": server.user_data,
        }
    return {_PREFIX + name: value for name, value in view.items()}


def _groups(version: Version, server: Server) -> dict[str, Any]:
    if version < (2, 71):
        return {}
    return {"server_groups": [server.server_group_id] if server.server_group_id else []}


def _flavor(call: ComputeCall, server: Server) -> dict[str, Any]:
    flavor = server.flavor
    if call.version < (2, 47):
        return {"id": flavor["id"], "links": _bookmark(call, f"/flavors/{flavor['id']}")}
    return {
        "vcpus": flavor["vcpus"],
        "ram": flavor["ram"],
        "disk": flavor["disk"],
        "ephemeral": flavor["ephemeral"],
        "swap": flavor["swap"],
        "original_name": flavor["name"],
        "extra_specs": flavor["extra_specs"],
    }


def _bookmark(call: ComputeCall, path: str) -> list[dict[str, str]]:
    return [{"rel": "bookmark", "href": bookmark(call, path)}]


def _fault(call: ComputeCall, fault: Mapping[str, Any]) -> dict[str, Any]:
    shown = {k: fault[k] for k in ("code", "message", "created")}
    if fault.get("details") and (call.context.is_admin or fault["code"] != 500):
        shown["details"] = fault["details"]
    return shown


def _security_groups(server: Server, around: Surroundings) -> list[dict[str, str]]:
    names = {g["id"]: g["name"] for p in around.ports.get(server.id, ()) for g in p.security_groups}
    if not names and server.vm_state == states.Vm.BUILDING:
        return [{"name": name} for name in server.security_groups]
    return [{"name": name} for name in names.values()]


def _host_status(server: Server, around: Surroundings) -> str:
    if server.host is None:
        return ""
    host = around.hosts.get(server.host)
    if host is None:
        return "UNKNOWN"
    if host.disabled:
        return "MAINTENANCE"
    return "UP" if host.up(around.down_time) else "DOWN"
