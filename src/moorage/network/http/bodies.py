"""Request bodies. UNSET: the attribute wasn't given. Numbers and flags may come as text, as Neutron takes them."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

Short = Annotated[str, Meta(max_length=255)]
Text = Short | UnsetType
Flag = bool | UnsetType
Maybe = Short | UnsetType | None
Hints = list[Short] | UnsetType
VnicType = Literal[
    "normal", "direct", "macvtap", "baremetal", "direct-physical", "virtio-forwarder", "smart-nic", "vdpa",
    "accelerator-direct", "accelerator-direct-physical", "remote-managed",
]  # fmt: skip


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A body that may spell numbers and flags as text."""

    __strict__: ClassVar[bool] = False


class NetworkAttributes(Body, frozen=True, kw_only=True):
    """Attributes that a create and an update share."""

    name: Text = UNSET
    description: Text = UNSET
    admin_state_up: Flag = UNSET
    shared: Flag = UNSET
    external: Flag = field(default=UNSET, name="router:external")
    is_default: Flag = UNSET
    port_security_enabled: Flag = UNSET
    mtu: int | UnsetType | None = UNSET
    dns_domain: Text = UNSET


class NewNetwork(NetworkAttributes, frozen=True, kw_only=True):
    """A network to be made."""

    project_id: Text = UNSET
    tenant_id: Text = UNSET
    network_type: Maybe = field(default=UNSET, name="provider:network_type")
    physical_network: Maybe = field(default=UNSET, name="provider:physical_network")
    segmentation_id: int | UnsetType | None = field(default=UNSET, name="provider:segmentation_id")
    availability_zone_hints: Hints = UNSET


class CreateNetwork(Body, frozen=True, kw_only=True):
    """POST /networks."""

    network: NewNetwork | UnsetType = UNSET
    networks: list[NewNetwork] | UnsetType = UNSET


class UpdateNetwork(Body, frozen=True, kw_only=True):
    """PUT /networks/{id}."""

    network: NetworkAttributes


class Range(Body, frozen=True, kw_only=True):
    """An allocation pool."""

    start: str
    end: str


class Route(Body, frozen=True, kw_only=True):
    """A host route."""

    destination: str
    nexthop: str


class SubnetAttributes(Body, frozen=True, kw_only=True):
    """Attributes that a create and an update share."""

    name: Text = UNSET
    description: Text = UNSET
    gateway_ip: Maybe = UNSET
    allocation_pools: list[Range] | UnsetType | None = UNSET
    enable_dhcp: Flag = UNSET
    dns_nameservers: list[str] | UnsetType | None = UNSET
    host_routes: list[Route] | UnsetType | None = UNSET
    service_types: list[Short] | UnsetType = UNSET


class NewSubnet(SubnetAttributes, frozen=True, kw_only=True):
    """A subnet to be made."""

    project_id: Text = UNSET
    tenant_id: Text = UNSET
    network_id: str
    cidr: str
    ip_version: int
    ipv6_ra_mode: Maybe = UNSET
    ipv6_address_mode: Maybe = UNSET
    segment_id: Maybe = UNSET


class CreateSubnet(Body, frozen=True, kw_only=True):
    """POST /subnets."""

    subnet: NewSubnet | UnsetType = UNSET
    subnets: list[NewSubnet] | UnsetType = UNSET


class UpdateSubnet(Body, frozen=True, kw_only=True):
    """PUT /subnets/{id}."""

    subnet: SubnetAttributes


class FixedIp(Body, frozen=True, kw_only=True):
    """A wish for an address."""

    subnet_id: Text = UNSET
    ip_address: Text = UNSET


class AddressPair(Body, frozen=True, kw_only=True):
    """An address that a port may send from besides its own."""

    ip_address: str
    mac_address: Text = UNSET


class DhcpOption(Body, frozen=True, kw_only=True):
    """A DHCP option of one port."""

    opt_name: Annotated[str, Meta(pattern=r"\S", max_length=64)]
    opt_value: Short | None
    ip_version: Literal[4, 6] = 4


class PortAttributes(Body, frozen=True, kw_only=True):
    """Attributes that a create and an update share."""

    name: Text = UNSET
    description: Text = UNSET
    admin_state_up: Flag = UNSET
    mac_address: Maybe = UNSET
    fixed_ips: list[FixedIp] | UnsetType | None = UNSET
    security_groups: list[str] | UnsetType | None = UNSET
    port_security_enabled: Flag = UNSET
    allowed_address_pairs: list[AddressPair] | UnsetType | None = UNSET
    extra_dhcp_opts: list[DhcpOption] | UnsetType | None = UNSET
    device_id: Maybe = UNSET
    device_owner: Maybe = UNSET
    dns_name: Maybe = UNSET
    vnic_type: VnicType | UnsetType = field(default=UNSET, name="binding:vnic_type")
    profile: dict[str, Any] | UnsetType | None = field(default=UNSET, name="binding:profile")
    host: Maybe = field(default=UNSET, name="binding:host_id")


class NewPort(PortAttributes, frozen=True, kw_only=True):
    """A port to be made."""

    project_id: Text = UNSET
    tenant_id: Text = UNSET
    network_id: str


class CreatePort(Body, frozen=True, kw_only=True):
    """POST /ports."""

    port: NewPort | UnsetType = UNSET
    ports: list[NewPort] | UnsetType = UNSET


class UpdatePort(Body, frozen=True, kw_only=True):
    """PUT /ports/{id}."""

    port: PortAttributes


class GroupAttributes(Body, frozen=True, kw_only=True):
    """Attributes that a create and an update share."""

    name: Text = UNSET
    description: Text = UNSET
    stateful: Flag = UNSET


class NewGroup(GroupAttributes, frozen=True, kw_only=True):
    """A security group to be made."""

    project_id: Text = UNSET
    tenant_id: Text = UNSET


class CreateGroup(Body, frozen=True, kw_only=True):
    """POST /security-groups."""

    security_group: NewGroup | UnsetType = UNSET
    security_groups: list[NewGroup] | UnsetType = UNSET


class UpdateGroup(Body, frozen=True, kw_only=True):
    """PUT /security-groups/{id}."""

    security_group: GroupAttributes


class NewRule(Body, frozen=True, kw_only=True):
    """A rule to be made."""

    project_id: Text = UNSET
    tenant_id: Text = UNSET
    security_group_id: str
    direction: str
    ethertype: Text = UNSET
    protocol: str | int | UnsetType | None = UNSET
    port_range_min: int | UnsetType | None = UNSET
    port_range_max: int | UnsetType | None = UNSET
    remote_ip_prefix: Maybe = UNSET
    remote_group_id: Maybe = UNSET
    remote_address_group_id: UnsetType | None = UNSET
    description: Text = UNSET


class CreateRule(Body, frozen=True, kw_only=True):
    """POST /security-group-rules."""

    security_group_rule: NewRule | UnsetType = UNSET
    security_group_rules: list[NewRule] | UnsetType = UNSET


class UpdateQuota(Body, frozen=True, kw_only=True):
    """PUT /quotas/{project}; the two switches of clients change nothing here."""

    quota: dict[str, int | bool | str]


class Tags(Body, frozen=True, kw_only=True):
    """PUT .../tags."""

    tags: list[str]
