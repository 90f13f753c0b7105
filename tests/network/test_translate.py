"""From our rows to OVN's: the pure part."""

import msgspec
import pytest

from moorage.core.clock import utcnow
from moorage.network.mechanisms.ovn import translate as t
from moorage.network.mechanisms.ovn.rows import PortRow, SegmentRow, SubnetRow
from moorage.network.model import Port, SecurityGroup


def make_port(**more):
    values = {
        "id": "p1", "network_id": "n1", "project_id": "pr", "name": "", "description": "", "admin_state_up": True,
        "status": "DOWN", "mac_address": "fa:16:3e:00:00:01", "device_id": "s1", "device_owner": "compute:nova",
        "device_index": 0, "device_tag": None, "created_for_device": True, "port_security_enabled": True,
        "allowed_address_pairs": [], "extra_dhcp_opts": [], "dns_name": "", "ip_allocation": "immediate",
        "vnic_type": "normal", "profile": {}, "tags": [], "revision_number": 3, "created_at": utcnow(),
        "updated_at": None, "fixed_ips": [{"subnet_id": "sub1", "ip_address": "10.0.0.5"}],
        "security_groups": ["g-1"], "host": "", "mechanism": None, "chassis": None, "vif_type": "unbound",
        "vif_details": {}, **more,
    }  # fmt: skip
    return Port(**values)


SEGMENT = {"id": "seg1", "network_type": "geneve", "physical_network": None, "segmentation_id": 5}
SUBNET = {"id": "sub1", "segment_id": None, "ip_version": 4, "dhcp": True}


def row_of(segments=(SEGMENT,), subnets=(SUBNET,), **more):
    return PortRow(make_port(**more), list(segments), list(subnets))


def test_a_tunnelled_segment_is_a_switch_and_a_vlan_has_a_way_out():
    [switch] = t.switch(SegmentRow("seg1", "n1", "net", "geneve", None, 5))
    assert (switch.table, switch.scope) == (t.SWITCH, "network:n1")
    _, localnet = t.switch(SegmentRow("seg2", "n1", "net", "vlan", "physnet1", 300))
    assert localnet.columns["options"] == {"network_name": "physnet1"}
    assert localnet.columns["tag_request"] == [300]
    assert localnet.parent == (t.SWITCH, "segment:seg2", "ports")
    _, flat = t.switch(SegmentRow("seg3", "n1", "net", "flat", "physnet1", None))
    assert flat.columns["tag_request"] == []


def test_a_port_has_its_addresses_groups_and_dhcp():
    [row] = t.port(row_of())
    assert row.columns["addresses"] == ["fa:16:3e:00:00:01 10.0.0.5"]
    assert row.columns["port_security"] == row.columns["addresses"]
    assert row.columns["options"] == {}
    assert row.refs == {"dhcpv4_options": ((t.DHCP, "subnet:sub1"),), "dhcpv6_options": ()}
    assert row.groups == (t.STATIC, "group:g-1")
    assert row.external_ids()["moorage:revision"] == "3"


@pytest.mark.parametrize(("port_up", "network_up"), [(True, True), (True, False), (False, True)])
def test_a_port_carries_traffic_while_it_and_its_network_are_up(port_up, network_up):
    [row] = t.port(msgspec.structs.replace(row_of(admin_state_up=port_up), network_up=network_up))
    assert row.columns["enabled"] == [port_up and network_up]


def test_a_bound_port_asks_for_its_chassis_by_ovn_only():
    [row] = t.port(row_of(mechanism="ovn", chassis="c1", host="h1"))
    assert row.columns["options"] == {"requested-chassis": "c1"}
    [row] = t.port(row_of(mechanism="simulated", chassis=None, host="h1"))
    assert row.columns["options"] == {}


def test_a_port_without_port_security_may_send_anything():
    [row] = t.port(row_of(port_security_enabled=False, security_groups=[]))
    assert row.columns["port_security"] == []
    assert row.columns["addresses"][1] == "unknown"
    assert row.groups == ()


def test_address_pairs_widen_port_security():
    pairs = [{"ip_address": "10.0.0.9"}, {"ip_address": "10.0.1.0/24", "mac_address": "fa:16:3e:00:00:09"}]
    [row] = t.port(row_of(allowed_address_pairs=pairs))
    assert row.columns["port_security"][1:] == ["fa:16:3e:00:00:01 10.0.0.9", "fa:16:3e:00:00:09 10.0.1.0/24"]


def test_a_port_on_several_segments_waits_for_its_address():
    other = {**SEGMENT, "id": "seg2"}
    assert t.port(row_of(segments=(SEGMENT, other))) == []
    [row] = t.port(row_of(segments=(SEGMENT, other), subnets=({**SUBNET, "segment_id": "seg2"},)))
    assert row.parent == (t.SWITCH, "segment:seg2", "ports")


def subnet(**more):
    values = {
        "id": "sub1", "network_id": "n1", "ip_version": 4, "cidr": "10.0.0.0/24", "gateway_ip": "10.0.0.1",
        "enable_dhcp": True, "ipv6_address_mode": None, "dns_nameservers": [], "host_routes": [], "mtu": 1442,
        "dns_domain": "", **more,
    }  # fmt: skip
    return SubnetRow(**values)


def test_dhcp_options():
    [row] = t.dhcp(subnet(dns_nameservers=["9.9.9.9", "8.8.8.8"], dns_domain="lab.example."))
    options = row.columns["options"]
    assert options["router"] == options["server_id"] == "10.0.0.1"
    assert (options["mtu"], options["dns_server"]) == ("1442", "{9.9.9.9, 8.8.8.8}")
    assert options["domain_name"] == '"lab.example"'
    assert int(options["server_mac"][:2], 16) & 3 == 2
    routed = t.dhcp(subnet(host_routes=[{"destination": "10.1.0.0/24", "nexthop": "10.0.0.9"}]))[0]
    assert routed.columns["options"]["classless_static_route"] == "{10.1.0.0/24,10.0.0.9, 0.0.0.0/0,10.0.0.1}"
    assert t.dhcp(subnet(enable_dhcp=False)) == []
    assert "router" not in t.dhcp(subnet(gateway_ip=None))[0].columns["options"]
    six = t.dhcp(subnet(ip_version=6, cidr="fd00::/64", gateway_ip="fd00::1"))[0]
    assert set(six.columns["options"]) == {"server_id"}


RULE = {
    "id": "r1", "direction": "ingress", "ethertype": "IPv4", "protocol": None, "port_range_min": None,
    "port_range_max": None, "remote_ip_prefix": None, "remote_group_id": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "match"),
    [
        ({}, "outport == @sg && ip4"),
        ({"direction": "egress", "ethertype": "IPv6"}, "inport == @sg && ip6"),
        ({"remote_ip_prefix": "10.0.0.0/8"}, "outport == @sg && ip4 && ip4.src == 10.0.0.0/8"),
        ({"remote_ip_prefix": "0.0.0.0/0"}, "outport == @sg && ip4"),
        (
            {"direction": "egress", "remote_ip_prefix": "10.0.0.1/32"},
            "inport == @sg && ip4 && ip4.dst == 10.0.0.1/32",
        ),
        ({"remote_group_id": "a-b"}, "outport == @sg && ip4 && ip4.src == $moorage_sg_a_b_ip4"),
        ({"protocol": "tcp"}, "outport == @sg && ip4 && tcp"),
        (
            {"protocol": "tcp", "port_range_min": 80, "port_range_max": 80},
            "outport == @sg && ip4 && tcp && tcp.dst == 80",
        ),
        (
            {"protocol": "17", "port_range_min": 5, "port_range_max": 9},
            "outport == @sg && ip4 && udp && udp.dst >= 5 && udp.dst <= 9",
        ),
        (
            {"protocol": "icmp", "port_range_min": 8, "port_range_max": 0},
            "outport == @sg && ip4 && icmp4 && icmp4.type == 8 && icmp4.code == 0",
        ),
        ({"protocol": "ipv6-icmp", "ethertype": "IPv6"}, "outport == @sg && ip6 && icmp6"),
        ({"protocol": "vrrp"}, "outport == @sg && ip4 && ip.proto == 112"),
    ],
)
def test_matches(rule, match):
    assert t.match_of({**RULE, **rule}, "sg") == match


def test_names_of_groups_have_no_dash_and_rules_are_stateful():
    group = SecurityGroup("a-b", "p", "g", "", False, True, False, [], 1, utcnow(), None, [RULE])
    rows = t.security_group(group)
    assert rows[0].columns["name"] == "moorage_sg_a_b"
    assert (rows[1].columns["action"], rows[1].columns["direction"]) == ("allow-related", "to-lport")
    assert all("-" not in d.columns.get("name", "") for d in t.static_rows())
