"""What a host is told to build: the guest.spawn payload of a server. Pure."""

from typing import Any

import msgspec

from moorage.compute.model import Server
from moorage.compute.operations.services import OperationSettings
from moorage.wire.messages import BootImage, ConfigDrive, SpawnGuest, Vif


def payload(server: Server, vifs: list[Any], settings: OperationSettings) -> SpawnGuest:
    """The payload; ``vifs`` are wire.Vif, or their plain form from an operation's record."""
    typed = tuple(msgspec.convert(v, Vif) if isinstance(v, dict) else v for v in vifs)
    return SpawnGuest(
        server_id=server.id,
        name=server.name,
        hostname=server.hostname,
        project_id=server.project_id,
        user_id=server.user_id,
        vcpus=server.vcpus,
        memory_mb=server.memory_mb,
        disk_gb=server.disk_gb,
        image=_image(server, settings),
        vifs=typed,
        config_drive=ConfigDrive(
            meta_data=meta_data(server), network_data=network_data(typed), user_data=server.user_data
        ),
    )


def _image(server: Server, settings: OperationSettings) -> BootImage:
    image = server.image
    return BootImage(
        id=server.image_id,
        url=f"{settings.image_path}/{server.image_id}",
        hash_algo=image.get("hash_algo") or "sha512",
        hash_value=image.get("hash_value") or "",
        size=image.get("size") or 0,
        disk_format=image.get("disk_format") or "raw",
    )


def meta_data(server: Server) -> dict[str, Any]:
    """openstack/latest/meta_data.json, in the fields that cloud-init reads."""
    found: dict[str, Any] = {
        "uuid": server.id,
        "name": server.name,
        "hostname": server.hostname,
        "project_id": server.project_id,
        "availability_zone": server.availability_zone,
        "launch_index": server.launch_index,
        "meta": server.metadata,
    }
    if server.key_name and server.key_data:
        found["public_keys"] = {server.key_name: server.key_data}
        found["keys"] = [{"name": server.key_name, "type": server.key_type or "ssh", "data": server.key_data}]
    return found


def network_data(vifs: tuple[Vif, ...]) -> dict[str, Any]:
    """openstack/latest/network_data.json: links, networks, services."""
    links, networks, services = [], [], []
    for number, vif in enumerate(vifs):
        links.append(
            {
                "id": vif.iface,
                "vif_id": vif.port_id,
                "type": "phy",
                "mtu": vif.mtu,
                "ethernet_mac_address": vif.mac,
            }
        )
        for ip in vif.fixed_ips:
            v6 = ":" in ip.address
            networks.append(
                {
                    "id": f"network{number}",
                    "type": "ipv6_dhcp" if v6 else "ipv4_dhcp",
                    "link": vif.iface,
                    "network_id": vif.network_id,
                }
            )
            services += [{"type": "dns", "address": address} for address in ip.dns]
    return {"links": links, "networks": networks, "services": services}
