"""What the compute API answers, but for servers (``server_answers``). What a rule may hide may be missing.

Times without ``format`` are the older ones, that have microseconds and no zone; UTC is meant.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType, field

from moorage.api.answers import Link, Time, many, one
from moorage.api.endpoint import since, until
from moorage.api.fields import only


class MediaType(msgspec.Struct):
    base: str
    type: str


class Version(msgspec.Struct, kw_only=True):
    id: str
    status: str
    version: str
    min_version: str
    updated: Time
    links: list[Link]


class ShownVersion(Version, kw_only=True):
    media_types: list[MediaType] = field(name="media-types")


# --- flavors, keypairs, server groups -------------------------------------------------------------------------------


class BriefFlavor(msgspec.Struct, kw_only=True):
    id: str
    name: str
    links: list[Link]
    description: Annotated[str | None, only(since("2.55"))]


class Flavor(BriefFlavor, kw_only=True):
    """``swap`` is an empty text before 2.75 where there is none."""

    ram: int
    disk: int
    vcpus: int
    swap: int | str
    rxtx_factor: float
    is_public: bool = field(name="os-flavor-access:is_public")
    ephemeral: int = field(name="OS-FLV-EXT-DATA:ephemeral")
    disabled: bool = field(name="OS-FLV-DISABLED:disabled")
    extra_specs: Annotated[dict[str, str] | UnsetType, only(since("2.61"))] = UNSET


class ExtraSpecs(msgspec.Struct):
    extra_specs: dict[str, str]


class FlavorAccess(msgspec.Struct):
    flavor_id: str
    tenant_id: str


class Keypair(msgspec.Struct, kw_only=True):
    name: str
    public_key: str
    fingerprint: str
    type: Annotated[str, only(since("2.2"))]


class ListedKeypair(msgspec.Struct):
    keypair: Keypair


class ShownKeypair(Keypair, kw_only=True):
    id: int
    user_id: str
    created_at: str
    deleted: bool
    deleted_at: str | None
    updated_at: str | None


class CreatedKeypair(Keypair, kw_only=True):
    user_id: str
    private_key: Annotated[str | UnsetType, only(until("2.91"))] = UNSET


class ServerGroup(msgspec.Struct):
    id: str
    name: str
    members: list[str]
    policies: Annotated[list[str], only(until("2.63"))]
    metadata: Annotated[dict[str, str], only(until("2.63"))]
    policy: Annotated[str, only(since("2.64"))]
    rules: Annotated[dict[str, int], only(since("2.64"))]
    project_id: Annotated[str, only(since("2.13"))]
    user_id: Annotated[str, only(since("2.13"))]


# --- limits and quotas ----------------------------------------------------------------------------------------------


class AbsoluteLimits(msgspec.Struct, rename="camel"):
    max_total_instances: int
    max_total_cores: int
    max_total_ram_size: int = field(name="maxTotalRAMSize")
    max_server_meta: int
    max_total_keypairs: int
    max_server_groups: int
    max_server_group_members: int
    total_instances_used: int
    total_cores_used: int
    total_ram_used: int = field(name="totalRAMUsed")
    total_server_groups_used: int
    max_personality: Annotated[int, only(until("2.56"))]
    max_personality_size: Annotated[int, only(until("2.56"))]
    max_image_meta: Annotated[int, only(until("2.38"))]
    max_total_floating_ips: Annotated[int, only(until("2.35"))]
    max_security_groups: Annotated[int, only(until("2.35"))]
    max_security_group_rules: Annotated[int, only(until("2.35"))]
    total_floating_ips_used: Annotated[int, only(until("2.35"))]
    total_security_groups_used: Annotated[int, only(until("2.35"))]


class Limits(msgspec.Struct):
    rate: list[dict[str, Any]]
    absolute: AbsoluteLimits


class QuotaUse(msgspec.Struct):
    limit: int
    in_use: int
    reserved: int


def _quotas(title: str, of: Any, *, named: bool, network_until: str = "2.35", groups: Any = None) -> Any:
    """A type with one field a resource."""
    files, network = only(until("2.56")), only(until(network_until))
    return msgspec.defstruct(
        title,
        [
            *([("id", str)] if named else []),
            *((name, of) for name in ("instances", "cores", "ram", "metadata_items", "key_pairs")),
            *(
                (name, Annotated[of, groups] if groups else of)
                for name in ("server_groups", "server_group_members")
            ),
            *(
                (name, Annotated[of, files])
                for name in ("injected_files", "injected_file_content_bytes", "injected_file_path_bytes")
            ),
            *(
                (name, Annotated[of, network])
                for name in ("fixed_ips", "floating_ips", "security_groups", "security_group_rules")
            ),
        ],
    )


QuotaSet = _quotas("QuotaOfProject", int, named=True)
ChangedQuotaSet = _quotas("ChangedQuota", int, named=False)
QuotaDetails = _quotas("QuotaWithUse", QuotaUse, named=True)
_GROUPS = only(since("2.50"))
QuotaClass = _quotas("QuotaOfClass", int, named=True, network_until="2.49", groups=_GROUPS)
ChangedQuotaClass = _quotas("ChangedQuotaClass", int, named=False, network_until="2.49", groups=_GROUPS)


# --- hosts ----------------------------------------------------------------------------------------------------------


Number = int | str
"""An integer before 2.53, a UUID from then on."""


class HostedServer(msgspec.Struct):
    uuid: str
    name: str


class Hypervisor(msgspec.Struct, kw_only=True):
    id: Number
    hypervisor_hostname: str
    state: Literal["up", "down"]
    status: Literal["enabled", "disabled"]


class ListedHypervisor(Hypervisor, kw_only=True):
    servers: list[HostedServer] | UnsetType = UNSET


class HypervisorUptime(Hypervisor, kw_only=True):
    uptime: str


class HypervisorService(msgspec.Struct):
    id: Number
    host: str
    disabled_reason: str | None


_SIZES = only(until("2.87"))


class ShownHypervisor(ListedHypervisor, kw_only=True):
    """Units: MiB of memory, GiB of disk. ``cpu_info`` is JSON as a text before 2.28."""

    hypervisor_type: str
    hypervisor_version: int
    host_ip: str | None
    service: HypervisorService
    uptime: Annotated[str | None, only(since("2.88"))]
    vcpus: Annotated[int, _SIZES]
    vcpus_used: Annotated[int, _SIZES]
    memory_mb: Annotated[int, _SIZES]
    memory_mb_used: Annotated[int, _SIZES]
    free_ram_mb: Annotated[int, _SIZES]
    local_gb: Annotated[int, _SIZES]
    local_gb_used: Annotated[int, _SIZES]
    free_disk_gb: Annotated[int, _SIZES]
    disk_available_least: Annotated[int, _SIZES]
    current_workload: Annotated[int, _SIZES]
    running_vms: Annotated[int, _SIZES]
    cpu_info: Annotated[str | dict[str, Any], _SIZES]


class HypervisorStatistics(msgspec.Struct):
    count: int
    vcpus: int
    vcpus_used: int
    memory_mb: int
    memory_mb_used: int
    free_ram_mb: int
    local_gb: int
    local_gb_used: int
    free_disk_gb: int
    disk_available_least: int
    current_workload: int
    running_vms: int


class Service(msgspec.Struct):
    id: Number
    binary: str
    host: str
    zone: str
    status: Literal["enabled", "disabled"]
    state: Literal["up", "down"]
    updated_at: str | None
    disabled_reason: str | None
    forced_down: Annotated[bool, only(since("2.11"))]


class ChangedService(msgspec.Struct):
    """The answer to a change before 2.53."""

    host: str
    binary: str
    status: Literal["enabled", "disabled"]
    disabled_reason: str | UnsetType | None = UNSET


class ZoneState(msgspec.Struct):
    available: bool


class ServiceInZone(msgspec.Struct):
    available: bool
    active: bool
    updated_at: str | None


class Zone(msgspec.Struct):
    zone_name: str = field(name="zoneName")
    zone_state: ZoneState = field(name="zoneState")
    hosts: None


class ShownZone(msgspec.Struct):
    """``hosts``: by host, then by service."""

    zone_name: str = field(name="zoneName")
    zone_state: ZoneState = field(name="zoneState")
    hosts: dict[str, dict[str, ServiceInZone]]


class CreatedAggregate(msgspec.Struct, kw_only=True):
    id: int
    uuid: Annotated[str, only(since("2.41"))]
    name: str
    availability_zone: str | None
    created_at: str
    updated_at: str | None
    deleted: bool
    deleted_at: str | None


class Aggregate(CreatedAggregate, kw_only=True):
    hosts: list[str]
    metadata: dict[str, str]


FLAVORS, FLAVORS_DETAIL = (many("flavors", of, "flavors_links") for of in (BriefFlavor, Flavor))
FLAVOR, FLAVOR_ACCESS = one("flavor", Flavor), many("flavor_access", FlavorAccess)
KEYPAIRS = many("keypairs", ListedKeypair, "keypairs_links", since("2.35"))
HYPERVISORS, HYPERVISORS_DETAIL = (
    many("hypervisors", of, "hypervisors_links", since("2.33")) for of in (ListedHypervisor, ShownHypervisor)
)
AGGREGATES, AGGREGATE = many("aggregates", Aggregate), one("aggregate", Aggregate)
