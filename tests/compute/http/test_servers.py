"""/servers, request by request, as several projects see it."""

import asyncio

import pytest

IMAGE = "10000000-0000-4000-8000-000000000001"
BIG_IMAGE = "10000000-0000-4000-8000-000000000002"
QUEUED_IMAGE = "10000000-0000-4000-8000-000000000003"
NOWHERE = "00000000-0000-4000-8000-000000000000"
P1 = "11111111111111111111111111111111"

pytestmark = pytest.mark.usefixtures("flavor")


def body(**more):
    return {"server": {"name": "s", "flavorRef": "1", "imageRef": IMAGE, "networks": "none", **more}}


async def test_a_new_server_is_being_built(member, world):
    answer = await member.raw("POST", "/servers", body(metadata={"a": "b"}, tags=["t"], description="d"))
    assert answer.status_code == 202
    server_id = answer.json()["server"]["id"]
    assert answer.headers["location"].endswith(f"/v2.1/servers/{server_id}")
    shown = (await member("GET", f"/servers/{server_id}"))["server"]
    assert shown["status"] == "BUILD"
    assert shown["OS-EXT-STS:task_state"] == "scheduling"
    assert (shown["metadata"], shown["tags"], shown["description"]) == ({"a": "b"}, ["t"], "d")
    assert shown["flavor"]["original_name"] == "f1"
    assert shown["addresses"] == {}
    assert shown["hostId"] == ""
    async with world.database.read() as tx:
        kinds = [row[0] for row in await tx.fetch("SELECT kind FROM operations")]
    assert kinds == ["server.boot"]


async def test_a_running_server_has_addresses_and_a_host(member, admin, world):
    await world.host("h1")
    network = await world.network()
    server_id = await member.server(networks=[{"uuid": network}])
    await world.run(server_id, "h1")
    shown = (await member("GET", f"/servers/{server_id}"))["server"]
    assert shown["status"] == "ACTIVE"
    assert shown["progress"] == 100
    [address] = shown["addresses"]["net"]
    assert address["addr"].startswith("10.0.0.")
    assert shown["security_groups"] == [{"name": "default"}]
    assert len(shown["hostId"]) == 56
    assert "OS-EXT-SRV-ATTR:host" not in shown
    for_admin = (await admin("GET", f"/servers/{server_id}"))["server"]
    assert for_admin["OS-EXT-SRV-ATTR:host"] == "h1"
    assert for_admin["host_status"] == "UP"
    await admin("POST", "/servers", body(host="nowhere"), 400)
    await admin("POST", "/servers", body(host="h1"), 202)
    ips = await member("GET", f"/servers/{server_id}/ips/net")
    assert ips == {"net": [{"version": 4, "addr": address["addr"]}]}
    [interface] = (await member("GET", f"/servers/{server_id}/os-interface"))["interfaceAttachments"]
    assert interface["net_id"] == network
    await member("GET", f"/servers/{server_id}/os-interface/{interface['port_id']}")
    [found] = (await member("GET", f"/servers?ip={address['addr']}"))["servers"]
    assert found["id"] == server_id
    assert (await member("GET", "/servers?ip=192.168"))["servers"] == []


async def test_an_id_has_one_spelling(member):
    server_id = await member.server()
    await member("GET", f"/servers/{server_id}")
    for other_form in (server_id.upper(), server_id.replace("-", "")):
        await member("GET", f"/servers/{other_form}", status=404)
        await member("DELETE", f"/servers/{other_form}", status=404)
        await member("GET", f"/servers?marker={other_form}", status=400)


async def test_other_projects_servers_are_not_found(member, other, admin):
    server_id = await member.server()
    for method, path, sent in (
        ("GET", "", None),
        ("DELETE", "", None),
        ("PUT", "", {"server": {"name": "mine"}}),
        ("GET", "/metadata", None),
        ("PUT", "/metadata/a", {"meta": {"a": "b"}}),
        ("GET", "/tags", None),
        ("PUT", "/tags/a", None),
        ("GET", "/ips", None),
        ("GET", "/os-interface", None),
        ("GET", "/os-volume_attachments", None),
        ("GET", "/os-security-groups", None),
        ("GET", "/os-instance-actions", None),
        ("POST", "/action", {"os-start": None}),
        ("POST", "/action", {"reboot": {"type": "HARD"}}),
        ("POST", "/action", {"lock": None}),
        ("POST", "/action", {"os-getConsoleOutput": {}}),
    ):
        found = await other(method, f"/servers/{server_id}{path}", sent, 404)
        assert found["itemNotFound"]["code"] == 404
    assert (await other("GET", "/servers"))["servers"] == []
    await other("GET", "/servers?all_tenants=1", status=403)
    assert len((await admin("GET", "/servers?all_tenants=1"))["servers"]) == 1
    assert (await admin("GET", "/servers"))["servers"] == []
    assert len((await admin("GET", f"/servers?project_id={P1}"))["servers"]) == 1


async def test_a_reader_only_reads(reader, member):
    server_id = await member.server()
    await reader("GET", f"/servers/{server_id}")
    await reader("POST", "/servers", body(), 403)
    await reader("DELETE", f"/servers/{server_id}", status=403)
    await reader("POST", f"/servers/{server_id}/action", {"os-stop": None}, 403)


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"flavorRef": "none"}, 400, "flavorRef"),
        ({"imageRef": NOWHERE}, 400, NOWHERE),
        ({"imageRef": "x"}, 400, "imageRef"),
        ({"imageRef": ""}, 400, "imageRef"),
        ({"imageRef": BIG_IMAGE}, 400, "too small"),
        ({"imageRef": QUEUED_IMAGE}, 400, "not active"),
        ({"key_name": "none"}, 400, "key_name"),
        ({"name": ""}, 400, "server.name"),
        ({"name": "x" * 256}, 400, "server.name"),
        ({"name": 7}, 400, "server.name"),
        ({"unknown": 1}, 400, "unknown"),
        ({"networks": "some"}, 400, "networks"),
        ({"networks": [{"uuid": NOWHERE}]}, 400, NOWHERE),
        ({"networks": [{"port": NOWHERE}]}, 400, NOWHERE),
        ({"networks": [{}]}, 400, "networks[0]"),
        ({"networks": [{"uuid": "x"}]}, 400, "uuid"),
        ({"networks": "auto"}, 400, "none"),
        ({"security_groups": [{"name": "none"}]}, 400, "none"),
        ({"availability_zone": "none"}, 400, "availability zone"),
        ({"host": "h1"}, 403, "forced_host"),
        ({"min_count": 2, "max_count": 1}, 400, "min_count"),
        ({"min_count": 0}, 400, "min_count"),
        ({"user_data": "!"}, 400, "user_data"),
        ({"user_data": "QUJD" * 20000}, 400, "user_data"),
        ({"metadata": {"a": 1}}, 400, "metadata.a"),
        ({"metadata": {"a": "x" * 256}}, 400, "metadata.a"),
        ({"metadata": {"ü": "x"}}, 400, "metadata"),
        ({"tags": ["a,b"]}, 400, "tags"),
        ({"hostname": "a b"}, 400, "hostname"),
        ({"accessIPv4": "::1"}, 400, "accessIPv4"),
        ({"accessIPv6": "fe80::1%eth0"}, 400, "accessIPv6"),
        ({"networks": [{"uuid": NOWHERE, "fixed_ip": "fe80::1%eth0"}]}, 400, "fixed_ip"),
        ({"config_drive": "maybe"}, 400, "config_drive"),
        ({"OS-DCF:diskConfig": "auto"}, 400, "server.OS-DCF:diskConfig"),
        (
            {"block_device_mapping_v2": [{"boot_index": 0, "source_type": "volume", "uuid": NOWHERE}]},
            400,
            "Block",
        ),
        ({"block_device_mapping": [{"volume_id": NOWHERE}]}, 400, "block_device_mapping"),
    ],
)
async def test_what_is_wrong_is_named(member, world, change, status, said):
    answer = await member.raw("POST", "/servers", body(**change))
    assert answer.status_code == status, answer.text
    assert said in answer.text
    assert answer.headers["x-openstack-request-id"].startswith("req-")
    async with world.database.read() as tx:
        assert (await tx.fetch("SELECT count(*) FROM servers"))[0][0] == 0


async def test_fields_come_with_their_version(member):
    for field, value, first in (
        ("description", "d", "2.19"),
        ("tags", ["a"], "2.52"),
        ("hostname", "h", "2.90"),
    ):
        before = f"2.{int(first[2:]) - 1}"
        sent = body(**{field: value})
        if int(first[2:]) < 37:
            del sent["server"]["networks"]
        await member("POST", "/servers", sent, 400, version=before)
        await member("POST", "/servers", sent, 202, version=first)
    without = {"server": {"name": "s", "flavorRef": "1", "imageRef": IMAGE}}
    await member("POST", "/servers", without, 400, version="2.37")
    await member("POST", "/servers", without, 202, version="2.36")


async def test_a_network_that_nobody_named(member, world):
    without = {"server": {"name": "s", "flavorRef": "1", "imageRef": IMAGE}}
    network = await world.network()
    made = (await member("POST", "/servers", without, 202, version="2.1"))["server"]
    async with world.database.read() as tx:
        row = (await tx.fetch("SELECT requested_networks FROM servers WHERE id = $1", [made["id"]]))[0][0]
    assert [n["network_id"] for n in row] == [network]
    await world.network(name="second", cidr="10.1.0.0/24")
    await member("POST", "/servers", without, 409, version="2.1")
    await member("POST", "/servers", body(networks="auto"), 409)


async def test_a_network_without_subnet_and_a_foreign_one(member, world):
    bare = await world.network(cidr="")
    await member("POST", "/servers", body(networks=[{"uuid": bare}]), 400)
    foreign = await world.network("22222222222222222222222222222222")
    await member("POST", "/servers", body(networks=[{"uuid": foreign}]), 400)


async def test_several_at_once(member, world):
    made = await member("POST", "/servers", body(min_count=2, max_count=3, return_reservation_id=True), 202)
    found = await member(
        "GET", f"/servers?reservation_id={made['reservation_id']}&sort_key=display_name&sort_dir=asc"
    )
    assert [s["name"] for s in found["servers"]] == ["s-1", "s-2", "s-3"]
    network = await world.network()
    several = body(max_count=2, networks=[{"uuid": network, "fixed_ip": "10.0.0.9"}])
    await member("POST", "/servers", several, 400)


async def test_quota(member, admin, world):
    await admin("PUT", f"/os-quota-sets/{P1}", {"quota_set": {"instances": 2}})
    await member.server()
    refused = await member("POST", "/servers", body(min_count=2, max_count=2), 403)
    assert "instances: Requested 2, but already used 1 of 2" in refused["forbidden"]["message"]
    # As many as fit, where the user leaves it open.
    made = await member("POST", "/servers", body(min_count=1, max_count=5, return_reservation_id=True), 202)
    assert len((await member("GET", f"/servers?reservation_id={made['reservation_id']}"))["servers"]) == 1
    usage = (await member("GET", f"/os-quota-sets/{P1}/detail"))["quota_set"]
    assert usage["instances"] == {"limit": 2, "in_use": 2, "reserved": 0}
    assert usage["ram"]["in_use"] == 1024
    async with world.database.read() as tx:
        assert (await tx.fetch("SELECT count(*) FROM operations"))[0][0] == 2


async def test_two_requests_do_not_share_the_last_of_a_quota(member, admin):
    await admin("PUT", f"/os-quota-sets/{P1}", {"quota_set": {"instances": 3}})
    answers = await asyncio.gather(*(member.raw("POST", "/servers", body()) for _ in range(8)))
    assert sorted(a.status_code for a in answers) == [202] * 3 + [403] * 5


async def test_deleting_gives_the_quota_back_once(member, world):
    from moorage.compute import server_state

    server_id = await member.server()
    await member("DELETE", f"/servers/{server_id}", status=204)
    await member("DELETE", f"/servers/{server_id}", status=204)
    assert (await member("GET", f"/servers/{server_id}"))["server"]["OS-EXT-STS:task_state"] == "deleting"
    async with world.database.transaction() as tx:
        assert await server_state.deleted(tx, server_id)
        assert not await server_state.deleted(tx, server_id)
    await member("GET", f"/servers/{server_id}", status=404)
    limits = (await member("GET", "/limits"))["limits"]["absolute"]
    assert (limits["totalInstancesUsed"], limits["totalRAMUsed"]) == (0, 0)
    found = (await member("GET", "/servers/detail?changes-since=2020-01-01T00:00:00Z"))["servers"]
    assert [s["status"] for s in found] == ["DELETED"]
    [action, _] = (await member("GET", f"/servers/{server_id}/os-instance-actions"))["instanceActions"]
    assert action["action"] == "delete"
    async with world.database.read() as tx:
        kinds = sorted(
            row[0] for row in await tx.fetch("SELECT kind FROM operations WHERE state <> 'cancelled'")
        )
    assert kinds.count("server.delete") == 1


async def test_power_actions_follow_the_state(member, world):
    from moorage.compute import server_state

    await world.host("h1")
    server_id = await member.server()
    act = f"/servers/{server_id}/action"
    refused = await member("POST", act, {"os-stop": None}, 409)
    assert "vm_state building" in refused["conflictingRequest"]["message"]
    await world.run(server_id, "h1")
    await member("POST", act, {"os-start": None}, 409)
    await member("POST", act, {"reboot": {"type": "SOFT"}}, 202)
    assert (await member("GET", f"/servers/{server_id}"))["server"]["status"] == "REBOOT"
    await member("POST", act, {"reboot": {"type": "SOFT"}}, 409)
    await member("POST", act, {"reboot": {"type": "HARD"}}, 202)
    assert (await member("GET", f"/servers/{server_id}"))["server"]["status"] == "HARD_REBOOT"
    async with world.database.transaction() as tx:
        await server_state.running(tx, server_id)
    await member("POST", act, {"os-stop": None}, 202)
    async with world.database.transaction() as tx:
        await server_state.stopped(tx, server_id)
    assert (await member("GET", f"/servers/{server_id}"))["server"]["status"] == "SHUTOFF"
    await member("POST", act, {"os-start": None}, 202)
    for wrong in (
        {"reboot": {"type": "warm"}},
        {"reboot": {}},
        {"nothing": None},
        {},
        {"os-start": None, "os-stop": None},
    ):
        await member("POST", act, wrong, 400)
    names = [
        a["action"]
        for a in (await member("GET", f"/servers/{server_id}/os-instance-actions"))["instanceActions"]
    ]
    assert names == ["start", "stop", "reboot", "reboot", "create"]


@pytest.mark.parametrize("wrong", ["zz", "ACTIVE", "Error", "", None, 1])
async def test_a_state_that_servers_are_not_reset_to_changes_nothing(member, admin, world, wrong):
    await world.host("h1")
    server_id = await member.server()
    await world.run(server_id, "h1")
    before = (await admin("GET", f"/servers/{server_id}"))["server"]
    answer = await admin("POST", f"/servers/{server_id}/action", {"os-resetState": {"state": wrong}}, 400)
    assert "os-resetState.state" in answer["badRequest"]["message"]
    assert (await admin("GET", f"/servers/{server_id}"))["server"] == before
    assert before["status"] == "ACTIVE"


async def test_a_server_is_reset_to_error_and_back(member, admin, world):
    await world.host("h1")
    server_id = await member.server()
    await world.run(server_id, "h1")
    for state, status in (("error", "ERROR"), ("active", "ACTIVE")):
        await admin("POST", f"/servers/{server_id}/action", {"os-resetState": {"state": state}}, 202)
        assert (await member("GET", f"/servers/{server_id}"))["server"]["status"] == status


async def test_locked_servers(member, admin, world):
    await world.host("h1")
    server_id = await member.server()
    await world.run(server_id, "h1")
    act = f"/servers/{server_id}/action"
    await member("POST", act, {"lock": {"locked_reason": "mine"}}, 202)
    shown = (await member("GET", f"/servers/{server_id}"))["server"]
    assert (shown["locked"], shown["locked_reason"]) == (True, "mine")
    await member("POST", act, {"os-stop": None}, 409)
    await member("DELETE", f"/servers/{server_id}", status=409)
    await member("POST", act, {"unlock": None}, 202)
    await admin("POST", act, {"lock": None}, 202)
    # Locking again does not make the administrator's lock the owner's.
    await member("POST", act, {"lock": None}, 202)
    await member("POST", act, {"unlock": None}, 403)
    await admin("POST", act, {"os-stop": None}, 202)
    await admin("POST", act, {"unlock": None}, 202)


async def test_a_failed_build_has_a_fault(member, world):
    from moorage.compute import server_state

    server_id = await member.server()
    async with world.database.transaction() as tx:
        why = server_state.fault("No valid host was found. 4 hosts: 4 down", details="inner")
        await server_state.failed(tx, server_id, why, unplace=True)
    shown = (await member("GET", f"/servers/{server_id}"))["server"]
    assert shown["status"] == "ERROR"
    assert shown["fault"]["message"] == "No valid host was found. 4 hosts: 4 down"
    assert "details" not in shown["fault"]
    await member("POST", f"/servers/{server_id}/action", {"os-getConsoleOutput": {"length": 5}}, 409)


async def test_events_of_an_action(member, admin, world):
    from moorage.compute import actions

    server_id = await member.server()
    [action] = (await member("GET", f"/servers/{server_id}/os-instance-actions"))["instanceActions"]
    request_id = action["request_id"]
    async with world.database.transaction() as tx:
        await actions.event_started(tx, server_id, request_id, "compute__do_build_and_run_instance")
        await actions.event_finished(
            tx, server_id, request_id, "compute__do_build_and_run_instance", error="it broke", host="h1"
        )
    path = f"/servers/{server_id}/os-instance-actions/{request_id}"
    shown = (await member("GET", path))["instanceAction"]
    assert shown["message"] == "Error"
    [event] = shown["events"]
    assert event["result"] == "Error"
    assert "host" not in event
    assert "details" not in event
    [event] = (await admin("GET", path))["instanceAction"]["events"]
    assert (event["host"], event["details"]) == ("h1", "it broke")
    assert "events" not in (await member("GET", path, version="2.50"))["instanceAction"]
    await member("GET", f"{path}x", status=404)


async def test_changing_a_server(member):
    server_id = await member.server()
    changes = {"name": "new", "description": "text", "accessIPv4": "192.0.2.1", "hostname": "new-host"}
    shown = (await member("PUT", f"/servers/{server_id}", {"server": changes}))["server"]
    assert (shown["name"], shown["description"], shown["accessIPv4"]) == ("new", "text", "192.0.2.1")
    older = (await member("PUT", f"/servers/{server_id}", {"server": {"name": "x"}}, version="2.74"))[
        "server"
    ]
    assert "OS-EXT-STS:vm_state" not in older
    await member("PUT", f"/servers/{server_id}", {"server": {"description": "x"}}, 400, version="2.18")
    await member("PUT", f"/servers/{server_id}", {"server": {"status": "ACTIVE"}}, 400)


async def test_metadata_and_tags(member, admin):
    server_id = await member.server(metadata={"a": "1"})
    base = f"/servers/{server_id}"
    assert await member("POST", f"{base}/metadata", {"metadata": {"b": "2"}}) == {
        "metadata": {"a": "1", "b": "2"}
    }
    assert await member("PUT", f"{base}/metadata/c", {"meta": {"c": "3"}}) == {"meta": {"c": "3"}}
    await member("PUT", f"{base}/metadata/c", {"meta": {"d": "3"}}, 400)
    await member("DELETE", f"{base}/metadata/a", status=204)
    await member("DELETE", f"{base}/metadata/a", status=404)
    await member("GET", f"{base}/metadata/a", status=404)
    assert await member("PUT", f"{base}/metadata", {"metadata": {"z": "0"}}) == {"metadata": {"z": "0"}}
    await admin("PUT", f"/os-quota-sets/{P1}", {"quota_set": {"metadata_items": 1}})
    await member("POST", f"{base}/metadata", {"metadata": {"b": "2"}}, 403)
    await member("PUT", f"{base}/tags/red", status=201)
    await member("PUT", f"{base}/tags/red", status=204)
    await member("GET", f"{base}/tags/red", status=204)
    await member("GET", f"{base}/tags/blue", status=404)
    assert await member("PUT", f"{base}/tags", {"tags": ["b", "a"]}) == {"tags": ["a", "b"]}
    for query, found in (
        ("tags=a,b", 1),
        ("tags=a,c", 0),
        ("tags-any=a,c", 1),
        ("not-tags=a", 0),
        ("not-tags-any=c", 1),
    ):
        assert len((await member("GET", f"/servers?{query}"))["servers"]) == found, query
    await member("DELETE", f"{base}/tags/a", status=204)
    await member("DELETE", f"{base}/tags", status=204)
    assert await member("GET", f"{base}/tags") == {"tags": []}
    await member("GET", f"{base}/tags", status=404, version="2.25")


async def test_security_groups_of_a_running_server(member, world):
    await world.host("h1")
    network = await world.network()
    async with world.database.transaction() as tx:
        await world.service.networks.security_groups.create(tx, project_id=P1, name="web", description="")
    server_id = await member.server(networks=[{"uuid": network}])
    await world.run(server_id, "h1")
    act = f"/servers/{server_id}/action"
    await member("POST", act, {"addSecurityGroup": {"name": "web"}}, 202)
    groups = (await member("GET", f"/servers/{server_id}/os-security-groups"))["security_groups"]
    assert sorted(g["name"] for g in groups) == ["default", "web"]
    await member("POST", act, {"removeSecurityGroup": {"name": "web"}}, 202)
    await member("POST", act, {"removeSecurityGroup": {"name": "web"}}, 404)
    await member("POST", act, {"addSecurityGroup": {"name": "none"}}, 404)


async def test_lists_page_sort_and_filter(member):
    for name in ("b", "a", "c"):
        await member.server(name)
    page = await member("GET", "/servers/detail?limit=2&sort_key=display_name&sort_dir=asc")
    assert [s["name"] for s in page["servers"]] == ["a", "b"]
    [link] = page["servers_links"]
    rest = await member("GET", link["href"].partition("/v2.1")[2])
    assert [s["name"] for s in rest["servers"]] == ["c"]
    assert "servers_links" not in rest
    names = [s["name"] for s in (await member("GET", "/servers"))["servers"]]
    assert names == ["c", "a", "b"]
    by_null = await member("GET", "/servers?limit=1&sort_key=launched_at&sort_dir=asc")
    assert (
        len((await member("GET", by_null["servers_links"][0]["href"].partition("/v2.1")[2]))["servers"]) == 1
    )
    for query, found in (
        ("name=^a$", 1),
        ("status=BUILD", 3),
        ("status=ACTIVE", 0),
        ("flavor=1", 3),
        (f"image={IMAGE}", 3),
        ("locked=false", 3),
        ("host=h1", 3),
        ("changes-before=2020-01-01T00:00:00Z", 0),
    ):
        assert len((await member("GET", f"/servers?{query}"))["servers"]) == found, query
    for wrong in (
        "limit=x",
        "limit=-1",
        "marker=none",
        "sort_key=none",
        "sort_dir=q",
        "sort_key=uuid&sort_dir=DESC",
        "unknown=1",
        "name=[",
        "status=NONE",
        "changes-since=x",
    ):
        await member("GET", f"/servers?{wrong}", status=400)
    await member("GET", "/servers?unknown=1", version="2.74")
    assert (await member("GET", "/servers?status=NONE", version="2.37"))["servers"] == []


async def test_views_by_version(member, admin, world):
    server_id = await member.server()
    shown = {
        v: (await admin("GET", f"/servers/{server_id}", version=v))["server"]
        for v in ("2.1", "2.3", "2.9", "2.16", "2.19", "2.26", "2.47", "2.63", "2.71", "2.73", "2.96")
    }
    assert "OS-EXT-SRV-ATTR:hostname" not in shown["2.1"]
    assert "OS-EXT-SRV-ATTR:hostname" in shown["2.3"]
    assert "locked" in shown["2.9"]
    assert "locked" not in shown["2.3"]
    assert "host_status" in shown["2.16"]
    assert "description" in shown["2.19"]
    assert "tags" in shown["2.26"]
    assert shown["2.26"]["flavor"]["id"] == "1"
    assert "id" not in shown["2.47"]["flavor"]
    assert shown["2.71"]["server_groups"] == []
    assert "pinned_availability_zone" in shown["2.96"]


async def test_the_number_of_statements(member, world):
    await world.host("h1")
    network = await world.network()
    made = body(networks=[{"uuid": network}])
    await member("POST", "/servers", made, 202)
    # BEGIN and COMMIT aside: flavor, limits, network, rows, operation (with its wake-up), quota.
    assert await world.statements(member("POST", "/servers", made, 202)) <= 8
    first = (await member("GET", "/servers"))["servers"]
    for server in first:
        await world.run(server["id"], "h1")
    of_two = await world.statements(member("GET", "/servers/detail"))
    for _ in range(3):
        await world.run(await member.server(networks=[{"uuid": network}]), "h1")
    assert await world.statements(member("GET", "/servers/detail")) == of_two <= 2
    assert await world.statements(member("GET", f"/servers/{first[0]['id']}")) <= 2


async def test_why_it_is_where_it_is(member, admin, other, world):
    server_id = await member.server()
    plan = {
        "request": {
            "resources": {"VCPU": 1},
            "excluded": {},
            "physical_networks": [],
            "required_traits": [],
            "forbidden_traits": [],
            "availability_zone": None,
            "requested_host": None,
        },
        "seed": 1,
        "considered": 2,
        "ranking": [{"host": "h1", "score": 1.0}],
        "refusals": [
            {
                "host": "h2",
                "check": "capacity",
                "reason": "short of",
                "subject": "MEMORY_MB",
                "needed": 512,
                "available": 100,
            }
        ],
        "summary": "2 hosts",
        "chosen": "h1",
    }
    async with world.database.transaction() as tx:
        await tx.execute(
            "INSERT INTO placements (server_id, attempt, plan) VALUES ($1, 1, $2)", [server_id, plan]
        )
    path = f"/servers/{server_id}/placement"
    [attempt] = (await admin("GET", path, root="/moorage/v1"))["attempts"]
    assert attempt["chosen"] == "h1"
    assert attempt["refusals"][0]["available"] == 100
    [attempt] = (await member("GET", path, root="/moorage/v1"))["attempts"]
    assert attempt["chosen"] != "h1"
    assert attempt["ranking"] == [{"host": attempt["chosen"], "score": None}]
    assert "available" not in attempt["refusals"][0]
    assert "h2" not in str(attempt)
    await other("GET", path, status=404, root="/moorage/v1")
