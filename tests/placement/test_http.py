"""Each route of the Placement API over ASGI, with a real PostgreSQL behind it."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from moorage.core.ids import new_id
from moorage.placement.ledger import Ledger
from moorage.store.database import Database
from tests.support.blocking import until_blocked
from tests.support.placement import LATEST, Client, code, holding, provider


async def test_versions_are_open_and_the_rest_is_not(http: httpx.AsyncClient, member: Client) -> None:
    nobody = Client(http, None)
    found = await nobody("GET", "/", version="1.0")
    assert (found["versions"][0]["min_version"], found["versions"][0]["max_version"]) == ("1.0", LATEST)
    await nobody("GET", "/resource_providers", status=401)
    await member("GET", "/resource_providers", status=403)
    refused = await member("GET", "/resource_providers", status=406, version="1.99")
    assert refused["errors"][0]["max_version"] == LATEST


async def test_a_providers_life(admin: Client) -> None:
    root = await provider(admin, "root")
    assert root["root_provider_uuid"] == root["uuid"]
    child = await provider(admin, "child", root["uuid"])
    assert (child["parent_provider_uuid"], child["root_provider_uuid"]) == (root["uuid"], root["uuid"])
    again = await admin("POST", "/resource_providers", {"name": "child"}, status=409)
    assert code(again) == "placement.duplicate_name"
    path = f"/resource_providers/{root['uuid']}"
    assert code(await admin("DELETE", path, status=409)) == "placement.resource_provider.cannot_delete_parent"
    await admin("PUT", path, {"name": "loop", "parent_provider_uuid": child["uuid"]}, status=400)
    moved = await admin(
        "PUT", f"/resource_providers/{child['uuid']}", {"name": "alone", "parent_provider_uuid": None}
    )
    assert moved["root_provider_uuid"] == child["uuid"]
    await admin("DELETE", path, status=204)
    await admin("GET", path, status=404)
    assert [p["name"] for p in (await admin("GET", "/resource_providers"))["resource_providers"]] == ["alone"]


async def test_a_consumer_may_be_spelt_in_two_ways_and_a_provider_in_one(admin: Client) -> None:
    made = await provider(admin, "p", VCPU=4)
    consumer, name = new_id(), made["uuid"]
    claim = {
        "allocations": {name: {"resources": {"VCPU": 1}}},
        "project_id": "p",
        "user_id": "u",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }
    await admin("PUT", f"/allocations/{consumer.replace('-', '').upper()}", claim, status=204)
    for form in (consumer, consumer.upper(), consumer.replace("-", "")):
        found = await admin("GET", f"/allocations/{form}")
        assert found["allocations"][name]["resources"] == {"VCPU": 1}
    for form in (name.upper(), name.replace("-", "")):
        for path in ("", "/inventories", "/usages", "/allocations", "/aggregates", "/traits"):
            await admin("GET", f"/resource_providers/{form}{path}", status=404)
    spelt = new_id()
    await admin("POST", "/resource_providers", {"name": "q", "uuid": spelt.replace("-", "").upper()})
    await admin("GET", f"/resource_providers/{spelt}")
    await admin("DELETE", f"/allocations/{consumer.upper()}", status=204)
    assert (await admin("GET", f"/allocations/{consumer}"))["allocations"] == {}


async def test_parents_stay_before_1_37(admin: Client) -> None:
    root, other = await provider(admin, "root"), await provider(admin, "other")
    child = await provider(admin, "child", root["uuid"])
    path = f"/resource_providers/{child['uuid']}"
    move = {"name": "child", "parent_provider_uuid": other["uuid"]}
    await admin("PUT", path, move, status=400, version="1.36")
    await admin("PUT", path, move, version="1.37")


async def test_providers_are_found_by_what_they_have(admin: Client) -> None:
    big = await provider(admin, "big", VCPU=16)
    await provider(admin, "small", VCPU=2)
    aggregate = new_id()
    await admin(
        "PUT",
        f"/resource_providers/{big['uuid']}/aggregates",
        {"aggregates": [aggregate], "resource_provider_generation": 1},
    )
    await admin(
        "PUT",
        f"/resource_providers/{big['uuid']}/traits",
        {"traits": ["HW_CPU_X86_AVX"], "resource_provider_generation": 2},
    )
    for query, names in (
        ("resources=VCPU:8", ["big"]),
        ("resources=VCPU:1", ["big", "small"]),
        (f"member_of={aggregate}", ["big"]),
        (f"member_of=!{aggregate}", ["small"]),
        ("required=HW_CPU_X86_AVX", ["big"]),
        ("required=!HW_CPU_X86_AVX", ["small"]),
        ("required=in:HW_CPU_X86_AVX,HW_CPU_X86_SSE", ["big"]),
        ("name=small", ["small"]),
        (f"in_tree={big['uuid']}", ["big"]),
    ):
        found = await admin("GET", f"/resource_providers?{query}")
        assert [p["name"] for p in found["resource_providers"]] == names, query
    for query in ("resources=NOTHING:1", "required=NOTHING", "member_of=x", "colour=red", "resources=VCPU:0"):
        await admin("GET", f"/resource_providers?{query}", status=400)


async def test_inventories(admin: Client) -> None:
    made = await provider(admin, "host", VCPU=8)
    path = f"/resource_providers/{made['uuid']}/inventories"
    found = await admin("GET", path)
    assert found["inventories"]["VCPU"]["total"] == 8
    stale = {"resource_provider_generation": 0, "inventories": {}}
    assert code(await admin("PUT", path, stale, status=409)) == "placement.concurrent_update"
    await admin("POST", path, {"resource_class": "DISK_GB", "total": 10}, status=201)
    await admin("POST", path, {"resource_class": "DISK_GB", "total": 10}, status=409)
    changed = {"resource_provider_generation": 2, "total": 20, "reserved": 20}
    assert (await admin("PUT", f"{path}/DISK_GB", changed))["reserved"] == 20
    await admin(
        "PUT", f"{path}/DISK_GB", {**changed, "resource_provider_generation": 3}, status=400, version="1.25"
    )
    await admin("PUT", f"{path}/MEMORY_MB", {**changed, "resource_provider_generation": 3}, status=400)
    await admin("GET", f"{path}/MEMORY_MB", status=404)
    await admin("DELETE", f"{path}/DISK_GB", status=204)
    await admin("DELETE", f"{path}/DISK_GB", status=404)
    bad = {"resource_provider_generation": 4, "inventories": {"VCPU": {"total": 0}}}
    assert "minimum" in (await admin("PUT", path, bad, status=400))["errors"][0]["detail"]
    await admin("PUT", path, {**bad, "inventories": {"NOTHING": {"total": 1}}}, status=400)
    await admin("DELETE", path, status=405, version="1.4")
    await admin("DELETE", path, status=204)


async def test_a_trait_that_is_being_given_to_a_provider_is_not_deleted(
    database: Database, admin: Client
) -> None:
    await admin("PUT", "/traits/CUSTOM_FAST", status=201)
    made = await provider(admin, "host")
    async with database.transaction() as tx:
        await Ledger().set_traits(tx, made["uuid"], ["CUSTOM_FAST"])
        deletion = asyncio.create_task(admin.status("DELETE", "/traits/CUSTOM_FAST"))
        waits = asyncio.create_task(until_blocked(database))
        await asyncio.wait({deletion, waits}, return_when=asyncio.FIRST_COMPLETED)
        waits.cancel()
    assert await deletion == 409
    assert await admin("GET", "/traits?associated=true") == {"traits": ["CUSTOM_FAST"]}


async def test_traits(admin: Client) -> None:
    await admin("PUT", "/traits/CUSTOM_FAST", status=201)
    await admin("PUT", "/traits/CUSTOM_FAST", status=204)
    await admin("PUT", "/traits/FAST", status=400)
    await admin("GET", "/traits/CUSTOM_FAST", status=204)
    await admin("GET", "/traits/CUSTOM_SLOW", status=404)
    assert await admin("GET", "/traits?name=startswith:CUSTOM_") == {"traits": ["CUSTOM_FAST"]}
    assert await admin("GET", "/traits?associated=true") == {"traits": []}
    made = await provider(admin, "host")
    path = f"/resource_providers/{made['uuid']}/traits"
    await admin("PUT", path, {"traits": ["CUSTOM_SLOW"], "resource_provider_generation": 0}, status=400)
    found = await admin("PUT", path, {"traits": ["CUSTOM_FAST"], "resource_provider_generation": 0})
    assert found == {"traits": ["CUSTOM_FAST"], "resource_provider_generation": 1}
    same = await admin("PUT", path, {"traits": ["CUSTOM_FAST"], "resource_provider_generation": 1})
    assert same["resource_provider_generation"] == 1
    await admin("DELETE", "/traits/CUSTOM_FAST", status=409)
    await admin("DELETE", path, status=204)
    assert (await admin("GET", path))["traits"] == []
    await admin("DELETE", "/traits/CUSTOM_FAST", status=204)
    await admin("DELETE", "/traits/HW_CPU_X86_AVX", status=400)
    await admin("GET", "/traits", status=404, version="1.5")


async def test_resource_classes(admin: Client) -> None:
    await admin("POST", "/resource_classes", {"name": "CUSTOM_GOLD"}, status=201)
    await admin("POST", "/resource_classes", {"name": "CUSTOM_GOLD"}, status=409)
    await admin("POST", "/resource_classes", {"name": "GOLD"}, status=400)
    made = await provider(admin, "host", CUSTOM_GOLD=4)
    await admin("PUT", f"/allocations/{new_id()}", holding({made["uuid"]: {"CUSTOM_GOLD": 1}}), status=204)
    await admin("PUT", "/resource_classes/CUSTOM_GOLD", {"name": "CUSTOM_SILVER"}, version="1.6")
    found = await admin("GET", f"/resource_providers/{made['uuid']}/usages")
    assert found["usages"] == {"CUSTOM_SILVER": 1}
    await admin("DELETE", "/resource_classes/CUSTOM_SILVER", status=409)
    await admin("PUT", "/resource_classes/CUSTOM_IRON", status=201)
    await admin("PUT", "/resource_classes/CUSTOM_IRON", status=204)
    await admin("DELETE", "/resource_classes/CUSTOM_IRON", status=204)
    await admin("DELETE", "/resource_classes/VCPU", status=400)
    await admin("GET", "/resource_classes/VCPU")
    names = [c["name"] for c in (await admin("GET", "/resource_classes"))["resource_classes"]]
    assert "VCPU" in names
    assert "CUSTOM_SILVER" in names


async def test_aggregates(admin: Client) -> None:
    made = await provider(admin, "host")
    path = f"/resource_providers/{made['uuid']}/aggregates"
    one = new_id()
    assert await admin("PUT", path, [one], version="1.18") == {"aggregates": [one]}
    assert await admin("GET", path) == {"aggregates": [one], "resource_provider_generation": 0}
    body = {"aggregates": [], "resource_provider_generation": 0}
    assert (await admin("PUT", path, body))["resource_provider_generation"] == 1
    assert code(await admin("PUT", path, body, status=409)) == "placement.concurrent_update"
    await admin("PUT", path, {"aggregates": ["x"], "resource_provider_generation": 1}, status=400)
    await admin("PUT", path, {"aggregates": [one, one], "resource_provider_generation": 1}, status=400)


async def test_allocations_and_generations(admin: Client) -> None:
    made = await provider(admin, "host", VCPU=4, MEMORY_MB=1024)
    uuid, consumer = made["uuid"], new_id()
    path = f"/allocations/{consumer}"
    assert await admin("GET", path) == {"allocations": {}}
    await admin("DELETE", path, status=404)
    full = await admin("PUT", path, holding({uuid: {"VCPU": 5}}), status=409)
    assert code(full) == "placement.undefined_code"
    # The refused write left no consumer behind (bugs 1779725 and 1778576).
    await admin("PUT", path, holding({uuid: {"VCPU": 4}}), status=204)
    stale = await admin("PUT", path, holding({uuid: {"VCPU": 1}}), status=409)
    assert code(stale) == "placement.concurrent_update"
    await admin("PUT", path, holding({uuid: {"VCPU": 2, "MEMORY_MB": 64}}, 1), status=204)
    found = await admin("GET", path)
    assert found["allocations"][uuid]["resources"] == {"VCPU": 2, "MEMORY_MB": 64}
    assert (found["consumer_generation"], found["consumer_type"]) == (2, "INSTANCE")
    assert (await admin("GET", f"/resource_providers/{uuid}/allocations"))["allocations"] == {
        consumer: {"resources": {"VCPU": 2, "MEMORY_MB": 64}, "consumer_generation": 2}
    }
    await admin("DELETE", f"/resource_providers/{uuid}", status=409)
    emptied = {"resource_provider_generation": 3, "inventories": {}}
    used = await admin("PUT", f"/resource_providers/{uuid}/inventories", emptied, status=409)
    assert code(used) == "placement.inventory.inuse"
    await admin("PUT", path, holding({}, 2), status=204)
    assert await admin("GET", path) == {"allocations": {}}
    await admin("PUT", path, holding({new_id(): {"VCPU": 1}}), status=400)
    await admin("PUT", path, holding({uuid: {"DISK_GB": 1}}), status=409)
    await admin("PUT", path, holding({uuid: {"VCPU": 0}}), status=400)


async def test_older_forms_of_allocations(admin: Client) -> None:
    made = await provider(admin, "host", VCPU=4)
    listed = {"allocations": [{"resource_provider": {"uuid": made["uuid"]}, "resources": {"VCPU": 1}}]}
    path = f"/allocations/{new_id()}"
    await admin("PUT", path, listed, status=204, version="1.0")
    await admin("PUT", path, listed, status=400, version="1.8")
    await admin("PUT", path, {**listed, "project_id": "p1", "user_id": "u1"}, status=204, version="1.8")
    keyed = {"allocations": {made["uuid"]: {"resources": {"VCPU": 2}}}, "project_id": "p1", "user_id": "u1"}
    await admin("PUT", path, keyed, status=204, version="1.12")
    assert (await admin("GET", path, version="1.12"))["project_id"] == "p1"
    assert (await admin("GET", path))["consumer_type"] == "unknown"


async def test_a_move_off_an_over_committed_provider(admin: Client) -> None:
    # Bugs 1924123, 1941892, 1943191 and 2104040: usage does not grow, so the write is accepted.
    made = await provider(admin, "host", VCPU=8)
    instance, migration = new_id(), new_id()
    await admin("PUT", f"/allocations/{instance}", holding({made["uuid"]: {"VCPU": 8}}), status=204)
    small = {"resource_provider_generation": 2, "inventories": {"VCPU": {"total": 2}}}
    await admin("PUT", f"/resource_providers/{made['uuid']}/inventories", small)
    body = {migration: holding({made["uuid"]: {"VCPU": 8}}), instance: holding({}, 1)}
    await admin("POST", "/allocations", body, status=204)
    await admin("PUT", f"/allocations/{new_id()}", holding({made["uuid"]: {"VCPU": 1}}), status=409)


async def test_several_consumers_fit_together_or_not_at_all(admin: Client) -> None:
    # Bug 1778743: each alone fits, both together do not.
    made = await provider(admin, "host", VCPU=4)
    both = {new_id(): holding({made["uuid"]: {"VCPU": 3}}), new_id(): holding({made["uuid"]: {"VCPU": 3}})}
    await admin("POST", "/allocations", both, status=409)
    assert (await admin("GET", f"/resource_providers/{made['uuid']}/usages"))["usages"] == {"VCPU": 0}
    await admin("POST", "/allocations", {}, status=400)


async def test_usages_of_a_project(admin: Client, member: Client) -> None:
    made = await provider(admin, "host", VCPU=8)
    for amount in (1, 2):
        await admin("PUT", f"/allocations/{new_id()}", holding({made["uuid"]: {"VCPU": amount}}), status=204)
    assert await member("GET", "/usages?project_id=p1", version="1.9") == {"usages": {"VCPU": 3}}
    by_type = await member("GET", "/usages?project_id=p1&user_id=u1")
    assert by_type == {"usages": {"INSTANCE": {"VCPU": 3, "consumer_count": 2}}}
    await member("GET", "/usages?project_id=p2", status=403)
    await member("GET", "/usages", status=400)


async def test_candidates(admin: Client) -> None:
    root = await provider(admin, "root", VCPU=4)
    child = await provider(admin, "child", root["uuid"], SRIOV_NET_VF=2)
    query = "resources=VCPU:1&resources_a=SRIOV_NET_VF:1&resources_b=SRIOV_NET_VF:1"
    await admin("GET", f"/allocation_candidates?{query}", status=400)
    found = await admin("GET", f"/allocation_candidates?{query}&group_policy=none&limit=5")
    (only,) = found["allocation_requests"]
    assert only["allocations"][child["uuid"]] == {"resources": {"SRIOV_NET_VF": 2}}
    assert only["mappings"] == {"": [root["uuid"]], "_a": [child["uuid"]], "_b": [child["uuid"]]}
    assert found["provider_summaries"][child["uuid"]]["resources"] == {
        "SRIOV_NET_VF": {"capacity": 2, "used": 0}
    }
    assert found["provider_summaries"][child["uuid"]]["parent_provider_uuid"] == root["uuid"]
    apart = await admin("GET", f"/allocation_candidates?{query}&group_policy=isolate")
    assert apart == {"allocation_requests": [], "provider_summaries": {}}
    await admin("PUT", f"/allocations/{new_id()}", holding({child["uuid"]: {"SRIOV_NET_VF": 1}}), status=204)
    later = await admin("GET", f"/allocation_candidates?{query}&group_policy=none")
    assert later["allocation_requests"] == []


@pytest.mark.parametrize(
    "query",
    [
        "",
        "resources=VCPU",
        "resources=NOTHING:1",
        "resources=VCPU:1&required=NOTHING",
        "resources=VCPU:1&required=HW_CPU_X86_AVX,!HW_CPU_X86_AVX",
        "resources=VCPU:1&limit=0",
        "resources=VCPU:1&member_of=x",
        "resources=VCPU:1&in_tree=x",
        "resources=VCPU:1&group_policy=maybe",
        "resources=VCPU:1&required_a=HW_CPU_X86_AVX",
        "resources=VCPU:1&same_subtree=_a",
        "resources=VCPU:1&root_required=HW_CPU_X86_AVX&root_required=HW_CPU_X86_SSE",
        "resources=VCPU:1&colour=red",
    ],
)
async def test_candidates_refuse_bad_queries(admin: Client, query: str) -> None:
    await admin("GET", f"/allocation_candidates?{query}", status=400)


async def test_reshaping(admin: Client) -> None:
    root = await provider(admin, "root", VCPU=4, MEMORY_MB=100)
    numa = await provider(admin, "numa", root["uuid"])
    consumer = new_id()
    await admin("PUT", f"/allocations/{consumer}", holding({root["uuid"]: {"VCPU": 2}}), status=204)
    body = {
        "inventories": {
            root["uuid"]: {"resource_provider_generation": 2, "inventories": {"MEMORY_MB": {"total": 100}}},
            numa["uuid"]: {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 4}}},
        },
        "allocations": {},
    }
    assert code(await admin("POST", "/reshaper", body, status=409)) == "placement.inventory.inuse"
    body["allocations"] = {consumer: holding({numa["uuid"]: {"VCPU": 2}}, 1)}
    await admin("POST", "/reshaper", body, status=204)
    assert (await admin("GET", f"/resource_providers/{numa['uuid']}/usages"))["usages"] == {"VCPU": 2}
    assert list((await admin("GET", f"/resource_providers/{root['uuid']}/inventories"))["inventories"]) == [
        "MEMORY_MB"
    ]
    unknown = {
        "inventories": {new_id(): {"resource_provider_generation": 0, "inventories": {}}},
        "allocations": {},
    }
    missing = await admin("POST", "/reshaper", unknown, status=400)
    assert code(missing) == "placement.resource_provider.not_found"
