"""Options of the network service."""

from typing import Any

import msgspec
from oslo_config import cfg

from moorage.network.segmentation import SegmentRules

GROUP = "network"


def options() -> list[tuple[str, list[cfg.Opt]]]:
    """The group [network]."""
    return [
        (
            GROUP,
            [
                cfg.ListOpt("project_network_types", default=["geneve"], help="Types of the networks that projects make, in order of preference: geneve, vxlan, vlan, flat."),
                cfg.ListOpt("tunnel_id_ranges", default=["1:65535"], help="Tunnel ids that may be given out, as first:last."),
                cfg.ListOpt("vlan_ranges", default=[], help="VLANs that may be given out, as physical_network:first:last."),
                cfg.ListOpt("flat_networks", default=["*"], help="Physical networks that may carry a flat network; * for any."),
                cfg.IntOpt("mtu", default=1500, min=1280, max=9216, help="Bytes that the underlay and the physical networks carry in a packet; tunnelled networks get less."),
                cfg.StrOpt("mac_prefix", default="fa:16:3e", regex=r"^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){2}$", help="First three octets of generated MAC addresses."),
                cfg.IntOpt("quota_network", default=100, min=-1, help="Networks a project may have; -1 for any number."),
                cfg.IntOpt("quota_subnet", default=100, min=-1, help="Subnets a project may have."),
                cfg.IntOpt("quota_port", default=500, min=-1, help="Ports a project may have."),
                cfg.IntOpt("quota_security_group", default=10, min=-1, help="Security groups a project may have."),
                cfg.IntOpt("quota_security_group_rule", default=100, min=-1, help="Security group rules a project may have."),
                cfg.StrOpt("ovn_nb", help="OVSDB remote of OVN's Northbound database, such as unix:/run/ovn/ovnnb_db.sock; without it only simulated hosts can carry ports."),
                cfg.StrOpt("ovn_sb", help="OVSDB remote of OVN's Southbound database."),
                cfg.StrOpt("policy_file", help="YAML file of policy rules of the Networking API that win over the defaults."),
            ],
        )
    ]  # fmt: skip


class NetworkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options as values."""

    rules: SegmentRules = SegmentRules()
    mac_prefix: str = "fa:16:3e"
    quotas: dict[str, int] = {}
    ovn_nb: str | None = None
    ovn_sb: str | None = None


def settings(conf: Any) -> NetworkSettings:
    """The settings of a loaded configuration. Raises ValueError naming a malformed range."""
    group = conf[GROUP]
    names = ("network", "subnet", "port", "security_group", "security_group_rule")
    vlans: dict[str, tuple[range, ...]] = {}
    for text in group.vlan_ranges:
        physnet, _, bounds = text.partition(":")
        vlans[physnet] = (*vlans.get(physnet, ()), *([_range(bounds, text)] if bounds else []))
    return NetworkSettings(
        rules=SegmentRules(
            project_types=tuple(group.project_network_types),
            tunnel_ids=tuple(_range(text, text) for text in group.tunnel_id_ranges),
            vlans=vlans,
            flat=frozenset(group.flat_networks),
            mtu=group.mtu,
        ),
        mac_prefix=group.mac_prefix,
        quotas={name: group[f"quota_{name}"] for name in names},
        ovn_nb=group.ovn_nb,
        ovn_sb=group.ovn_sb,
    )


def _range(bounds: str, shown: str) -> range:
    first, _, last = bounds.partition(":")
    if not (first.isdigit() and last.isdigit() and int(first) <= int(last)):
        raise ValueError(f"'{shown}' is not a range of the form first:last")
    return range(int(first), int(last) + 1)
