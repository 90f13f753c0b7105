"""A world to send requests into: one project's things of every kind, whose free texts carry a mark, made over HTTP.

``World.path`` fills a path of the tables with them.
"""

from typing import Any

import msgspec

from moorage.core.ids import new_id
from moorage.store.database import Database
from tests.support.cloud import Client, TestCloud

MARK = "marked-a7f3"
# Flavors are everybody's: nothing of theirs is marked.
SPEC = "public-spec"
CLASS, TRAIT = "CUSTOM_MARKED", "CUSTOM_MARKED_TRAIT"


class World(msgspec.Struct, kw_only=True):
    """Ids. ``stopped`` is a server that is off; of the resource providers, ``spare`` holds nothing and ``stocked`` an
    unused inventory; ``ticket`` enrols a host."""

    project: str
    image: str
    flavor: str
    private_flavor: str
    network: str
    empty_network: str
    subnet: str
    empty_subnet: str
    port: str
    used_port: str
    group: str
    default_group: str
    rule: str
    server: str
    stopped: str
    server_group: str
    aggregate: str
    full_aggregate: str
    action: str
    operation: str
    stuck: str
    host: str
    host_id: str
    host_number: str
    spare: str
    stocked: str
    ticket: str
    agent: str

    def path(self, port: str, template: str) -> str:
        """A path of the tables with this world's ids in it."""
        collection = template.removeprefix("/v2.0").lstrip("/").partition("/")[0]
        ids = self._network_ids() if port == "network" else self._ids()
        if "/flavors/" in template:
            template = template.replace("{key}", SPEC)
        for name, value in {**ids, "id": ids.get(collection, "")}.items():
            template = template.replace(f"{{{name}}}", value)
        if collection == "traits":
            return template.replace("{name}", TRAIT)
        return template.replace("{name}", MARK if "os-keypairs" in template else CLASS)

    def _network_ids(self) -> dict[str, str]:
        return {
            "extensions": "agent",
            "agents": self.agent,
            "networks": self.network,
            "subnets": self.subnet,
            "ports": self.port,
            "security-groups": self.group,
            "security-group-rules": self.rule,
            "quotas": self.project,
            "tag": MARK,
        }

    def _ids(self) -> dict[str, str]:
        return {
            "server_id": self.server,
            "key": MARK,
            "tag": MARK,
            "network": MARK,
            "port_id": self.used_port,
            "request_id": self.action,
            "flavor_id": self.flavor,
            "project_id": self.project,
            "class_id": "default",
            "group_id": self.server_group,
            "hypervisor_id": self.host_id,
            "service_id": self.host_id,
            "aggregate_id": self.aggregate,
            "uuid": self.host_id,
            "resource_class": "VCPU",
            "consumer": self.server,
            "operation_id": self.operation,
            "image_id": self.image,
        }


async def make_world(cloud: TestCloud, database: Database, image: str) -> World:
    """Make the things, for the project demo. The cloud has simulated hosts."""
    demo, admin = await cloud.client("demo"), await cloud.client("admin")
    found: dict[str, Any] = {"project": cloud.identity.users["demo"].project_id, "image": image}
    found |= await _networks(demo)
    found |= await _flavors(admin, found["project"])
    found |= await _servers(demo, found)
    found |= await _hosts(admin)
    found |= await _operations(admin, database, found["server"])
    return World(**found)


async def _networks(demo: Client) -> dict[str, str]:
    async def one(path: str, kind: str, **body: Any) -> str:
        made = await demo.make("network", path, {kind: {"description": MARK, **body}})
        return str(made[kind]["id"])

    network = await one("/networks", "network", name=MARK)
    empty = await one("/networks", "network", name=f"{MARK} empty")
    subnets = [
        await one("/subnets", "subnet", name=MARK, network_id=n, cidr="10.9.0.0/24", ip_version=4)
        for n in (network, empty)
    ]
    group = await one("/security-groups", "security_group", name=MARK)
    rule = await one(
        "/security-group-rules",
        "security_group_rule",
        security_group_id=group,
        direction="ingress",
        protocol="tcp",
    )
    port = await one("/ports", "port", name=MARK, network_id=network)
    used = await one("/ports", "port", name=MARK, network_id=network, dns_name=MARK)
    for plural, each in (
        ("networks", network),
        ("subnets", subnets[0]),
        ("ports", port),
        ("security-groups", group),
    ):
        status, _ = await demo.request("network", "PUT", f"/{plural}/{each}/tags", {"tags": [MARK]})
        assert status == 200
    groups = await demo.get("network", "/security-groups?name=default")
    return {
        "network": network,
        "empty_network": empty,
        "subnet": subnets[0],
        "empty_subnet": subnets[1],
        "port": port,
        "used_port": used,
        "group": group,
        "default_group": groups["security_groups"][0]["id"],
        "rule": rule,
    }


async def _flavors(admin: Client, project: str) -> dict[str, str]:
    size = {"ram": 64, "vcpus": 1, "disk": 1}
    flavor = (await admin.make("compute", "/flavors", {"flavor": {"name": "tiny", **size}}))["flavor"]["id"]
    specs = {"extra_specs": {SPEC: "1"}}
    await admin.request("compute", "POST", f"/flavors/{flavor}/os-extra_specs", specs)
    hidden = {"name": f"{MARK} private", "os-flavor-access:is_public": False, **size}
    private = (await admin.make("compute", "/flavors", {"flavor": hidden}))["flavor"]["id"]
    access = {"addTenantAccess": {"tenant": project}}
    await admin.request("compute", "POST", f"/flavors/{private}/action", access)
    return {"flavor": flavor, "private_flavor": private}


async def _servers(demo: Client, found: dict[str, str]) -> dict[str, str]:
    group = {"server_group": {"name": MARK, "policies": ["affinity"]}}
    server_group = (await demo.make("compute", "/os-server-groups", group))["server_group"]["id"]
    await demo.make("compute", "/os-keypairs", {"keypair": {"name": MARK}})
    body = {
        "name": MARK,
        "imageRef": found["image"],
        "flavorRef": found["flavor"],
        "description": MARK,
        "metadata": {MARK: MARK},
        "tags": [MARK],
        "key_name": MARK,
    }
    ids = []
    for nets in ([{"port": found["used_port"]}], [{"uuid": found["network"]}]):
        made = await demo.make("compute", "/servers", {"server": {**body, "networks": nets}}, version="2.96")
        ids.append(made["server"]["id"])
    for each in ids:
        shown = await demo.wait_for(each, "ACTIVE", "ERROR")
        assert shown["status"] == "ACTIVE", shown
    await demo.request("compute", "POST", f"/servers/{ids[1]}/action", {"os-stop": None})
    await demo.wait_for(ids[1], "SHUTOFF")
    actions = await demo.get("compute", f"/servers/{ids[0]}/os-instance-actions")
    return {
        "server_group": server_group,
        "server": ids[0],
        "stopped": ids[1],
        "action": actions["instanceActions"][0]["request_id"],
    }


async def _hosts(admin: Client) -> dict[str, str]:
    aggregates = []
    for name in (MARK, f"{MARK} full"):
        made = await admin.make("compute", "/os-aggregates", {"aggregate": {"name": name}})
        aggregates.append(str(made["aggregate"]["id"]))
    host = (await admin.get("network", "/agents"))["agents"][0]
    for path in (f"/resource_classes/{CLASS}", f"/traits/{TRAIT}"):
        status, _ = await admin.request("placement", "PUT", path, version="1.39")
        assert status == 201
    spare = new_id()
    await admin.request("placement", "POST", "/resource_providers", {"name": f"{MARK} spare", "uuid": spare})
    stocked = new_id()
    await admin.request(
        "placement", "POST", "/resource_providers", {"name": f"{MARK} stocked", "uuid": stocked}
    )
    stock = {"resource_class": "VCPU", "total": 2}
    await admin.request("placement", "POST", f"/resource_providers/{stocked}/inventories", stock)
    ticket = await admin.make("compute", "/moorage/v1/hosts/new-host/ticket", None)
    hypervisors = (await admin.get("compute", "/os-hypervisors", version="2.96"))["hypervisors"]
    first = min(hypervisors, key=lambda h: str(h["hypervisor_hostname"]))
    older = (await admin.get("compute", "/os-hypervisors", version="2.52"))["hypervisors"]
    number = next(h["id"] for h in older if h["hypervisor_hostname"] == first["hypervisor_hostname"])
    add = {"add_host": {"host": first["hypervisor_hostname"]}}
    await admin.make("compute", f"/os-aggregates/{aggregates[1]}/action", add)
    return {
        "aggregate": aggregates[0],
        "full_aggregate": aggregates[1],
        "agent": host["id"],
        "host": first["hypervisor_hostname"],
        "host_id": first["id"],
        "host_number": str(number),
        "spare": spare,
        "stocked": stocked,
        "ticket": ticket["ticket"],
    }


async def _operations(admin: Client, database: Database, server: str) -> dict[str, str]:
    done = await admin.get("compute", f"/moorage/v1/operations?subject=server:{server}&state=done")
    # How an operation gets stuck is for other tests; here one is needed.
    stuck = new_id()
    async with database.transaction() as tx:
        await tx.execute(_COPY_AS_STUCK, (done["operations"][0]["id"], stuck))
    return {"operation": done["operations"][0]["id"], "stuck": stuck}


_COPY_AS_STUCK = """
INSERT INTO operations OVERRIDING SYSTEM VALUE
SELECT (jsonb_populate_record(o, jsonb_build_object(
    'id', $2::text, 'seq', 1000000, 'state', 'stuck', 'subject', 'server:none'))).*
FROM operations o WHERE id = $1
"""
