"""The Networking API, request by request, as several projects see it."""

import json

import httpx
import pytest

from moorage.network.http import network_api
from tests.support.tokens import check

ALIEN = "00000000-0000-4000-8000-000000000000"


class Client:
    def __init__(self, http, token):
        self._http, self._token = http, token

    async def __call__(self, method, path, body=None, status=None, **headers):
        headers = {"X-Auth-Token": self._token, **{k.replace("_", "-"): v for k, v in headers.items()}}
        answer = await self._http.request(method, f"http://net/v2.0{path}", json=body, headers=headers)
        if status is not None:
            assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None


@pytest.fixture
async def api(world):
    app = network_api(world.service, world.database, authenticate=check)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app)) as http:
        yield lambda token: Client(http, token)


@pytest.fixture
def member(api):
    return api("p1:member+reader")


@pytest.fixture
def other(api):
    return api("p2:member+reader")


@pytest.fixture
def admin(api):
    return api("admins:admin+member+reader")


async def make_network(client, name="n", cidr="10.0.0.0/24", **more):
    network = (await client("POST", "/networks", {"network": {"name": name, **more}}, 201))["network"]
    body = {"subnet": {"network_id": network["id"], "cidr": cidr, "ip_version": 4}}
    subnet = (await client("POST", "/subnets", body, 201))["subnet"]
    return network, subnet


async def test_versions_and_extensions(member):
    found = await member("GET", "/extensions", status=200)
    assert "security-group" in {e["alias"] for e in found["extensions"]}
    assert (await member("GET", "/", status=200))["resources"]
    await member("GET", "/extensions/nothing", status=404)


async def test_a_networks_life(member, admin):
    network, subnet = await make_network(member)
    assert network["status"] == "ACTIVE"
    assert network["mtu"] == 1442
    assert network["tenant_id"] == network["project_id"] == "p1"
    assert "provider:network_type" not in network
    shown = (await admin("GET", f"/networks/{network['id']}", status=200))["network"]
    assert shown["provider:network_type"] == "geneve"
    assert shown["subnets"] == [subnet["id"]]
    assert shown["revision_number"] == 2
    assert subnet["gateway_ip"] == "10.0.0.1"
    assert subnet["allocation_pools"] == [{"start": "10.0.0.2", "end": "10.0.0.254"}]
    body = {"network": {"name": "new"}}
    stale = await member("PUT", f"/networks/{network['id']}", body, 412, If_Match="revision_number=1")
    assert stale["NeutronError"]["type"] == "RevisionNumberConstraintFailed"
    changed = await member("PUT", f"/networks/{network['id']}", body, 200, If_Match="revision_number=2")
    assert (changed["network"]["name"], changed["network"]["revision_number"]) == ("new", 3)
    port = (await member("POST", "/ports", {"port": {"network_id": network["id"]}}, 201))["port"]
    used = await member("DELETE", f"/networks/{network['id']}", status=409)
    assert used["NeutronError"]["type"] == "NetworkInUse"
    used = await member("DELETE", f"/subnets/{subnet['id']}", status=409)
    assert used["NeutronError"]["type"] == "SubnetInUse"
    await member("DELETE", f"/ports/{port['id']}", status=204)
    await member("DELETE", f"/networks/{network['id']}", status=204)
    gone = await member("GET", f"/networks/{network['id']}", status=404)
    assert gone["NeutronError"]["type"] == "NetworkNotFound"
    await member("GET", f"/subnets/{subnet['id']}", status=404)


async def test_other_projects_things_are_not_found(member, other, admin):
    network, subnet = await make_network(member)
    port = (await member("POST", "/ports", {"port": {"network_id": network["id"]}}, 201))["port"]
    [group] = (await member("GET", "/security-groups", status=200))["security_groups"]
    for path in (
        f"/networks/{network['id']}",
        f"/subnets/{subnet['id']}",
        f"/ports/{port['id']}",
        f"/security-groups/{group['id']}",
        f"/security-group-rules/{group['security_group_rules'][0]['id']}",
    ):
        await other("GET", path, status=404)
        await other("DELETE", path, status=404)
        await admin("GET", path, status=200)
    await other("PUT", f"/networks/{network['id']}", {"network": {"name": "x"}}, 404)
    await other("POST", "/ports", {"port": {"network_id": network["id"]}}, 404)
    body = {"port": {"network_id": network["id"], "security_groups": [group["id"]]}}
    mine, _ = await make_network(other)
    await other("POST", "/ports", {"port": {**body["port"], "network_id": mine["id"]}}, 404)
    for plural in ("networks", "subnets", "ports"):
        ids = {row["project_id"] for row in (await other("GET", f"/{plural}", status=200))[plural]}
        assert ids <= {"p2"}


async def test_shared_networks_can_be_used_and_not_changed(member, other, admin):
    await member("POST", "/networks", {"network": {"shared": True}}, 403)
    network, _ = await make_network(admin, shared=True)
    assert (await other("GET", f"/networks/{network['id']}", status=200))["network"]["shared"]
    await other("PUT", f"/networks/{network['id']}", {"network": {"name": "x"}}, 403)
    await other("DELETE", f"/networks/{network['id']}", status=403)
    port = (await other("POST", "/ports", {"port": {"network_id": network["id"]}}, 201))["port"]
    still = await admin("PUT", f"/networks/{network['id']}", {"network": {"shared": False}}, 409)
    assert still["NeutronError"]["type"] == "InvalidSharedSetting"
    await other(
        "POST", "/ports", {"port": {"network_id": network["id"], "mac_address": "fa:16:3e:1:2:3"}}, 403
    )
    await other("DELETE", f"/ports/{port['id']}", status=204)


async def test_provider_networks_are_the_admins(member, admin):
    vlan = {"provider:network_type": "vlan", "provider:physical_network": "physnet1"}
    await member("POST", "/networks", {"network": vlan}, 403)
    made = (await admin("POST", "/networks", {"network": {**vlan, "provider:segmentation_id": 300}}, 201))[
        "network"
    ]
    assert (made["provider:segmentation_id"], made["mtu"]) == (300, 1500)
    again = await admin("POST", "/networks", {"network": {**vlan, "provider:segmentation_id": 300}}, 409)
    assert again["NeutronError"]["type"] == "VlanIdInUse"
    bad = await admin("POST", "/networks", {"network": {"provider:network_type": "flat"}}, 400)
    assert "provider:physical_network" in bad["NeutronError"]["message"]
    found = await admin("GET", "/networks?provider:physical_network=physnet1&fields=id", status=200)
    assert found["networks"] == [{"id": made["id"]}]


LONG = "x" * 256
SUBNET = {"network_id": "NET", "cidr": "10.9.0.0/24", "ip_version": 4}
RULE = {"security_group_id": "GROUP", "direction": "ingress", "ethertype": "IPv6"}


def port(**more):
    return "/ports", {"port": {"network_id": "NET", **more}}


def pair(**more):
    return port(allowed_address_pairs=[{"ip_address": "10.0.0.8"}, more])


def subnet(**more):
    return "/subnets", {"subnet": {**SUBNET, **more}}


WRONG = (
    ("/networks", {"network": {"name": LONG}}, "network.name"),
    ("/networks", {"network": {"description": LONG}}, "network.description"),
    ("/networks", {"network": {"dns_domain": "a.example"}}, "dns_domain"),
    ("/networks", {"network": {"dns_domain": 'a".'}}, "dns_domain"),
    ("/networks", {"network": {"dns_domain": f"{'a.' * 128}"}}, "dns_domain"),
    (*subnet(name=LONG), "subnet.name"),
    (*subnet(description=LONG), "subnet.description"),
    (*subnet(dns_nameservers=["9.9.9.x"]), "dns_nameservers"),
    (*subnet(dns_nameservers=["2620:fe::9"]), "dns_nameservers"),
    (*subnet(dns_nameservers=[f"9.9.9.{n}" for n in range(6)]), "dns_nameservers"),
    (*subnet(cidr="fd00::/64", ip_version=6, dns_nameservers=["9.9.9.9"]), "dns_nameservers"),
    (*subnet(cidr="fd00::/64", ip_version=6, dns_nameservers=["fe80::1%x}"]), "dns_nameservers"),
    (*subnet(host_routes=[{"destination": "fd00::/64", "nexthop": "10.9.0.9"}]), "host_routes"),
    (*subnet(host_routes=[{"destination": "10.8.0.0/24", "nexthop": "fd00::1"}]), "host_routes"),
    (*subnet(host_routes=[{"destination": "10.8.0.1/24", "nexthop": "10.9.0.9"}]), "host_routes"),
    (
        *subnet(host_routes=[{"destination": f"10.{n}.0.0/24", "nexthop": "10.9.0.9"} for n in range(21)]),
        "host_routes",
    ),
    (*subnet(gateway_ip="fd00::1"), "gateway_ip"),
    (*subnet(cidr="10.9.0.0/31"), "cidr"),
    (*subnet(cidr="10.9.0.0/32"), "cidr"),
    (*subnet(cidr="fd00::/127", ip_version=6), "cidr"),
    (*subnet(cidr="224.0.0.0/24"), "cidr"),
    (*subnet(cidr="ff02::/64", ip_version=6), "cidr"),
    (*subnet(cidr="127.0.0.0/24"), "cidr"),
    (*subnet(cidr="0.0.0.0/24"), "cidr"),
    (*subnet(cidr="fe80::%x/64", ip_version=6), "cidr"),
    (*subnet(cidr="fd00::/80", ip_version=6, ipv6_ra_mode="slaac", ipv6_address_mode="slaac"), "cidr"),
    (*subnet(cidr="fd00::/80", ip_version=6, ipv6_ra_mode="slaac"), "cidr"),
    (*subnet(cidr="fd00::/64", ip_version=6, ipv6_ra_mode="slaac", enable_dhcp=False), "enable_dhcp"),
    (*port(name=LONG), "port.name"),
    (*port(description=LONG), "port.description"),
    (*port(device_id=LONG), "port.device_id"),
    (*port(device_owner=LONG), "port.device_owner"),
    (*pair(), "ip_address"),
    (*pair(ip_address="x"), "allowed_address_pairs[1].ip_address"),
    (*pair(ip_address="10.0.0.9 10.0.0.10"), "allowed_address_pairs[1].ip_address"),
    (*pair(ip_address="10.0.0.9/24"), "allowed_address_pairs[1].ip_address"),
    (*pair(ip_address="224.0.0.18"), "allowed_address_pairs[1].ip_address"),
    (*pair(ip_address="ff02::/64"), "allowed_address_pairs[1].ip_address"),
    (*pair(ip_address="fe80::1%x 10.0.0.9"), "allowed_address_pairs[1].ip_address"),
    (*pair(ip_address="10.0.0.8"), "allowed_address_pairs[1]"),
    (*pair(ip_address="10.0.0.9", mac_address="x"), "allowed_address_pairs[1].mac_address"),
    (*pair(ip_address="10.0.0.9", mac_address="01:00:5e:00:00:01"), "allowed_address_pairs[1].mac_address"),
    (*pair(ip_address="10.0.0.9", mac_address="00:00:00:00:00:00"), "allowed_address_pairs[1].mac_address"),
    (
        *port(allowed_address_pairs=[{"ip_address": f"10.0.0.{n}"} for n in range(11)]),
        "allowed_address_pairs",
    ),
    (*port(**{"binding:vnic_type": "zz"}), "port.binding:vnic_type"),
    (
        *port(extra_dhcp_opts=[{"opt_name": "mtu", "opt_value": "1", "ip_version": 9}]),
        "extra_dhcp_opts[0].ip_version",
    ),
    (*port(extra_dhcp_opts=[{"opt_name": " ", "opt_value": "1"}]), "extra_dhcp_opts[0].opt_name"),
    (*port(extra_dhcp_opts=[{"opt_name": "x" * 65, "opt_value": "1"}]), "extra_dhcp_opts[0].opt_name"),
    (*port(extra_dhcp_opts=[{"opt_name": "mtu"}]), "extra_dhcp_opts[0].opt_value"),
    (*port(extra_dhcp_opts=[{"opt_name": "mtu", "opt_value": " "}]), "extra_dhcp_opts[0].opt_value"),
    (*port(dns_name="a b"), "dns_name"),
    (*port(dns_name="-a"), "dns_name"),
    (*port(dns_name="a..b"), "dns_name"),
    (*port(dns_name="x" * 64), "dns_name"),
    (*port(dns_name="a.1"), "dns_name"),
    ("/security-groups", {"security_group": {"name": LONG}}, "security_group.name"),
    (
        "/security-groups",
        {"security_group": {"name": "a", "description": LONG}},
        "security_group.description",
    ),
    ("/security-group-rules", {"security_group_rule": {**RULE, "description": LONG}}, "description"),
    ("/security-group-rules", {"security_group_rule": {**RULE, "protocol": "²"}}, "protocol"),
    # What Python takes for the zone of an address would be a part of the expression that OVN is given.
    (
        "/security-group-rules",
        {"security_group_rule": {**RULE, "remote_ip_prefix": "fe80::%x || ip4/64"}},
        "remote_ip_prefix",
    ),
    ("/networks", {"network": {"colour": "red"}}, "colour"),
    ("/networks", {"network": {"mtu": "big"}}, "mtu"),
    ("/networks", {"network": {"mtu": 9000}}, "mtu"),
    ("/networks", {}, "network"),
    ("/networks", [], "body"),
    ("/subnets", {"subnet": {"cidr": "10.0.0.0/24", "ip_version": 4}}, "network_id"),
    ("/subnets", {"subnet": {"cidr": "10.0.0.1/24", "ip_version": 4, "network_id": "NET"}}, "cidr"),
    ("/subnets", {"subnet": {"cidr": "10.9.0.0/24", "ip_version": 6, "network_id": "NET"}}, "cidr"),
    ("/subnets", {"subnet": {"cidr": "10.0.0.0/16", "ip_version": 4, "network_id": "NET"}}, "cidr"),
    ("/ports", {"port": {"network_id": "NET", "mac_address": "x"}}, "mac_address"),
    ("/ports", {"port": {"network_id": "NET", "fixed_ips": [{}]}}, "fixed_ips"),
    ("/ports", {"port": {"network_id": "NET", "fixed_ips": [{"ip_address": "10.77.0.1"}]}}, "fixed_ips"),
    ("/security-groups", {"security_group": {"name": 1}}, "name"),
    ("/security-group-rules", {"security_group_rule": {"direction": "ingress"}}, "security_group_id"),
    (
        "/security-group-rules",
        {"security_group_rule": {"direction": "up", "security_group_id": "GROUP"}},
        "direction",
    ),
    (
        "/security-group-rules",
        {
            "security_group_rule": {
                "direction": "ingress",
                "security_group_id": "GROUP",
                "port_range_min": 1,
            }
        },
        "protocol",
    ),
)


async def test_wrong_bodies_name_the_field(member):
    network, _ = await make_network(member)
    [group] = (await member("GET", "/security-groups", status=200))["security_groups"]
    ids = {"NET": network["id"], "GROUP": group["id"]}
    wrong = []
    for path, body, field in WRONG:
        text = json.dumps(body)
        for name, value in ids.items():
            text = text.replace(f'"{name}"', f'"{value}"')
        found = await member("POST", path, json.loads(text))
        if field not in found.get("NeutronError", {"type": "", "message": ""})["message"]:
            wrong.append(f"{path} {body} {field}: {found}")
    assert not wrong, "\n".join(wrong)
    assert (await member("GET", "/ports", status=200))["ports"] == []


CHANGES = (
    ("/networks/{network}", {"network": {"name": LONG}}, "network.name"),
    ("/networks/{network}", {"network": {"dns_domain": "a b."}}, "dns_domain"),
    ("/subnets/{subnet}", {"subnet": {"dns_nameservers": ["2620:fe::9"]}}, "dns_nameservers"),
    ("/subnets/{narrow}", {"subnet": {"enable_dhcp": True}}, "cidr"),
    ("/ports/{port}", {"port": {"allowed_address_pairs": [{"ip_address": "x"}]}}, "allowed_address_pairs[0]"),
    ("/ports/{port}", {"port": {"binding:vnic_type": "zz"}}, "binding:vnic_type"),
    ("/ports/{port}", {"port": {"dns_name": "a b"}}, "dns_name"),
    ("/ports/{port}", {"port": {"mac_address": "00:00:00:00:00:00"}}, "mac_address"),
    ("/security-groups/{group}", {"security_group": {"name": LONG}}, "security_group.name"),
)


async def test_wrong_changes_name_the_field_and_change_nothing(admin):
    network, whole = await make_network(admin)
    body = {
        **SUBNET,
        "network_id": network["id"],
        "cidr": "10.1.0.0/32",
        "enable_dhcp": False,
        "gateway_ip": None,
    }
    narrow = (await admin("POST", "/subnets", {"subnet": body}, 201))["subnet"]
    made = (await admin("POST", "/ports", {"port": {"network_id": network["id"]}}, 201))["port"]
    [group] = (await admin("GET", "/security-groups", status=200))["security_groups"]
    ids = {"network": network, "subnet": whole, "narrow": narrow, "port": made, "group": group}
    for path, change, field in CHANGES:
        at = path.format(**{name: row["id"] for name, row in ids.items()})
        before = await admin("GET", at, status=200)
        found = await admin("PUT", at, change, 400)
        assert field in found["NeutronError"]["message"], path
        assert await admin("GET", at, status=200) == before


async def test_values_are_kept_in_one_form(member):
    network, _ = await make_network(member, dns_domain="Lab.Example.")
    assert network["dns_domain"] == "lab.example."
    pairs = [{"ip_address": "10.0.0.9/32", "mac_address": "FA-16-3E-00-00-01"}, {"ip_address": "FD00::0:1"}]
    body = {"network_id": network["id"], "allowed_address_pairs": pairs, "dns_name": "Web-1"}
    body["extra_dhcp_opts"] = [{"opt_name": "router", "opt_value": "", "ip_version": "4"}]
    made = (await member("POST", "/ports", {"port": body}, 201))["port"]
    assert made["allowed_address_pairs"] == [
        {"ip_address": "10.0.0.9/32", "mac_address": "fa:16:3e:00:00:01"},
        {"ip_address": "fd00::1"},
    ]
    assert made["dns_name"] == "web-1"
    assert made["extra_dhcp_opts"] == [{"opt_name": "router", "opt_value": "", "ip_version": 4}]


async def test_ports_in_bulk_all_or_none(member):
    network, _ = await make_network(member)
    wish = {"network_id": network["id"], "fixed_ips": [{"ip_address": "10.0.0.50"}]}
    made = await member("POST", "/ports", {"ports": [{"network_id": network["id"], "name": "a"}, wish]}, 201)
    assert [p["name"] for p in made["ports"]] == ["a", ""]
    failed = await member("POST", "/ports", {"ports": [{"network_id": network["id"]}, wish]}, 409)
    assert failed["NeutronError"]["type"] == "IpAddressInUse"
    found = await member("GET", "/ports?fixed_ips=ip_address%3D10.0.0.50", status=200)
    assert [p["id"] for p in found["ports"]] == [made["ports"][1]["id"]]
    assert len((await member("GET", "/ports", status=200))["ports"]) == 2
    assert (await member("GET", "/ports?fixed_ips=ip_address_substr%3D0.0.5", status=200))["ports"]


async def test_ports_change_addresses_groups_and_security(member):
    network, subnet = await make_network(member)
    port = (await member("POST", "/ports", {"port": {"network_id": network["id"]}}, 201))["port"]
    path = f"/ports/{port['id']}"
    old = port["fixed_ips"][0]["ip_address"]
    wishes = [{"ip_address": old}, {"subnet_id": subnet["id"], "ip_address": "10.0.0.77"}]
    changed = (await member("PUT", path, {"port": {"fixed_ips": wishes}}, 200))["port"]
    assert {ip["ip_address"] for ip in changed["fixed_ips"]} == {old, "10.0.0.77"}
    kept = (await member("PUT", path, {"port": {"fixed_ips": [{"ip_address": "10.0.0.77"}]}}, 200))["port"]
    assert [ip["ip_address"] for ip in kept["fixed_ips"]] == ["10.0.0.77"]
    refused = await member("PUT", path, {"port": {"port_security_enabled": False}}, 409)
    assert refused["NeutronError"]["type"] == "PortSecurityPortHasSecurityGroup"
    bare = await member("PUT", path, {"port": {"port_security_enabled": False, "security_groups": []}}, 200)
    assert bare["port"]["security_groups"] == []
    named = await member("PUT", path, {"port": {"name": "x", "device_id": "d", "device_owner": "me"}}, 200)
    assert (named["port"]["name"], named["port"]["device_id"]) == ("x", "d")


async def test_binding_is_the_admins(member, admin):
    network, _ = await make_network(member)
    body = {"network_id": network["id"], "binding:host_id": "h1"}
    await member("POST", "/ports", {"port": body}, 403)
    port = (await member("POST", "/ports", {"port": {"network_id": network["id"]}}, 201))["port"]
    assert "binding:host_id" not in port
    assert port["binding:vnic_type"] == "normal"
    path = f"/ports/{port['id']}"
    bound = (await admin("PUT", path, {"port": {"binding:host_id": "o1"}}, 200))["port"]
    assert (bound["binding:host_id"], bound["binding:vif_type"], bound["status"]) == ("o1", "ovs", "DOWN")
    failed = (await admin("PUT", path, {"port": {"binding:host_id": "nowhere"}}, 200))["port"]
    assert (failed["binding:host_id"], failed["binding:vif_type"]) == ("nowhere", "binding_failed")
    again = (await admin("PUT", path, {"port": {"binding:host_id": "h2"}}, 200))["port"]
    assert again["binding:vif_type"] == "simulated"
    assert len((await admin("GET", "/ports?binding:host_id=h2", status=200))["ports"]) == 1
    free = (await admin("PUT", path, {"port": {"binding:host_id": None}}, 200))["port"]
    assert (free["binding:host_id"], free["binding:vif_type"]) == ("", "unbound")


async def test_security_groups(member):
    [default] = (await member("GET", "/security-groups", status=200))["security_groups"]
    assert default["name"] == "default"
    assert sorted(
        (r["direction"], r["ethertype"], r["remote_group_id"]) for r in default["security_group_rules"]
    ) == [
        ("egress", "IPv4", None),
        ("egress", "IPv6", None),
        ("ingress", "IPv4", default["id"]),
        ("ingress", "IPv6", default["id"]),
    ]
    assert len((await member("GET", "/security-groups", status=200))["security_groups"]) == 1
    stays = await member("DELETE", f"/security-groups/{default['id']}", status=409)
    assert stays["NeutronError"]["type"] == "SecurityGroupCannotRemoveDefault"
    group = (await member("POST", "/security-groups", {"security_group": {"name": "web"}}, 201))[
        "security_group"
    ]
    rule = {"security_group_id": group["id"], "direction": "ingress", "protocol": "tcp", "port_range_min": 80}
    wrong = await member("POST", "/security-group-rules", {"security_group_rule": rule}, 400)
    assert wrong["NeutronError"]["type"] == "SecurityGroupInvalidPortRange"
    rule["port_range_max"] = 80
    made = (await member("POST", "/security-group-rules", {"security_group_rule": rule}, 201))[
        "security_group_rule"
    ]
    assert (made["ethertype"], made["protocol"], made["port_range_max"]) == ("IPv4", "tcp", 80)
    same = await member("POST", "/security-group-rules", {"security_group_rule": rule}, 409)
    assert same["NeutronError"]["type"] == "SecurityGroupRuleExists"
    await member("DELETE", f"/security-group-rules/{made['id']}", status=204)
    await member("DELETE", f"/security-groups/{group['id']}", status=204)


async def test_quotas(member, admin):
    shown = (await member("GET", "/quotas/p1", status=200))["quota"]
    assert (shown["port"], shown["network"]) == (50, 100)
    await member("GET", "/quotas/p2", status=403)
    await member("PUT", "/quotas/p1", {"quota": {"network": 1}}, 403)
    assert (await admin("PUT", "/quotas/p1", {"quota": {"network": 1}}, 200))["quota"]["network"] == 1
    await make_network(member)
    over = await member("POST", "/networks", {"network": {}}, 409)
    assert over["NeutronError"]["type"] == "OverQuota"
    details = (await member("GET", "/quotas/p1/details", status=200))["quota"]
    assert details["network"] == {"limit": 1, "used": 1, "reserved": 0}
    await admin("DELETE", "/quotas/p1", status=204)
    await member("POST", "/networks", {"network": {}}, 201)


async def test_pages_and_order(member):
    for name in ("b", "a", "c", "a"):
        await member("POST", "/networks", {"network": {"name": name}}, 201)
    path = "/networks?sort_key=name&sort_dir=desc&limit=2"
    first = await member("GET", path, status=200)
    assert [n["name"] for n in first["networks"]] == ["c", "b"]
    link, previous = first["networks_links"]
    assert (link["rel"], previous["rel"]) == ("next", "previous")
    second = await member("GET", link["href"].partition("/v2.0")[2], status=200)
    assert [n["name"] for n in second["networks"]] == ["a", "a"]
    [back] = [x for x in second["networks_links"] if x["rel"] == "previous"]
    again = await member("GET", back["href"].partition("/v2.0")[2], status=200)
    assert [n["name"] for n in again["networks"]] == ["c", "b"]
    assert len({n["id"] for n in second["networks"]}) == 2
    await member("GET", "/networks?sort_key=colour", status=400)
    await member("GET", "/networks?limit=x", status=400)
    assert len((await member("GET", "/networks?name=a&name=b", status=200))["networks"]) == 3
    assert (await member("GET", "/networks?status=DOWN", status=200))["networks"] == []


async def test_a_marker_that_the_caller_does_not_see_is_as_one_that_is_not_there(member, other):
    mine, mine_subnet = await make_network(member)
    theirs, _ = await make_network(other)
    ports = []
    for client, network in ((member, mine), (other, theirs)):
        ports.append((await client("POST", "/ports", {"port": {"network_id": network["id"]}}, 201))["port"])
    rule = (await member("GET", "/security-group-rules", status=200))["security_group_rules"][0]
    # As Neutron: ports are not found, the other lists begin anew; without a limit a marker means nothing.
    for marker in (ALIEN, ports[0]["id"]):
        lost = await other("GET", f"/ports?limit=1&marker={marker}", status=404)
        assert lost["NeutronError"]["type"] == "PortNotFound"
        assert [p["id"] for p in (await other("GET", f"/ports?marker={marker}", status=200))["ports"]] == [
            ports[1]["id"]
        ]
    for plural, invisible in (
        ("networks", mine["id"]),
        ("subnets", mine_subnet["id"]),
        ("security-groups", rule["security_group_id"]),
        ("security-group-rules", rule["id"]),
    ):
        kind = plural.replace("-", "_")
        for limit in ("limit=1&", ""):
            first = (await other("GET", f"/{plural}?{limit}", status=200))[kind]
            assert first
            for marker in (ALIEN, invisible):
                page = await other("GET", f"/{plural}?{limit}marker={marker}", status=200)
                assert page[kind] == first


async def test_what_was_read_at_another_revision_is_neither_changed_nor_deleted(member):
    network, subnet = await make_network(member)
    port = (await member("POST", "/ports", {"port": {"network_id": network["id"]}}, 201))["port"]
    group = (await member("POST", "/security-groups", {"security_group": {"name": "g"}}, 201))[
        "security_group"
    ]
    rule = group["security_group_rules"][0]
    for plural, thing in (
        ("security-group-rules", rule),
        ("ports", port),
        ("security-groups", group),
        ("subnets", subnet),
        ("networks", network),
    ):
        path, kind = f"/{plural}/{thing['id']}", plural.replace("-", "_")[:-1]
        now = (await member("GET", path, status=200))[kind]["revision_number"]
        for wrong in ("9999", "x", "\u00b2", "9" * 30):
            status = 412 if wrong == "9999" else 400
            await member("DELETE", path, status=status, If_Match=f"revision_number={wrong}".encode("latin-1"))
        if kind != "security_group_rule":
            await member("PUT", path, {kind: {"name": "x"}}, 412, If_Match="revision_number=9999")
        await member("DELETE", path, status=204, If_Match=f"revision_number={now}")


async def test_a_filter_that_a_resource_does_not_have_is_refused(member, admin):
    for plural in ("networks", "subnets", "ports", "security-groups", "security-group-rules"):
        refused = await member("GET", f"/{plural}?colour=red", status=400)
        assert "colour" in refused["NeutronError"]["message"]
        await member("GET", f"/{plural}?project_id=p1&fields=id&limit=1", status=200)
    await admin("GET", "/agents?colour=red", status=400)


async def test_what_one_may_not_read_is_not_found_out_by_filters(member, admin):
    network, _ = await make_network(member)
    host = {"network_id": network["id"], "project_id": "p1", "binding:host_id": "h1"}
    await admin("POST", "/ports", {"port": host}, 201)
    assert len((await member("GET", "/ports", status=200))["ports"]) == 1
    shown = (await admin("GET", f"/networks/{network['id']}", status=200))["network"]
    for plural, query in (
        ("ports", "binding:host_id=h1"),
        ("networks", f"provider:network_type={shown['provider:network_type']}"),
        ("networks", f"provider:segmentation_id={shown['provider:segmentation_id']}"),
    ):
        assert (await member("GET", f"/{plural}?{query}", status=200))[plural] == []
        assert len((await admin("GET", f"/{plural}?{query}", status=200))[plural]) == 1


async def test_an_id_has_one_spelling(member):
    network, _ = await make_network(member)
    await member("GET", f"/networks/{network['id']}", status=200)
    for other_form in (network["id"].upper(), network["id"].replace("-", "")):
        await member("GET", f"/networks/{other_form}", status=404)
        await member("PUT", f"/networks/{other_form}", {"network": {"name": "x"}}, 404)
        assert (await member("GET", f"/networks?id={other_form}", status=200))["networks"] == []


async def test_lists_are_filtered_by_tags(member):
    made = {}
    for tags in ("", "a", "a,b"):
        made[tags] = (await make_network(member, name=tags or "none"))[0]["id"]
        await member(
            "PUT", f"/networks/{made[tags]}/tags", {"tags": tags.split(",") if tags else []}, status=200
        )
    for query, wanted in (
        ("tags=a", {"a", "a,b"}),
        ("tags=a,b", {"a,b"}),
        ("tags-any=b,c", {"a,b"}),
        ("not-tags=a,b", {"", "a"}),
        ("not-tags-any=a,b", {""}),
    ):
        found = (await member("GET", f"/networks?{query}", status=200))["networks"]
        assert {n["id"] for n in found} == {made[w] for w in wanted}, query


async def test_tags(member):
    network, _ = await make_network(member)
    path = f"/networks/{network['id']}"
    await member("PUT", f"{path}/tags", {"tags": ["b", "a"]}, 200)
    await member("PUT", f"{path}/tags/c", status=201)
    assert (await member("GET", path, status=200))["network"]["tags"] == ["a", "b", "c"]
    await member("GET", f"{path}/tags/c", status=204)
    await member("DELETE", f"{path}/tags/c", status=204)
    await member("GET", f"{path}/tags/c", status=404)
