"""What the compute API answers about servers. What a rule may hide, or only some servers have, may be missing.

Times without ``format`` are the older ones, that have microseconds and no zone; UTC is meant.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType, field

from moorage.api.answers import Link, Time, many, one
from moorage.api.endpoint import since, until
from moorage.api.fields import only


class BriefServer(msgspec.Struct):
    id: str
    name: str
    links: list[Link]


class ShortAddress(msgspec.Struct):
    version: Literal[4, 6]
    addr: str


class ServerAddress(msgspec.Struct):
    version: Literal[4, 6]
    addr: str
    type: str = field(name="OS-EXT-IPS:type")
    mac_addr: str = field(name="OS-EXT-IPS-MAC:mac_addr")


class ServerImage(msgspec.Struct):
    id: str
    links: list[Link]


class ServerFlavor(msgspec.Struct):
    """A link, from 2.47 on what the flavor was when the server was made."""

    id: Annotated[str, only(until("2.46"))]
    links: Annotated[list[Link], only(until("2.46"))]
    vcpus: Annotated[int, only(since("2.47"))]
    ram: Annotated[int, only(since("2.47"))]
    disk: Annotated[int, only(since("2.47"))]
    ephemeral: Annotated[int, only(since("2.47"))]
    swap: Annotated[int, only(since("2.47"))]
    original_name: Annotated[str, only(since("2.47"))]
    extra_specs: Annotated[dict[str, str], only(since("2.47"))]


class ServerFault(msgspec.Struct):
    code: int
    message: str
    created: Time
    details: str | UnsetType = UNSET


class NamedGroup(msgspec.Struct):
    name: str


class BasicServer(msgspec.Struct, kw_only=True):
    id: str
    name: str
    status: str
    tenant_id: str
    user_id: str
    metadata: dict[str, str]
    host_id: str = field(name="hostId")
    image: ServerImage
    flavor: ServerFlavor
    created: Time
    updated: Time
    access_ip_v4: str = field(name="accessIPv4")
    access_ip_v6: str = field(name="accessIPv6")
    links: list[Link]
    disk_config: str = field(name="OS-DCF:diskConfig")
    fault: ServerFault | UnsetType = UNSET
    progress: int | UnsetType = UNSET
    locked: Annotated[bool, only(since("2.9"))]
    description: Annotated[str | None, only(since("2.19"))]
    tags: Annotated[list[str], only(since("2.26"))]
    trusted_image_certificates: Annotated[list[str] | None, only(since("2.63"))]
    locked_reason: Annotated[str | None, only(since("2.73"))]
    pinned_availability_zone: Annotated[str | None, only(since("2.96"))]


class ServerAsChanged(BasicServer, kw_only=True):
    """The answer to a change before 2.75."""

    addresses: dict[str, list[ShortAddress]]
    server_groups: Annotated[list[str], only(since("2.71"))]


_A = "OS-EXT-SRV-ATTR:"


class DetailedServer(BasicServer, kw_only=True):
    addresses: dict[str, list[ServerAddress]]
    key_name: str | None
    config_drive: str
    availability_zone: str = field(name="OS-EXT-AZ:availability_zone")
    task_state: str | None = field(name="OS-EXT-STS:task_state")
    vm_state: str = field(name="OS-EXT-STS:vm_state")
    power_state: int = field(name="OS-EXT-STS:power_state")
    launched_at: str | None = field(name="OS-SRV-USG:launched_at")
    terminated_at: str | None = field(name="OS-SRV-USG:terminated_at")
    volumes_attached: list[dict[str, Any]] = field(name="os-extended-volumes:volumes_attached")
    security_groups: list[NamedGroup] | UnsetType = UNSET
    host: str | UnsetType | None = field(default=UNSET, name=_A + "host")
    hypervisor_hostname: str | UnsetType | None = field(default=UNSET, name=_A + "hypervisor_hostname")
    instance_name: str | UnsetType = field(default=UNSET, name=_A + "instance_name")
    hostname: Annotated[str | UnsetType, only(since("2.3"))] = field(default=UNSET, name=_A + "hostname")
    reservation_id: Annotated[str | UnsetType, only(since("2.3"))] = field(
        default=UNSET, name=_A + "reservation_id"
    )
    launch_index: Annotated[int | UnsetType, only(since("2.3"))] = field(
        default=UNSET, name=_A + "launch_index"
    )
    kernel_id: Annotated[str | UnsetType, only(since("2.3"))] = field(default=UNSET, name=_A + "kernel_id")
    ramdisk_id: Annotated[str | UnsetType, only(since("2.3"))] = field(default=UNSET, name=_A + "ramdisk_id")
    root_device_name: Annotated[str | UnsetType, only(since("2.3"))] = field(
        default=UNSET, name=_A + "root_device_name"
    )
    user_data: Annotated[str | UnsetType | None, only(since("2.3"))] = field(
        default=UNSET, name=_A + "user_data"
    )
    host_status: Annotated[str | UnsetType, only(since("2.16"))] = UNSET


class ShownServer(DetailedServer, kw_only=True):
    server_groups: Annotated[list[str], only(since("2.71"))]


class CreatedServer(msgspec.Struct):
    id: str
    links: list[Link]
    disk_config: str = field(name="OS-DCF:diskConfig")
    security_groups: list[NamedGroup]
    admin_pass: str | UnsetType = field(default=UNSET, name="adminPass")


class ServersMade(msgspec.Struct):
    """The server, or the first of several; a reservation where that was asked for."""

    server: CreatedServer | UnsetType = UNSET
    reservation_id: str | UnsetType = UNSET


class ServerMetadata(msgspec.Struct):
    metadata: dict[str, str]


class MetadataItem(msgspec.Struct):
    meta: dict[str, str]


class VolumeAttachments(msgspec.Struct):
    """None: there are no volumes."""

    volume_attachments: list[dict[str, Any]] = field(name="volumeAttachments")


class ConsoleOutput(msgspec.Struct):
    output: str


class Interface(msgspec.Struct):
    net_id: str
    port_id: str
    mac_addr: str
    port_state: str
    fixed_ips: list[dict[str, str]]
    tag: Annotated[str | None, only(since("2.70"))]


class Addresses(msgspec.Struct):
    """By network."""

    addresses: dict[str, list[ShortAddress]]


class GroupRule(msgspec.Struct):
    id: str
    parent_group_id: str
    ip_protocol: str | None
    from_port: int | None
    to_port: int | None
    ip_range: dict[str, str]
    group: dict[str, str]


class ServerSecurityGroup(msgspec.Struct):
    id: str
    name: str
    description: str
    tenant_id: str
    rules: list[GroupRule]


class InstanceAction(msgspec.Struct, kw_only=True):
    action: str
    instance_uuid: str
    request_id: str
    user_id: str
    project_id: str
    start_time: str
    message: str | None
    updated_at: Annotated[str | None, only(since("2.58"))]


class InstanceEvent(msgspec.Struct, kw_only=True):
    event: str
    start_time: str
    finish_time: str | None
    result: str | None
    traceback: str | UnsetType | None = UNSET
    host_id: Annotated[str, only(since("2.62"))] = field(name="hostId")
    host: Annotated[str | UnsetType, only(since("2.62"))] = UNSET
    details: Annotated[str | UnsetType | None, only(since("2.84"))] = UNSET


class ShownAction(InstanceAction, kw_only=True):
    events: list[InstanceEvent] | UnsetType = UNSET


SERVERS, SERVERS_DETAIL = (many("servers", of, "servers_links") for of in (BriefServer, DetailedServer))
SERVER, CHANGED_SERVER = one("server", ShownServer), one("server", ServerAsChanged)
ACTIONS = many("instanceActions", InstanceAction, "links", since("2.58"))
