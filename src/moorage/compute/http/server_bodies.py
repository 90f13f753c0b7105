"""The bodies of POST /servers and PUT /servers/{id}, and what they mean.

One type serves every microversion; a field says which have it.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, UnsetType, field

from moorage.api.endpoint import between, since, until
from moorage.api.fields import only
from moorage.api.versions import Version
from moorage.compute.errors import InvalidField, UnsupportedBlockDevice
from moorage.compute.http import values
from moorage.compute.http.values import Body, Flag, Number
from moorage.compute.model import CreateRequest, NicRequest
from moorage.core.ids import is_uuid

# Upstream lost these by mistake, and took them back.
_NIC_TAGS = only(between("2.32", "2.36"), since("2.42"))
_DEVICE_TAGS = only(between("2.32", "2.32"), since("2.42"))
DiskConfig = Literal["AUTO", "MANUAL"]


class Nic(Body, frozen=True):
    uuid: str | UnsetType = UNSET
    port: str | UnsetType | None = UNSET
    fixed_ip: str | UnsetType = UNSET
    tag: Annotated[str | UnsetType, _NIC_TAGS] = UNSET


class BlockDevice(Body, frozen=True):
    boot_index: Number | UnsetType | None = UNSET
    source_type: str | UnsetType = UNSET
    destination_type: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    image_id: str | UnsetType = UNSET
    volume_id: str | UnsetType = UNSET
    snapshot_id: str | UnsetType = UNSET
    volume_size: Number | UnsetType = UNSET
    volume_type: Annotated[str | UnsetType | None, only(since("2.67"))] = UNSET
    device_name: str | UnsetType = UNSET
    device_type: str | UnsetType = UNSET
    disk_bus: str | UnsetType = UNSET
    guest_format: str | UnsetType = UNSET
    delete_on_termination: Flag | UnsetType = UNSET
    no_device: Any | UnsetType = UNSET
    virtual_name: str | UnsetType = UNSET
    connection_info: str | UnsetType = UNSET
    tag: Annotated[str | UnsetType, _DEVICE_TAGS] = UNSET


class WantedGroup(Body, frozen=True):
    name: str | UnsetType = UNSET


class NewServer(Body, frozen=True):
    name: str
    flavor_ref: str | int = field(name="flavorRef")
    image_ref: str | UnsetType = field(default=UNSET, name="imageRef")
    networks: list[Nic] | str | UnsetType = UNSET
    key_name: str | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    security_groups: list[WantedGroup] | UnsetType = UNSET
    availability_zone: str | UnsetType = UNSET
    user_data: str | UnsetType | None = UNSET
    config_drive: Flag | UnsetType = UNSET
    min_count: Number | UnsetType = UNSET
    max_count: Number | UnsetType = UNSET
    return_reservation_id: Flag | UnsetType = UNSET
    admin_pass: str | UnsetType = field(default=UNSET, name="adminPass")
    access_ip_v4: str | UnsetType = field(default=UNSET, name="accessIPv4")
    access_ip_v6: str | UnsetType = field(default=UNSET, name="accessIPv6")
    disk_config: DiskConfig | UnsetType = field(default=UNSET, name="OS-DCF:diskConfig")
    block_device_mapping: list[dict[str, Any]] | UnsetType = UNSET
    block_device_mapping_v2: list[BlockDevice] | UnsetType = UNSET
    personality: Annotated[list[dict[str, Any]] | UnsetType, only(until("2.56"))] = UNSET
    description: Annotated[str | UnsetType | None, only(since("2.19"))] = UNSET
    tags: Annotated[list[str] | UnsetType, only(since("2.52"))] = UNSET
    trusted_image_certificates: Annotated[list[str] | UnsetType | None, only(since("2.63"))] = UNSET
    host: Annotated[str | UnsetType, only(since("2.74"))] = UNSET
    hypervisor_hostname: Annotated[str | UnsetType, only(since("2.74"))] = UNSET
    hostname: Annotated[str | UnsetType, only(since("2.90"))] = UNSET


class CreateServer(Body, frozen=True):
    server: NewServer
    hints: dict[str, Any] | UnsetType = field(default=UNSET, name="os:scheduler_hints")
    older_hints: dict[str, Any] | UnsetType = field(default=UNSET, name="OS-SCH-HNT:scheduler_hints")


class ServerChanges(Body, frozen=True):
    name: str | UnsetType = UNSET
    access_ip_v4: str | UnsetType = field(default=UNSET, name="accessIPv4")
    access_ip_v6: str | UnsetType = field(default=UNSET, name="accessIPv6")
    disk_config: DiskConfig | UnsetType = field(default=UNSET, name="OS-DCF:diskConfig")
    description: Annotated[str | UnsetType | None, only(since("2.19"))] = UNSET
    hostname: Annotated[str | UnsetType, only(since("2.90"))] = UNSET


class UpdateServer(Body, frozen=True):
    server: ServerChanges


def create_request(body: CreateServer, version: Version) -> CreateRequest:
    """What the body asks for at ``version``; raises InvalidField, UnsupportedBlockDevice."""
    given = body.server
    if values.given(given.personality):
        raise InvalidField(
            "Files cannot be put into servers here: use user_data.", field="server.personality"
        )
    low, high = _counts(given)
    zone, host = _zone_and_host(given)
    return CreateRequest(
        name=values.name(given.name, "server.name"),
        flavor_id=str(given.flavor_ref),
        image_id=_image_of(given),
        networks=_networks(given, version),
        security_groups=_groups(given),
        key_name=None if given.key_name is UNSET else values.name(given.key_name, "server.key_name"),
        metadata=values.metadata(values.given(given.metadata, {}), "server.metadata"),
        tags=_tags(given),
        description=values.description(values.given(given.description), "server.description"),
        hostname=None if given.hostname is UNSET else host_name(given.hostname, version),
        user_data=_user_data(given),
        config_drive=False
        if given.config_drive is UNSET
        else values.flag(given.config_drive, "server.config_drive"),
        access_ip_v4=_address(given.access_ip_v4, "server.accessIPv4", 4),
        access_ip_v6=_address(given.access_ip_v6, "server.accessIPv6", 6),
        disk_config=values.given(given.disk_config),
        trusted_image_certificates=values.given(given.trusted_image_certificates),
        availability_zone=zone,
        host=host,
        hints=_hints(body),
        min_count=low,
        max_count=high,
    )


def changes(body: UpdateServer, version: Version) -> dict[str, Any]:
    """The columns to set; raises InvalidField."""
    given = body.server
    found: dict[str, Any] = {}
    if given.name is not UNSET:
        found["name"] = values.name(given.name, "server.name")
    if given.description is not UNSET:
        found["description"] = values.description(given.description, "server.description")
    if given.hostname is not UNSET:
        found["hostname"] = host_name(given.hostname, version)
    if given.access_ip_v4 is not UNSET:
        found["access_ip_v4"] = _address(given.access_ip_v4, "server.accessIPv4", 4)
    if given.access_ip_v6 is not UNSET:
        found["access_ip_v6"] = _address(given.access_ip_v6, "server.accessIPv6", 6)
    if given.disk_config is not UNSET:
        found["disk_config"] = given.disk_config
    return found


def host_name(value: str, version: Version) -> str:
    """A host name, from 2.94 on a fully qualified one too; raises InvalidField."""
    longest = 255 if version >= (2, 94) else 63
    if not values.HOST_NAME.match(value) or len(value) > longest or (version < (2, 94) and "." in value):
        raise InvalidField(
            f"Invalid input for server.hostname: at most {longest} letters, digits and hyphens.",
            field="server.hostname",
        )
    return value


def _counts(given: NewServer) -> tuple[int, int]:
    low = values.number(values.given(given.min_count, 1), "server.min_count", 1)
    high = values.number(values.given(given.max_count, low), "server.max_count", 1)
    if low > high:
        raise InvalidField("min_count must be <= max_count", field="server.min_count")
    return low, high


def _image_of(given: NewServer) -> str:
    image: str = values.given(given.image_ref, "")
    if image and not is_uuid(image):
        raise InvalidField("Invalid imageRef provided.", field="server.imageRef")
    if values.given(given.block_device_mapping):
        raise UnsupportedBlockDevice(
            "Volumes are not offered: leave block_device_mapping out.", field="server.block_device_mapping"
        )
    for device in values.given(given.block_device_mapping_v2, []):
        image = _root(device, image)
    if not image:
        raise InvalidField(
            "Invalid imageRef provided: servers boot from an image here.", field="server.imageRef"
        )
    return image


def _root(device: BlockDevice, image: str) -> str:
    """The image of the one kind of block device that is offered: a local root disk from an image."""
    index = device.boot_index
    local = values.given(device.destination_type, "local") == "local"
    of_image = device.source_type == "image"
    if not (
        local and of_image and index not in (UNSET, None) and values.number(index, "boot_index", -1) == 0
    ):
        raise UnsupportedBlockDevice(
            "Block Device Mapping is Invalid: only a local root disk made from an image (boot_index 0, source_type "
            "image, destination_type local) is offered; volumes are not.",
            field="server.block_device_mapping_v2",
        )
    named = values.given(device.uuid) or values.given(device.image_id)
    if not named or not is_uuid(named) or (image and named != image):
        raise UnsupportedBlockDevice(
            "Block Device Mapping is Invalid: the root disk's uuid must be the image of imageRef.",
            field="server.block_device_mapping_v2",
        )
    return str(named)


def _networks(given: NewServer, version: Version) -> list[NicRequest] | str | None:
    asked = given.networks
    if asked is UNSET:
        if version >= (2, 37):
            raise InvalidField("Object missing required field `networks`.", field="server.networks")
        return None
    if isinstance(asked, str):
        if version < (2, 37) or asked not in ("auto", "none"):
            raise InvalidField(
                "Invalid input for server.networks: a list is needed.", field="server.networks"
            )
        return asked
    # An empty list means what its absence means: upstream treats both so.
    return [_nic(nic, f"server.networks[{i}]") for i, nic in enumerate(asked)] or None


def _nic(nic: Nic, where: str) -> NicRequest:
    port, network = values.given(nic.port), values.given(nic.uuid)
    if port is None and network is None:
        raise InvalidField(f"Invalid input for {where}: a network's uuid or a port is needed.", field=where)
    for key, value in (("port", port), ("uuid", network)):
        if value is not None and not is_uuid(value):
            raise InvalidField(f"Bad networks format: {key} is not a UUID.", field=f"{where}.{key}")
    return NicRequest(
        network_id=network if port is None else None,
        port_id=port,
        fixed_ip=None if nic.fixed_ip is UNSET else values.address(nic.fixed_ip, f"{where}.fixed_ip"),
        tag=None if nic.tag is UNSET else values.tag(nic.tag, f"{where}.tag"),
    )


def _groups(given: NewServer) -> list[str]:
    names = [values.given(g.name) for g in values.given(given.security_groups, [])]
    return list(dict.fromkeys(n for n in names if n))


def _tags(given: NewServer) -> list[str]:
    tags = values.given(given.tags, [])
    if len(tags) > 50:
        raise InvalidField("The number of tags exceeded the per-server limit 50", field="server.tags")
    return sorted({values.tag(t, "server.tags") for t in tags})


def _user_data(given: NewServer) -> str | None:
    data = values.given(given.user_data)
    return None if data is None else values.base64_text(data, "server.user_data")


def _address(value: str | UnsetType, where: str, version: int) -> str | None:
    return values.address(value, where, version) if value is not UNSET and value else None


def _zone_and_host(given: NewServer) -> tuple[str | None, str | None]:
    zone = values.given(given.availability_zone)
    if zone is not None:
        values.name(zone, "server.availability_zone")
    named = values.given(given.host) or values.given(given.hypervisor_hostname)
    if zone is None or ":" not in zone:
        return zone, named
    # ZONE:HOST, an administrator's older way to name the host.
    name, _, host = zone.partition(":")
    return name or None, host.partition(":")[0] or named


def _hints(body: CreateServer) -> dict[str, Any]:
    hints = values.given(body.hints) or values.given(body.older_hints) or {}
    group = hints.get("group")
    if isinstance(group, list):
        group = group[0] if group else None
    if group is not None and not (isinstance(group, str) and is_uuid(group)):
        raise InvalidField(
            "Invalid input for os:scheduler_hints.group: a UUID is needed.", field="os:scheduler_hints.group"
        )
    return {**{k: v for k, v in hints.items() if k != "group"}, **({"group": group} if group else {})}
