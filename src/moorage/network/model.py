"""Rows and values of the network service. All frozen; ids are UUID text, times aware datetimes.

Nested lists (segments of a network, fixed addresses of a port) come from the database as JSON in the shape the API
shows, so they stay dictionaries: ``{"subnet_id", "ip_address"}`` and so on.
"""

from datetime import datetime
from typing import Any

import msgspec


class Network(msgspec.Struct, frozen=True):
    """A network with its segments (in order) and the ids of its subnets."""

    id: str
    project_id: str
    name: str
    description: str
    admin_state_up: bool
    shared: bool
    external: bool
    is_default: bool
    port_security_enabled: bool
    mtu: int
    dns_domain: str
    tags: list[str]
    revision_number: int
    created_at: datetime
    updated_at: datetime | None
    segments: list[dict[str, Any]]
    subnet_ids: list[str]


class Subnet(msgspec.Struct, frozen=True):
    """A subnet with its allocation pools, ``{"start", "end"}`` in address order."""

    id: str
    network_id: str
    segment_id: str | None
    project_id: str
    name: str
    description: str
    ip_version: int
    cidr: str
    gateway_ip: str | None
    enable_dhcp: bool
    dns_nameservers: list[str]
    host_routes: list[dict[str, str]]
    ipv6_ra_mode: str | None
    ipv6_address_mode: str | None
    service_types: list[str]
    tags: list[str]
    revision_number: int
    created_at: datetime
    updated_at: datetime | None
    allocation_pools: list[dict[str, str]]


class Port(msgspec.Struct, frozen=True):
    """A port with its addresses, security groups and active binding (``host`` is "" when unbound)."""

    id: str
    network_id: str
    project_id: str
    name: str
    description: str
    admin_state_up: bool
    status: str
    mac_address: str
    device_id: str
    device_owner: str
    device_index: int
    device_tag: str | None
    created_for_device: bool
    port_security_enabled: bool
    allowed_address_pairs: list[dict[str, str]]
    extra_dhcp_opts: list[dict[str, Any]]
    dns_name: str
    ip_allocation: str
    vnic_type: str
    profile: dict[str, Any]
    tags: list[str]
    revision_number: int
    created_at: datetime
    updated_at: datetime | None
    fixed_ips: list[dict[str, str]]
    security_groups: list[str]
    host: str
    mechanism: str | None
    chassis: str | None
    vif_type: str
    vif_details: dict[str, Any]


class Attachment(msgspec.Struct, frozen=True):
    """A server's port as the compute service shows it: its addresses, its network and security groups by name.

    ``fixed_ips``: subnet_id and ip_address; ``security_groups``: id and name, by id.
    """

    server_id: str
    network: str
    mac_address: str
    fixed_ips: list[dict[str, str]]
    security_groups: list[dict[str, str]]


class SecurityGroup(msgspec.Struct, frozen=True):
    """A security group with its rules, each in the shape of the API."""

    id: str
    project_id: str
    name: str
    description: str
    is_default: bool
    stateful: bool
    shared: bool
    tags: list[str]
    revision_number: int
    created_at: datetime
    updated_at: datetime | None
    rules: list[dict[str, Any]]


class SecurityGroupRule(msgspec.Struct, frozen=True):
    """One rule; what is None matches everything."""

    id: str
    security_group_id: str
    project_id: str
    direction: str
    ethertype: str
    protocol: str | None
    port_range_min: int | None
    port_range_max: int | None
    remote_ip_prefix: str | None
    remote_group_id: str | None
    description: str
    revision_number: int
    created_at: datetime
    updated_at: datetime | None


class HostNetworking(msgspec.Struct, frozen=True, kw_only=True):
    """What the network service knows of a host: its data path, the physical networks it reaches, its name there."""

    host: str
    datapath: str
    physical_networks: frozenset[str] = frozenset()
    chassis: str | None = None


class RequestedNic(msgspec.Struct, frozen=True, kw_only=True):
    """One NIC of a server: a network to make a port on, or a port that exists."""

    network_id: str | None = None
    port_id: str | None = None
    fixed_ip: str | None = None
    tag: str | None = None


class PreparedPort(msgspec.Struct, frozen=True, kw_only=True):
    """A port that is reserved for a server and not bound to a host yet.

    ``created``: made for the server and deleted with it; else the user's own. ``physical_network`` is that of the
    network's first segment, None for a tunnelled one.
    """

    port_id: str
    created: bool
    network_id: str
    physical_network: str | None
    mac: str
    fixed_ips: list[dict[str, str]]
    segments: list[dict[str, Any]]


class AddressRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An address that a port needs: a certain one of one subnet, or any of several subnets in order of preference."""

    port_id: str
    subnet_ids: tuple[str, ...]
    address: str | None = None
