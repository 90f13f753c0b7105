"""Flavors, keypairs, quotas, zones, hosts and groups."""

import pytest

P1 = "11111111111111111111111111111111"
P2 = "22222222222222222222222222222222"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBnA7HtHCcUG6VbQnVNzJ1oGJ9dUaeQ5BOYmT7s3hB5k someone"


async def test_versions(member):
    found = await member("GET", "/", root="")
    [version] = found["versions"]
    assert (version["min_version"], version["version"]) == ("2.1", "2.96")
    assert version["links"][0]["href"].endswith("/v2.1/")
    assert (await member("GET", "/"))["version"]["id"] == "v2.1"
    await member("GET", "/servers", status=406, version="2.97")
    answer = await member.raw("GET", f"/{P1}/servers", version="2.1")
    assert answer.status_code == 200
    assert answer.headers["x-openstack-nova-api-version"] == "2.1"
    assert answer.headers["openstack-api-version"] == "compute 2.1"
    await member("POST", "/flavors/detail", {}, 405)
    await member("GET", "/nothing", status=404)


async def test_a_flavors_life(member, admin):
    made = await admin.flavor("7", description="seven", ram="1024", **{"OS-FLV-EXT-DATA:ephemeral": 2})
    assert (made["ram"], made["OS-FLV-EXT-DATA:ephemeral"], made["description"]) == (1024, 2, "seven")
    assert made["extra_specs"] == {}
    assert (await member("GET", "/flavors/7", version="2.1"))["flavor"]["swap"] == ""
    await member("POST", "/flavors", {"flavor": {"name": "x", "ram": 1, "vcpus": 1, "disk": 1}}, 403)
    for wrong in (
        {"ram": 0},
        {"ram": "x"},
        {"vcpus": -1},
        {"name": " "},
        {"id": " x"},
        {"rxtx_factor": 0},
        {"more": 1},
    ):
        body = {"name": "x", "ram": 1, "vcpus": 1, "disk": 1, **wrong}
        await admin("POST", "/flavors", {"flavor": body}, 400)
    same = {"flavor": {"name": "f7", "ram": 1, "vcpus": 1, "disk": 1}}
    assert "name f7" in (await admin("POST", "/flavors", same, 409))["conflictingRequest"]["message"]
    specs = await admin("POST", "/flavors/7/os-extra_specs", {"extra_specs": {"hw:a": "1", "b": "2"}})
    assert specs == {"extra_specs": {"hw:a": "1", "b": "2"}}
    await admin("PUT", "/flavors/7/os-extra_specs/b", {"c": "2"}, 400)
    assert await admin("PUT", "/flavors/7/os-extra_specs/b", {"b": "3"}) == {"b": "3"}
    await admin("DELETE", "/flavors/7/os-extra_specs/b")
    await admin("DELETE", "/flavors/7/os-extra_specs/b", status=404)
    assert (await member("GET", "/flavors/7"))["flavor"]["extra_specs"] == {"hw:a": "1"}
    changed = await admin("PUT", "/flavors/7", {"flavor": {"description": None}})
    assert changed["flavor"]["description"] is None
    await admin("DELETE", "/flavors/7", status=202)
    await admin("DELETE", "/flavors/7", status=404)


async def test_private_flavors(member, other, admin):
    await admin.flavor("p", **{"os-flavor-access:is_public": False})
    await member("GET", "/flavors/p", status=404)
    assert (await admin("GET", "/flavors/p/os-flavor-access"))["flavor_access"] == []
    granted = await admin("POST", "/flavors/p/action", {"addTenantAccess": {"tenant": P1}})
    assert granted["flavor_access"] == [{"flavor_id": "p", "tenant_id": P1}]
    await admin("POST", "/flavors/p/action", {"addTenantAccess": {"tenant": P1}}, 409)
    await member("GET", "/flavors/p")
    await other("GET", "/flavors/p", status=404)
    assert [f["id"] for f in (await member("GET", "/flavors"))["flavors"]] == ["p"]
    assert (await other("GET", "/flavors"))["flavors"] == []
    assert [f["id"] for f in (await admin("GET", "/flavors?is_public=none"))["flavors"]] == ["p"]
    await admin("POST", "/flavors/p/action", {"removeTenantAccess": {"tenant": P1}})
    await admin("POST", "/flavors/p/action", {"removeTenantAccess": {"tenant": P1}}, 404)
    refused = [await member("GET", f"/flavors?marker={marker}", status=400) for marker in ("p", "q")]
    assert str(refused[0]).replace("marker p", "marker q") == str(refused[1])
    assert (await admin("GET", "/flavors?is_public=none&marker=p"))["flavors"] == []
    await member("GET", "/flavors/p", status=404)


async def test_lists_of_flavors(member, admin):
    for number, ram in (("1", 512), ("2", 256), ("3", 1024)):
        await admin.flavor(number, ram=ram)
    page = await member("GET", "/flavors?limit=2&sort_key=memory_mb&sort_dir=desc")
    assert [f["id"] for f in page["flavors"]] == ["3", "1"]
    rest = await member("GET", page["flavors_links"][0]["href"].partition("/v2.1")[2])
    assert [f["id"] for f in rest["flavors"]] == ["2"]
    assert [f["id"] for f in (await member("GET", "/flavors/detail?minRam=512"))["flavors"]] == ["1", "3"]
    for wrong in ("limit=x", "marker=none", "sort_key=none", "sort_dir=up", "minRam=x", "other=1"):
        await member("GET", f"/flavors?{wrong}", status=400)


async def test_keypairs(member, other, admin):
    made = (await member("POST", "/os-keypairs", {"keypair": {"name": "k@home", "public_key": KEY}}, 201))[
        "keypair"
    ]
    assert made["type"] == "ssh"
    assert made["fingerprint"].count(":") == 15
    assert "private_key" not in made
    await member("POST", "/os-keypairs", {"keypair": {"name": "k@home", "public_key": KEY}}, 409)
    await member("POST", "/os-keypairs", {"keypair": {"name": "x"}}, 400)
    await member("POST", "/os-keypairs", {"keypair": {"name": "a@b", "public_key": KEY}}, 400, version="2.91")
    for key in ("", "ssh-rsa", "ssh-rsa AAAA", "no key at all"):
        refused = await member("POST", "/os-keypairs", {"keypair": {"name": "x", "public_key": key}}, 400)
        assert "public_key" in refused["badRequest"]["message"]
    generated = (await member("POST", "/os-keypairs", {"keypair": {"name": "gen"}}, version="2.1"))["keypair"]
    assert generated["private_key"].startswith("-----BEGIN RSA PRIVATE KEY-----")
    assert "type" not in generated
    assert (await other("GET", "/os-keypairs"))["keypairs"] == []
    await other("GET", "/os-keypairs/k@home", status=404)
    await other("GET", "/os-keypairs/k@home?user_id=u1", status=403)
    assert (await admin("GET", "/os-keypairs/k@home?user_id=u1"))["keypair"]["user_id"] == "u1"
    page = await member("GET", "/os-keypairs?limit=1")
    assert [k["keypair"]["name"] for k in page["keypairs"]] == ["gen"]
    assert page["keypairs_links"]
    await admin("PUT", "/os-quota-class-sets/default", {"quota_class_set": {"key_pairs": 2}})
    await member("POST", "/os-keypairs", {"keypair": {"name": "more", "public_key": KEY}}, 403)
    await member("DELETE", "/os-keypairs/gen", status=204)
    await member("DELETE", "/os-keypairs/gen", status=404)


async def test_quota_sets(member, other, admin):
    own = await admin("PUT", f"/os-quota-sets/{P1}", {"quota_set": {"cores": "7"}})
    assert own["quota_set"]["cores"] == 7
    await admin("PUT", "/os-quota-class-sets/default", {"quota_class_set": {"cores": 5, "ram": 4096}})
    shown = (await member("GET", f"/os-quota-sets/{P1}"))["quota_set"]
    assert (shown["cores"], shown["ram"], shown["id"]) == (7, 4096, P1)
    assert (await other("GET", f"/os-quota-sets/{P2}"))["quota_set"]["cores"] == 5
    await member("GET", f"/os-quota-sets/{P2}", status=403)
    await member("PUT", f"/os-quota-sets/{P1}", {"quota_set": {"cores": 70}}, 403)
    for wrong in ({"cores": -2}, {"cores": "x"}, {"nothing": 1}, {"floating_ips": 1}, {"injected_files": 1}):
        await admin("PUT", f"/os-quota-sets/{P1}", {"quota_set": wrong}, 400)
    assert "floating_ips" in (await member("GET", f"/os-quota-sets/{P1}", version="2.35"))["quota_set"]
    await admin("DELETE", f"/os-quota-sets/{P1}", status=202)
    assert (await member("GET", f"/os-quota-sets/{P1}"))["quota_set"]["cores"] == 5


async def test_a_quota_below_what_is_used_needs_force(member, admin):
    await admin.flavor()
    await member.server()
    await admin("PUT", f"/os-quota-sets/{P1}", {"quota_set": {"instances": 0}}, 400)
    await admin("PUT", f"/os-quota-sets/{P1}", {"quota_set": {"instances": 0, "force": True}})


async def test_zones_and_aggregates(member, admin, world):
    await world.host("h1")
    await world.host("h2")
    await admin.flavor()
    made = (await admin("POST", "/os-aggregates", {"aggregate": {"name": "a", "availability_zone": "z1"}}))[
        "aggregate"
    ]
    path = f"/os-aggregates/{made['id']}"
    await admin("POST", "/os-aggregates", {"aggregate": {"name": "a"}}, 409)
    added = (await admin("POST", f"{path}/action", {"add_host": {"host": "h1"}}))["aggregate"]
    assert added["hosts"] == ["h1"]
    await admin("POST", f"{path}/action", {"add_host": {"host": "h1"}}, 409)
    await admin("POST", f"{path}/action", {"add_host": {"host": "nowhere"}}, 404)
    zones = (await member("GET", "/os-availability-zone"))["availabilityZoneInfo"]
    assert [(z["zoneName"], z["zoneState"]["available"], z["hosts"]) for z in zones] == [
        ("nova", True, None),
        ("z1", True, None),
    ]
    detail = (await admin("GET", "/os-availability-zone/detail"))["availabilityZoneInfo"]
    assert set(detail[1]["hosts"]) == {"h1"}
    await member("GET", "/os-availability-zone/detail", status=403)
    second = (await admin("POST", "/os-aggregates", {"aggregate": {"name": "b", "availability_zone": "z2"}}))[
        "aggregate"
    ]
    await admin("POST", f"/os-aggregates/{second['id']}/action", {"add_host": {"host": "h1"}}, 409)
    server_id = await member.server(availability_zone="z1")
    await world.run(server_id, "h1", "z1")
    assert (await member("GET", f"/servers/{server_id}"))["server"]["OS-EXT-AZ:availability_zone"] == "z1"
    # A server on the host was promised its zone.
    await admin("POST", f"{path}/action", {"remove_host": {"host": "h1"}}, 409)
    await admin("PUT", path, {"aggregate": {"availability_zone": "z9"}}, 400)
    await admin("POST", f"{path}/action", {"set_metadata": {"metadata": {"availability_zone": ""}}}, 400)
    changed = await admin(
        "POST", f"{path}/action", {"set_metadata": {"metadata": {"ssd": "true", "none": None}}}
    )
    assert changed["aggregate"]["metadata"] == {"availability_zone": "z1", "ssd": "true"}
    await admin("DELETE", path, status=400)
    await admin("DELETE", f"/os-aggregates/{second['id']}")
    await admin("GET", f"/os-aggregates/{second['id']}", status=404)
    await admin("GET", "/os-aggregates/x", status=404)
    await member("GET", "/os-aggregates", status=403)


async def test_hypervisors_and_services(member, admin, world):
    await admin.flavor()
    for name in ("h1", "h2", "h3"):
        await world.host(name)
    server_id = await member.server()
    await world.run(server_id, "h2")
    found = (await admin("GET", "/os-hypervisors/detail?with_servers=true"))["hypervisors"]
    assert [h["hypervisor_hostname"] for h in found] == ["h1", "h2", "h3"]
    assert [s["uuid"] for s in found[1]["servers"]] == [server_id]
    assert "servers" not in found[0]
    assert "vcpus" not in found[0]
    older = (await admin("GET", "/os-hypervisors/detail", version="2.87"))["hypervisors"]
    assert (older[1]["vcpus"], older[1]["vcpus_used"], older[1]["running_vms"]) == (8, 1, 1)
    oldest = (await admin("GET", "/os-hypervisors", version="2.1"))["hypervisors"]
    assert all(isinstance(h["id"], int) for h in oldest)
    await admin("GET", f"/os-hypervisors/{oldest[0]['id']}", version="2.1")
    path = f"/os-hypervisors/{older[1]['id']}/uptime"
    assert (await admin("GET", path, version="2.87"))["hypervisor"]["uptime"] == ""
    await admin("GET", path, version="2.88", status=404)
    assert (await admin("GET", "/os-hypervisors/statistics", version="2.1"))["hypervisor_statistics"][
        "count"
    ] == 3
    # A number is an id before 2.53 alone; what can be no id is refused from then on, and not found before.
    nowhere = "00000000-0000-4000-8000-000000000000"
    for name, since_uuids, before in (
        (str(oldest[0]["id"]), 400, 200),
        ("h1", 400, 404),
        ("9999", 400, 404),
        (nowhere, 404, 404),
    ):
        await admin("GET", f"/os-hypervisors/{name}", version="2.53", status=since_uuids)
        await admin("GET", f"/os-hypervisors/{name}", version="2.52", status=before)
        await admin("PUT", f"/os-services/{name}", {"status": "enabled"}, since_uuids)
    page = await admin("GET", "/os-hypervisors?limit=2")
    rest = await admin("GET", page["hypervisors_links"][0]["href"].partition("/v2.1")[2])
    assert [h["hypervisor_hostname"] for h in rest["hypervisors"]] == ["h3"]
    await admin("GET", "/os-hypervisors?hypervisor_hostname_pattern=zz", status=404)
    service = f"/os-services/{found[0]['id']}"
    changed = (await admin("PUT", service, {"status": "disabled", "disabled_reason": "repair"}))["service"]
    assert (changed["status"], changed["disabled_reason"], changed["state"]) == ("disabled", "repair", "up")
    [shown] = (await admin("GET", "/os-services?host=h1"))["services"]
    assert (shown["binary"], shown["status"], shown["zone"]) == ("nova-compute", "disabled", "nova")
    assert (await admin("GET", "/os-services?binary=nova-conductor"))["services"] == []
    await admin("PUT", service, {"status": "enabled", "disabled_reason": "x"}, 400)
    wrong = await admin("PUT", service, {"status": "maybe"}, 400)
    assert wrong["badRequest"]["message"].endswith("one of 'disabled', 'enabled' is needed.")
    await admin("PUT", service, {"status": "enabled"})
    by_name = {"host": "h2", "binary": "nova-compute"}
    done = await admin("PUT", "/os-services/disable", by_name, version="2.1")
    assert done == {"service": {**by_name, "status": "disabled"}}
    await admin("PUT", "/os-services/disable", {**by_name, "host": "nowhere"}, 404, version="2.1")
    await member("GET", "/os-services", status=403)
    await member("GET", "/os-hypervisors", status=403)


async def test_server_groups(member, other, admin):
    await admin.flavor()
    sent = {"name": "g", "policy": "anti-affinity", "rules": {"max_server_per_host": 2}}
    made = (await member("POST", "/os-server-groups", {"server_group": sent}))["server_group"]
    assert (made["policy"], made["rules"], made["project_id"]) == (
        "anti-affinity",
        {"max_server_per_host": 2},
        P1,
    )
    hints = {"os:scheduler_hints": {"group": made["id"]}}
    body = {
        "name": "s",
        "flavorRef": "1",
        "imageRef": "10000000-0000-4000-8000-000000000001",
        "networks": "none",
    }
    server_id = (await member("POST", "/servers", {"server": body, **hints}, 202))["server"]["id"]
    await other("POST", "/servers", {"server": body, **hints}, 400)
    assert (await member("GET", f"/os-server-groups/{made['id']}"))["server_group"]["members"] == [server_id]
    assert (await member("GET", f"/servers/{server_id}"))["server"]["server_groups"] == [made["id"]]
    await other("GET", f"/os-server-groups/{made['id']}", status=404)
    await other("DELETE", f"/os-server-groups/{made['id']}", status=404)
    assert (await other("GET", "/os-server-groups"))["server_groups"] == []
    assert len((await admin("GET", "/os-server-groups?all_projects=1"))["server_groups"]) == 1
    for wrong in (
        {"policy": "none"},
        {"policy": "affinity", "rules": {"max_server_per_host": 1}},
        {"policies": ["affinity"]},
    ):
        await member("POST", "/os-server-groups", {"server_group": {"name": "x", **wrong}}, 400)
    older = {"server_group": {"name": "x", "policies": ["soft-affinity"]}}
    await member("POST", "/os-server-groups", older, 400, version="2.14")
    assert (await member("POST", "/os-server-groups", older, version="2.15"))["server_group"]["policies"] == [
        "soft-affinity"
    ]
    await admin("PUT", f"/os-quota-sets/{P1}", {"quota_set": {"server_groups": 2, "force": True}})
    await member("POST", "/os-server-groups", {"server_group": sent}, 403)
    await member("DELETE", f"/os-server-groups/{made['id']}", status=204)
    assert (await member("GET", f"/servers/{server_id}"))["server"]["server_groups"] == []


@pytest.mark.parametrize(
    "path", ["/servers", "/flavors", "/os-keypairs", "/os-aggregates", "/os-server-groups"]
)
async def test_bodies_that_are_no_objects(admin, path):
    for body in ([], "x", 7, {}, {"x": {}}):
        await admin("POST", path, body, 400)
