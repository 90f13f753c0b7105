"""What the Networking API answers: the types of ``views``. Attributes that a rule may hide may be missing."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType, field

from moorage.api.answers import Link, Time, made, many, one
from moorage.network.http.bodies import DhcpOption, Range, Route


class Version(msgspec.Struct):
    id: str
    status: str
    links: list[Link]


class Resource(msgspec.Struct):
    name: str
    collection: str
    links: list[Link]


class Extension(msgspec.Struct):
    alias: str
    name: str
    description: str
    updated: str
    links: list[Link]


class NetworkAgent(msgspec.Struct):
    id: str
    host: str
    agent_type: str
    binary: str
    topic: str
    alive: bool
    admin_state_up: bool
    availability_zone: str
    configurations: dict[str, Any]
    created_at: Time
    started_at: Time
    heartbeat_timestamp: Time
    description: str
    resources_synced: bool | None


class Standard(msgspec.Struct, kw_only=True):
    """What every resource has. ``tenant_id`` is ``project_id`` by its older name."""

    id: str
    project_id: str
    tenant_id: str
    description: str
    revision_number: int
    created_at: Time
    updated_at: Time
    tags: list[str]


class Network(Standard, kw_only=True):
    name: str
    admin_state_up: bool
    status: str
    shared: bool
    mtu: int
    subnets: list[str]
    external: bool = field(name="router:external")
    is_default: bool
    port_security_enabled: bool
    dns_domain: str
    availability_zone_hints: list[str]
    availability_zones: list[str]
    ipv4_address_scope: str | None
    ipv6_address_scope: str | None
    network_type: str | UnsetType | None = field(default=UNSET, name="provider:network_type")
    physical_network: str | UnsetType | None = field(default=UNSET, name="provider:physical_network")
    segmentation_id: int | UnsetType | None = field(default=UNSET, name="provider:segmentation_id")


class Subnet(Standard, kw_only=True):
    name: str
    network_id: str
    segment_id: str | UnsetType | None = UNSET
    ip_version: Literal[4, 6]
    cidr: str
    gateway_ip: str | None
    enable_dhcp: bool
    dns_nameservers: list[str]
    host_routes: list[Route]
    allocation_pools: list[Range]
    ipv6_ra_mode: str | None
    ipv6_address_mode: str | None
    service_types: list[str]
    subnetpool_id: str | None


class PortAddress(msgspec.Struct):
    subnet_id: str
    ip_address: str


class AllowedPair(msgspec.Struct):
    """Without a ``mac_address`` it is that of the port."""

    ip_address: str
    mac_address: str | UnsetType = UNSET


class Port(Standard, kw_only=True):
    name: str
    network_id: str
    admin_state_up: bool
    status: str
    mac_address: str
    fixed_ips: list[PortAddress]
    device_id: str
    device_owner: str
    security_groups: list[str]
    port_security_enabled: bool
    allowed_address_pairs: list[AllowedPair]
    extra_dhcp_opts: list[DhcpOption]
    dns_name: str
    dns_assignment: list[dict[str, str]]
    ip_allocation: str
    vnic_type: str = field(name="binding:vnic_type")
    profile: dict[str, Any] | UnsetType = field(default=UNSET, name="binding:profile")
    host: str | UnsetType = field(default=UNSET, name="binding:host_id")
    vif_type: str | UnsetType = field(default=UNSET, name="binding:vif_type")
    vif_details: dict[str, Any] | UnsetType = field(default=UNSET, name="binding:vif_details")


class SecurityGroupRule(Standard, kw_only=True):
    security_group_id: str
    direction: Literal["ingress", "egress"]
    ethertype: Literal["IPv4", "IPv6"]
    protocol: str | None
    port_range_min: int | None
    port_range_max: int | None
    remote_ip_prefix: str | None
    normalized_cidr: str | None
    remote_group_id: str | None
    remote_address_group_id: str | None


class SecurityGroup(Standard, kw_only=True):
    name: str
    stateful: bool
    shared: bool
    security_group_rules: list[SecurityGroupRule]


class Quota(msgspec.Struct):
    """Limits by resource."""

    quota: dict[str, int]


class QuotaList(msgspec.Struct):
    """Limits by resource, with the project's id, of projects that have their own."""

    quotas: list[dict[str, int | str]]


class QuotaDetail(msgspec.Struct):
    limit: int
    used: int
    reserved: int


class QuotaDetails(msgspec.Struct):
    quota: dict[str, QuotaDetail]


def _all_of(name: str, of: type) -> tuple[Any, Any, Any]:
    return many(f"{name}s", of, f"{name}s_links"), one(name, of), made(name, f"{name}s", of)


NETWORKS, NETWORK, NEW_NETWORK = _all_of("network", Network)
SUBNETS, SUBNET, NEW_SUBNET = _all_of("subnet", Subnet)
PORTS, PORT, NEW_PORT = _all_of("port", Port)
GROUPS, GROUP, NEW_GROUP = _all_of("security_group", SecurityGroup)
RULES, RULE, NEW_RULE = _all_of("security_group_rule", SecurityGroupRule)
VERSIONS, RESOURCES = many("versions", Version), many("resources", Resource)
EXTENSIONS, EXTENSION = many("extensions", Extension), one("extension", Extension)
AGENTS, AGENT = many("agents", NetworkAgent), one("agent", NetworkAgent)
