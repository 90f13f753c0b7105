"""Rows and values of compute, frozen. Units: MiB of memory and swap, GiB of disk."""

from datetime import datetime
from typing import Any

import msgspec


class Flavor(msgspec.Struct, frozen=True):
    id: str
    name: str
    vcpus: int
    memory_mb: int
    root_gb: int
    ephemeral_gb: int
    swap_mb: int
    rxtx_factor: float
    is_public: bool
    description: str | None
    extra_specs: dict[str, str]
    created_at: datetime
    updated_at: datetime | None

    def snapshot(self) -> dict[str, Any]:
        """What a server keeps of its flavor, in the names of the API."""
        return {
            "id": self.id,
            "name": self.name,
            "vcpus": self.vcpus,
            "ram": self.memory_mb,
            "disk": self.root_gb,
            "ephemeral": self.ephemeral_gb,
            "swap": self.swap_mb,
            "extra_specs": self.extra_specs,
        }


class Keypair(msgspec.Struct, frozen=True):
    id: int
    user_id: str
    name: str
    type: str
    fingerprint: str
    public_key: str
    created_at: datetime


class Server(msgspec.Struct, frozen=True):
    """One server. ``host`` is None until one is chosen; ``flavor`` is the snapshot taken at creation.

    ``requested_networks``: [{"network_id", "port_id", "fixed_ip", "tag"}] in the order of the NICs.
    ``security_groups``: names or ids as the user gave them.
    ``fault``: {"code", "message", "details", "created"} of the last failure.
    """

    id: str
    number: int
    project_id: str
    user_id: str
    name: str
    hostname: str
    description: str | None
    reservation_id: str
    launch_index: int
    flavor: dict[str, Any]
    vcpus: int
    memory_mb: int
    disk_gb: int
    image_id: str
    image: dict[str, Any]
    key_name: str | None
    key_type: str | None
    key_data: str | None
    metadata: dict[str, str]
    tags: list[str]
    user_data: str | None
    config_drive: bool
    access_ip_v4: str | None
    access_ip_v6: str | None
    disk_config: str
    trusted_image_certificates: list[str] | None
    pinned_zone: str | None
    availability_zone: str | None
    host: str | None
    requested_host: str | None
    scheduler_hints: dict[str, Any]
    server_group_id: str | None
    requested_networks: list[dict[str, Any]]
    security_groups: list[str]
    vm_state: str
    task_state: str | None
    power_state: int
    progress: int
    fault: dict[str, Any] | None
    locked: bool
    locked_by: str | None
    locked_reason: str | None
    launched_at: datetime | None
    terminated_at: datetime | None
    deleted_at: datetime | None
    created_at: datetime
    updated_at: datetime | None


class Action(msgspec.Struct, frozen=True):
    """Something a user asked of a server; its events tell how it went."""

    id: int
    server_id: str
    action: str
    request_id: str
    user_id: str | None
    project_id: str | None
    message: str | None
    start_time: datetime
    updated_at: datetime | None


class ActionEvent(msgspec.Struct, frozen=True):
    id: int
    action_id: int
    event: str
    host: str | None
    result: str | None
    details: str | None
    start_time: datetime
    finish_time: datetime | None


class Aggregate(msgspec.Struct, frozen=True):
    """A set of hosts; the metadata key ``availability_zone`` makes it a zone."""

    id: int
    uuid: str
    name: str
    metadata: dict[str, str]
    created_at: datetime
    updated_at: datetime | None
    hosts: list[str]

    @property
    def zone(self) -> str | None:
        """The availability zone it names, if any."""
        return self.metadata.get("availability_zone")


class ServerGroup(msgspec.Struct, frozen=True):
    id: str
    project_id: str
    user_id: str
    name: str
    policy: str
    rules: dict[str, int]
    created_at: datetime
    members: list[str]


class PlacementRecord(msgspec.Struct, frozen=True):
    """The plan of one attempt to place a server, as the scheduler made it."""

    server_id: str
    attempt: int
    plan: dict[str, Any]
    created_at: datetime


class NicRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a server's ``networks``."""

    network_id: str | None = None
    port_id: str | None = None
    fixed_ip: str | None = None
    tag: str | None = None


class CreateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a user asks for, independent of the API's spelling.

    ``networks``: NICs in order; "auto" and None: whatever the project has; "none": no network.
    """

    name: str
    flavor_id: str
    image_id: str
    networks: list[NicRequest] | str | None = None
    security_groups: list[str] = []
    key_name: str | None = None
    metadata: dict[str, str] = {}
    tags: list[str] = []
    description: str | None = None
    hostname: str | None = None
    user_data: str | None = None
    config_drive: bool = False
    access_ip_v4: str | None = None
    access_ip_v6: str | None = None
    disk_config: str | None = None
    trusted_image_certificates: list[str] | None = None
    availability_zone: str | None = None
    host: str | None = None
    hints: dict[str, Any] = {}
    min_count: int = 1
    max_count: int = 1


class HostView(msgspec.Struct, frozen=True, kw_only=True):
    """A compute host with what its servers use of it. ``number`` is its name below microversion 2.53."""

    id: str
    number: int
    name: str
    up: bool
    disabled: bool
    disabled_reason: str | None
    last_seen: datetime | None
    facts: dict[str, Any]
    zone: str
    servers: int
    vcpus_used: int
    memory_mb_used: int
    disk_gb_used: int
    building: int
