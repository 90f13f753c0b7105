"""What the API is: versions, extensions, agents."""

from typing import Any

from moorage.core.errors import NotFound
from moorage.network.http.common import CONTROLS, HostAgent, NetworkCall, filters

# alias: (name, what it adds)
EXTENSIONS: dict[str, tuple[str, str]] = {
    "agent": ("agent", "Hosts that carry ports."),
    "allowed-address-pairs": ("Allowed Address Pairs", "Further addresses that a port may send from."),
    "binding": ("Port Binding", "The host that carries a port, and how."),
    "default-subnetpools": ("Default Subnetpools", "Subnets without a pool of prefixes are always given a CIDR."),
    "external-net": ("Neutron external network", "Networks that lead out of the cloud."),
    "extra_dhcp_opt": ("Neutron Extra DHCP options", "DHCP options of one port."),
    "filter-validation": ("Filter parameters validation", "Filters that a resource does not have are refused."),
    "ip_allocation": ("IP Allocation", "When a port gets its addresses."),
    "ip-substring-filtering": ("IP address substring filtering", "Ports by a part of their address."),
    "net-mtu": ("Network MTU", "The largest packet of a network, in bytes."),
    "net-mtu-writable": ("Network MTU (writable)", "It can be chosen, up to what the network can carry."),
    "pagination": ("Pagination support", "limit, marker and page_reverse."),
    "port-security": ("Port Security", "Ports may send only from their own addresses."),
    "project-id": ("project_id field enabled", "project_id beside tenant_id."),
    "provider": ("Provider Network", "How a network is carried."),
    "quotas": ("Quota management support", "Limits of projects."),
    "quota_details": ("Quota details management support", "Limits and what is used of them."),
    "security-group": ("security-group", "Rules of what ports may send and receive."),
    "sorting": ("Sorting support", "sort_key and sort_dir."),
    "standard-attr-description": ("standard-attr-description", "A description of every resource."),
    "standard-attr-revisions": ("Resource revision numbers", "A number that grows with every change."),
    "revision-if-match": ("If-Match constraints based on revision_number", "Change only what was read."),
    "standard-attr-timestamp": ("Resource timestamps", "created_at and updated_at."),
    "standard-attr-tag": ("Tag support", "Tags of every resource."),
    "stateful-security-group": ("Stateful security group", "Whether answers are let through."),
    "subnet-service-types": ("Subnet service types", "What kinds of ports a subnet is for."),
}  # fmt: skip
AGENT_FILTERS = filters(
    (
        "id",
        "host",
        "agent_type",
        "binary",
        "topic",
        "alive",
        "admin_state_up",
        "availability_zone",
        "description",
    )
)
_COLLECTIONS = (
    "network",
    "subnet",
    "port",
    "security_group",
    "security_group_rule",
    "quota",
    "agent",
    "extension",
)


async def versions(call: NetworkCall) -> Any:
    links = [{"rel": "self", "href": call.url("/v2.0/")}]
    return {"versions": [{"id": "v2.0", "status": "CURRENT", "links": links}]}


async def resources(call: NetworkCall) -> Any:
    return {
        "resources": [
            {
                "name": name,
                "collection": f"{name}s",
                "links": [{"rel": "self", "href": call.url(f"/v2.0/{name.replace('_', '-')}s")}],
            }
            for name in _COLLECTIONS
        ]
    }


def _extension(alias: str) -> dict[str, Any]:
    name, description = EXTENSIONS[alias]
    shown = {"alias": alias, "name": name, "description": description}
    return {**shown, "updated": "2026-01-01T00:00:00-00:00", "links": []}


async def extensions(_call: NetworkCall) -> Any:
    return {"extensions": [_extension(alias) for alias in EXTENSIONS]}


async def extension(call: NetworkCall) -> Any:
    if call.path["id"] not in EXTENSIONS:
        raise NotFound(f"Extension with alias {call.path['id']} does not exist")
    return {"extension": _extension(call.path["id"])}


def _agent(host: HostAgent) -> dict[str, Any]:
    ovn = host.datapath == "ovn"
    return {
        "id": host.id,
        "host": host.host,
        "agent_type": "OVN Controller agent" if ovn else "Simulated agent",
        "binary": "ovn-controller" if ovn else "moorage-agent",
        "topic": "n/a",
        "alive": host.alive,
        "admin_state_up": host.admin_state_up,
        "availability_zone": "",
        "configurations": {"bridge-mappings": ",".join(host.physical_networks)},
        "created_at": host.created_at,
        "started_at": host.created_at,
        "heartbeat_timestamp": host.heartbeat_at,
        "description": "",
        "resources_synced": None,
    }


async def agents(call: NetworkCall) -> Any:
    async with call.app.database.read() as tx:
        hosts = await call.app.agents(tx) if call.app.agents else []
    wanted = {k: {v.lower() for v in values} for k, values in call.query.items() if k not in CONTROLS}
    shown = [_agent(h) for h in hosts]
    return {"agents": [a for a in shown if all(str(a[k]).lower() in v for k, v in wanted.items())]}


async def agent(call: NetworkCall) -> Any:
    async with call.app.database.read() as tx:
        hosts = await call.app.agents(tx) if call.app.agents else []
    for host in hosts:
        if host.id == call.path["id"]:
            return {"agent": _agent(host)}
    raise NotFound(f"Agent {call.path['id']} could not be found.")
