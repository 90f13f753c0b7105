"""The rules of the Placement API that other people's suites do not prove, or that once were bugs.

A test of a public bug carries its number. `docs/placement.md` says for every rule what proves it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import httpx
import pytest

from moorage.core.ids import new_id
from moorage.placement.config import BREADTH, DEPTH, Settings
from moorage.placement.http.routes import build_api
from moorage.placement.service import PlacementService
from moorage.store.database import Database
from tests.support.placement import Client, code, holding, provider
from tests.support.tokens import check

BANDWIDTH = {"NET_BW_EGR_KILOBIT_PER_SEC": 3000, "NET_BW_IGR_KILOBIT_PER_SEC": 3000}
SHARES = "MISC_SHARES_VIA_AGGREGATE"


async def describe(
    admin: Client, made: dict[str, Any], traits: list[str] | None = None, aggregates: list[str] | None = None
) -> None:
    path = f"/resource_providers/{made['uuid']}"
    for kind, names in (("traits", traits), ("aggregates", aggregates)):
        if names is not None:
            for name in names if kind == "traits" else ():
                if name.startswith("CUSTOM_"):
                    await admin("PUT", f"/traits/{name}", status=None)
            generation = (await admin("GET", path))["generation"]
            await admin("PUT", f"{path}/{kind}", {kind: names, "resource_provider_generation": generation})


async def candidates(admin: Client, query: str, version: str = "1.39") -> list[Any]:
    found = await admin("GET", f"/allocation_candidates?{query}", version=version)
    assert (found["allocation_requests"] == []) == (found["provider_summaries"] == {})
    return list(found["allocation_requests"])


def served(found: list[Any]) -> list[dict[str, dict[str, int]]]:
    """What each candidate takes, by provider, without its mappings."""
    return [{uuid: a["resources"] for uuid, a in request["allocations"].items()} for request in found]


# Generations and consumers


async def test_what_raises_a_providers_generation(admin: Client) -> None:
    made = await provider(admin, "host")
    path = f"/resource_providers/{made['uuid']}"

    async def generation() -> int:
        return int((await admin("GET", path))["generation"])

    async def raised_by(method: str, where: str, body: Any = None, version: str = "1.39") -> int:
        before = await generation()
        await admin(method, where, body, status=None, version=version)
        return await generation() - before

    def with_generation(current: int, **body: Any) -> dict[str, Any]:
        return {"resource_provider_generation": current, **body}

    vcpu = {"VCPU": {"total": 4}}
    assert await raised_by("PUT", path, {"name": "renamed"}) == 0
    assert await raised_by("PUT", path, {"name": "renamed", "parent_provider_uuid": None}) == 0
    assert await raised_by("PUT", f"{path}/inventories", with_generation(0, inventories=vcpu)) == 1
    assert await raised_by("PUT", f"{path}/inventories", with_generation(1, inventories=vcpu)) == 1
    assert await raised_by("PUT", f"{path}/inventories/VCPU", with_generation(2, total=8)) == 1
    assert await raised_by("POST", f"{path}/inventories", {"resource_class": "DISK_GB", "total": 4}) == 1
    assert await raised_by("DELETE", f"{path}/inventories/DISK_GB") == 1
    traits = with_generation(5, traits=["HW_CPU_X86_AVX"])
    assert await raised_by("PUT", f"{path}/traits", traits) == 1
    assert await raised_by("PUT", f"{path}/traits", traits | {"resource_provider_generation": 6}) == 0
    assert await raised_by("DELETE", f"{path}/traits") == 1
    assert await raised_by("PUT", f"{path}/aggregates", [new_id()], version="1.18") == 0
    assert await raised_by("PUT", f"{path}/aggregates", with_generation(7, aggregates=[])) == 1
    consumer = f"/allocations/{new_id()}"
    assert await raised_by("PUT", consumer, holding({made["uuid"]: {"VCPU": 1}})) == 1
    assert await raised_by("PUT", consumer, holding({made["uuid"]: {"VCPU": 2}}, 1)) == 1
    assert await raised_by("PUT", consumer, holding({}, 2)) == 1
    assert await raised_by("PUT", consumer, holding({made["uuid"]: {"VCPU": 9}})) == 0
    assert await raised_by("DELETE", f"{path}/inventories") == 1


async def test_a_provider_that_a_consumer_leaves_has_changed(admin: Client) -> None:
    one, two = await provider(admin, "one", VCPU=4), await provider(admin, "two", VCPU=4)
    consumer = f"/allocations/{new_id()}"
    await admin("PUT", consumer, holding({one["uuid"]: {"VCPU": 1}}), status=204)
    await admin("PUT", consumer, holding({two["uuid"]: {"VCPU": 1}}, 1), status=204)
    shown = [await admin("GET", f"/resource_providers/{made['uuid']}") for made in (one, two)]
    assert [found["generation"] for found in shown] == [3, 2]


async def test_a_first_write_that_failed_leaves_no_consumer(admin: Client) -> None:
    # Bugs 1779725 and 1778576, over several providers.
    one, two = await provider(admin, "one", VCPU=4), await provider(admin, "two", VCPU=4)
    consumer = f"/allocations/{new_id()}"
    for _ in range(2):
        both = holding({one["uuid"]: {"VCPU": 4}, two["uuid"]: {"VCPU": 5}})
        assert code(await admin("PUT", consumer, both, status=409)) == "placement.undefined_code"
    await admin("PUT", consumer, holding({one["uuid"]: {"VCPU": 4}, two["uuid"]: {"VCPU": 4}}), status=204)


async def test_a_write_changes_the_owner_too(admin: Client) -> None:
    # Bugs 1779717 and 2009159.
    made = await provider(admin, "host", VCPU=4)
    consumer = f"/allocations/{new_id()}"
    await admin("PUT", consumer, holding({made["uuid"]: {"VCPU": 1}}), status=204)
    changed = {"project_id": "p2", "user_id": "u2", "consumer_type": "MIGRATION"}
    await admin("PUT", consumer, holding({made["uuid"]: {"VCPU": 1}}, 1, **changed), status=204)
    found = await admin("GET", consumer)
    assert {key: found[key] for key in changed} == changed
    assert await admin("GET", "/usages?project_id=p1") == {"usages": {}}


async def test_the_type_of_a_consumer_is_unknown_until_it_is_told(admin: Client) -> None:
    # Story 2009167.
    made = await provider(admin, "host", VCPU=4)
    consumer = f"/allocations/{new_id()}"
    untyped = holding({made["uuid"]: {"VCPU": 1}})
    del untyped["consumer_type"]
    await admin("PUT", consumer, untyped, status=204, version="1.37")
    assert (await admin("GET", consumer))["consumer_type"] == "unknown"
    for kind in ("unknown", "all"):
        found = await admin("GET", f"/usages?project_id=p1&consumer_type={kind}")
        assert found["usages"] == {kind: {"VCPU": 1, "consumer_count": 1}}
    assert await admin("GET", "/usages?project_id=p1&consumer_type=INSTANCE") == {"usages": {}}


# Several at once


async def test_all_clients_that_fit_on_one_provider_are_served(admin: Client) -> None:
    # Bug 1719933: generation races are the server's business.
    made = await provider(admin, "host", VCPU=20)
    body = holding({made["uuid"]: {"VCPU": 1}})
    answers = await asyncio.gather(
        *(admin.status("PUT", f"/allocations/{new_id()}", body) for _ in range(24))
    )
    assert sorted(answers) == [204] * 20 + [409] * 4


async def test_writes_of_one_new_project_at_once(admin: Client) -> None:
    # Story 2009159.
    made = await provider(admin, "host", VCPU=20)
    body = holding({made["uuid"]: {"VCPU": 1}}, project_id="new", user_id="new")
    assert set(
        await asyncio.gather(*(admin.status("PUT", f"/allocations/{new_id()}", body) for _ in range(8)))
    ) == {204}


async def test_one_new_aggregate_from_several_clients(admin: Client) -> None:
    # Bugs 1818498 and 1804453.
    hosts = [await provider(admin, f"host{n}") for n in range(8)]
    body = {"aggregates": [new_id()], "resource_provider_generation": 0}
    paths = [f"/resource_providers/{made['uuid']}/aggregates" for made in hosts]
    assert set(await asyncio.gather(*(admin.status("PUT", path, body) for path in paths))) == {200}


async def test_of_writes_with_one_generation_one_wins(admin: Client) -> None:
    # Bugs 1746373 and 1746374: with the generation told, no update is lost.
    made = await provider(admin, "host")
    path = f"/resource_providers/{made['uuid']}/inventories"
    body = {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 1}}}
    answers = await asyncio.gather(*(admin.status("PUT", path, body) for _ in range(6)))
    assert sorted(answers) == [200] + [409] * 5


async def test_of_first_writes_of_one_consumer_one_wins(admin: Client) -> None:
    made = await provider(admin, "host", VCPU=20)
    path, body = f"/allocations/{new_id()}", holding({made["uuid"]: {"VCPU": 1}})
    answers = await asyncio.gather(*(admin.status("PUT", path, body) for _ in range(6)))
    assert sorted(answers) == [204] + [409] * 5
    assert (await admin("GET", path))["consumer_generation"] == 1


# Over-committed providers (bugs 1924123, 1941892, 1943191 and 2104040)


@pytest.mark.parametrize(
    ("amount", "status"), [(7, 204), (8, 204), (9, 409)], ids=["shrinks", "stays", "grows"]
)
async def test_an_over_committed_provider_takes_what_does_not_grow(
    admin: Client, amount: int, status: int
) -> None:
    made = await provider(admin, "host", VCPU=16)
    consumer = f"/allocations/{new_id()}"
    await admin("PUT", consumer, holding({made["uuid"]: {"VCPU": 8}}), status=204)
    await admin("PUT", f"/allocations/{new_id()}", holding({made["uuid"]: {"VCPU": 4}}), status=204)
    small = {"resource_provider_generation": 3, "total": 2}
    await admin("PUT", f"/resource_providers/{made['uuid']}/inventories/VCPU", small)
    await admin("PUT", consumer, holding({made["uuid"]: {"VCPU": amount}}, 1), status=status)


async def test_units_hold_on_an_over_committed_provider_too(admin: Client) -> None:
    made = await provider(admin, "host", VCPU=16)
    consumer = f"/allocations/{new_id()}"
    await admin("PUT", consumer, holding({made["uuid"]: {"VCPU": 8}}), status=204)
    small = {"resource_provider_generation": 2, "total": 2, "step_size": 4}
    await admin("PUT", f"/resource_providers/{made['uuid']}/inventories/VCPU", small)
    await admin("PUT", consumer, holding({made["uuid"]: {"VCPU": 6}}, 1), status=409)
    await admin("PUT", consumer, holding({made["uuid"]: {"VCPU": 4}}, 1), status=204)


async def test_capacity_is_a_fraction_for_writes_and_whole_for_searches(admin: Client) -> None:
    made = await provider(admin, "host", VCPU=1)
    path = f"/resource_providers/{made['uuid']}/inventories/VCPU"
    await admin("PUT", path, {"resource_provider_generation": 1, "total": 3, "allocation_ratio": 1.5})
    assert len(await candidates(admin, "resources=VCPU:4")) == 1
    assert await candidates(admin, "resources=VCPU:5") == []
    await admin("PUT", f"/allocations/{new_id()}", holding({made["uuid"]: {"VCPU": 5}}), status=409)


@pytest.mark.parametrize(("version", "status"), [("1.26", 200), ("1.25", 400)])
async def test_all_may_be_reserved_from_1_26_on_bug_1787910(admin: Client, version: str, status: int) -> None:
    made = await provider(admin, "host", VCPU=4)
    path = f"/resource_providers/{made['uuid']}/inventories/VCPU"
    body = {"resource_provider_generation": 1, "total": 4, "reserved": 4}
    await admin("PUT", path, body, status=status, version=version)
    assert len(await candidates(admin, "resources=VCPU:1")) == (0 if status == 200 else 1)


# Trees


async def test_a_provider_without_a_root_is_refused_bug_1799892(database: Database, admin: Client) -> None:
    made = await provider(admin, "host")
    with pytest.raises(asyncpg.NotNullViolationError, match="root_id"):
        async with database.transaction() as tx:
            await tx.execute("UPDATE resource_providers SET root_id = NULL WHERE id = $1", (made["uuid"],))


async def test_a_subtree_takes_its_root_along(admin: Client) -> None:
    one, two = await provider(admin, "one"), await provider(admin, "two")
    child = await provider(admin, "child", one["uuid"])
    below = await provider(admin, "below", child["uuid"])
    await admin(
        "PUT",
        f"/resource_providers/{child['uuid']}",
        {"name": "child", "parent_provider_uuid": two["uuid"]},
    )
    shown = await admin("GET", f"/resource_providers/{below['uuid']}")
    assert (shown["parent_provider_uuid"], shown["root_provider_uuid"]) == (child["uuid"], two["uuid"])
    tree = await admin("GET", f"/resource_providers?in_tree={below['uuid']}")
    assert {found["name"] for found in tree["resource_providers"]} == {"two", "child", "below"}
    loop = {"name": "child", "parent_provider_uuid": below["uuid"]}
    await admin("PUT", f"/resource_providers/{child['uuid']}", loop, status=400)


async def test_a_tree_that_was_joined_is_searched_as_one(admin: Client) -> None:
    root, other = await provider(admin, "root", VCPU=4), await provider(admin, "other", DISK_GB=10)
    query = "resources=VCPU:1,DISK_GB:1"
    assert await candidates(admin, query) == []
    joined = {"name": "other", "parent_provider_uuid": root["uuid"]}
    await admin("PUT", f"/resource_providers/{other['uuid']}", joined)
    assert served(await candidates(admin, query)) == [
        {root["uuid"]: {"VCPU": 1}, other["uuid"]: {"DISK_GB": 1}}
    ]
    # Before 1.29 several providers of one tree are no candidate.
    assert await candidates(admin, query, "1.28") == []


async def test_summaries_show_the_whole_tree(admin: Client) -> None:
    # Story 2005859.
    root = await provider(admin, "root", VCPU=4, MEMORY_MB=64)
    child = await provider(admin, "child", root["uuid"])
    found = await admin("GET", "/allocation_candidates?resources=VCPU:1&limit=1")
    assert set(found["provider_summaries"]) == {root["uuid"], child["uuid"]}
    assert set(found["provider_summaries"][root["uuid"]]["resources"]) == {"VCPU", "MEMORY_MB"}
    before = await admin("GET", "/allocation_candidates?resources=VCPU:1&limit=1", version="1.26")
    assert set(before["provider_summaries"]) == {root["uuid"]}
    assert set(before["provider_summaries"][root["uuid"]]["resources"]) == {"VCPU"}


async def test_ports_with_bandwidth_beside_a_server(admin: Client) -> None:
    root = await provider(admin, "root", VCPU=4, MEMORY_MB=64)
    agent = await provider(admin, "root:ovs", root["uuid"])
    bridges = []
    for n in range(2):
        bridge = await provider(admin, f"root:ovs:br{n}", agent["uuid"], **BANDWIDTH)
        await describe(admin, bridge, [f"CUSTOM_PHYSNET_PHYSNET{n}", "CUSTOM_VNIC_TYPE_NORMAL"])
        bridges.append(bridge["uuid"])
    amounts = ",".join(f"{name}:1000" for name in BANDWIDTH)
    group = "resources_p{0}=" + amounts + "&required_p{0}=CUSTOM_PHYSNET_PHYSNET0,CUSTOM_VNIC_TYPE_NORMAL"
    query = f"resources=VCPU:1&{group.format(1)}&{group.format(2)}"
    (only,) = await candidates(admin, f"{query}&group_policy=none")
    assert only["allocations"][bridges[0]]["resources"] == dict.fromkeys(BANDWIDTH, 2000)
    # Story 2006068: both groups are mapped.
    assert only["mappings"] == {"": [root["uuid"]], "_p1": [bridges[0]], "_p2": [bridges[0]]}
    assert await candidates(admin, f"{query}&group_policy=isolate") == []
    # What is used already counts where groups meet (semantics: a gap of upstream's pruned search).
    used = holding({bridges[0]: dict.fromkeys(BANDWIDTH, 1001)})
    await admin("PUT", f"/allocations/{new_id()}", used, status=204)
    assert await candidates(admin, f"{query}&group_policy=none") == []


async def test_max_unit_holds_for_the_sum_of_groups(admin: Client) -> None:
    made = await provider(admin, "host", SRIOV_NET_VF=8)
    path = f"/resource_providers/{made['uuid']}/inventories/SRIOV_NET_VF"
    await admin("PUT", path, {"resource_provider_generation": 1, "total": 8, "max_unit": 3})
    query = "resources_a=SRIOV_NET_VF:2&resources_b=SRIOV_NET_VF:{}&group_policy=none"
    assert len(await candidates(admin, query.format(1))) == 1
    assert await candidates(admin, query.format(2)) == []


async def test_same_resources_by_another_mapping_are_another_candidate(admin: Client) -> None:
    root = await provider(admin, "root", VCPU=4)
    for n in range(2):
        await provider(admin, f"pf{n}", root["uuid"], SRIOV_NET_VF=1)
    query = "resources_a=SRIOV_NET_VF:1&resources_b=SRIOV_NET_VF:1&group_policy=none"
    one, two = await candidates(admin, query)
    assert one["allocations"] == two["allocations"]
    assert one["mappings"] != two["mappings"]


# Traits, aggregates and trees as conditions


async def test_traits_are_those_of_the_providers_that_give(admin: Client) -> None:
    root = await provider(admin, "root", VCPU=4)
    child = await provider(admin, "child", root["uuid"], DISK_GB=10)
    await describe(admin, root, ["CUSTOM_ROOT"])
    await describe(admin, child, ["CUSTOM_CHILD"])
    both = "resources=VCPU:1,DISK_GB:1"
    for query, count in (
        (f"{both}&required=CUSTOM_ROOT,CUSTOM_CHILD", 1),
        (f"{both}&required=!CUSTOM_CHILD", 0),
        ("resources=DISK_GB:1&required=CUSTOM_ROOT", 0),
        ("resources=DISK_GB:1&root_required=CUSTOM_ROOT", 1),
        ("resources=DISK_GB:1&root_required=!CUSTOM_ROOT", 0),
        ("resources=DISK_GB:1&required=!CUSTOM_ROOT", 1),
        ("resources_a=DISK_GB:1&required_a=CUSTOM_ROOT", 0),
        ("resources=DISK_GB:1&required=in:CUSTOM_ROOT,CUSTOM_CHILD", 1),
        ("resources=DISK_GB:1&required=in:CUSTOM_ROOT,CUSTOM_CHILD&required=CUSTOM_ROOT", 0),
        ("resources=DISK_GB:1&required_r=CUSTOM_ROOT&same_subtree=_r", 1),
        ("resources_a=DISK_GB:1&required_r=CUSTOM_ROOT&same_subtree=_a,_r&group_policy=none", 1),
        ("resources_a=VCPU:1&resources_b=DISK_GB:1&same_subtree=_a,_b&group_policy=none", 1),
    ):
        assert len(await candidates(admin, query)) == count, query


async def test_siblings_are_no_subtree(admin: Client) -> None:
    root = await provider(admin, "root", VCPU=4)
    await provider(admin, "a", root["uuid"], SRIOV_NET_VF=1)
    await provider(admin, "b", root["uuid"], DISK_GB=1)
    query = "resources=VCPU:1&resources_a=SRIOV_NET_VF:1&resources_b=DISK_GB:1&group_policy=none"
    assert len(await candidates(admin, query)) == 1
    assert await candidates(admin, f"{query}&same_subtree=_a,_b") == []


async def test_an_aggregate_of_the_root_spans_the_tree_for_the_plain_group(admin: Client) -> None:
    root = await provider(admin, "root", VCPU=4)
    child = await provider(admin, "child", root["uuid"], DISK_GB=10)
    of_root, of_child, unknown = new_id(), new_id(), new_id()
    await describe(admin, root, aggregates=[of_root])
    await describe(admin, child, aggregates=[of_child])
    for query, count in (
        (f"resources=DISK_GB:1&member_of={of_root}", 1),
        (f"resources=DISK_GB:1&member_of=!{of_root}", 0),
        (f"resources=VCPU:1&member_of={of_child}", 0),
        (f"resources_a=DISK_GB:1&member_of_a={of_root}", 0),
        (f"resources_a=DISK_GB:1&member_of_a={of_child}", 1),
        (f"resources_a=DISK_GB:1&member_of_a=!{of_root}", 1),
        (f"resources=DISK_GB:1&member_of=in:{of_root},{unknown}", 1),
        (f"resources=DISK_GB:1&member_of={of_root}&member_of={of_child}", 1),
        (f"resources=DISK_GB:1&member_of={of_root}&member_of={unknown}", 0),
        (f"resources=DISK_GB:1&member_of=!in:{of_child},{unknown}", 0),
        (f"resources=DISK_GB:1&member_of=!{unknown}", 1),
        (f"resources=DISK_GB:1&in_tree={child['uuid']}", 1),
        (f"resources=DISK_GB:1&in_tree={unknown}", 0),
    ):
        assert len(await candidates(admin, query)) == count, query


async def test_a_shared_disk_is_an_alternative_to_the_own(admin: Client) -> None:
    # Bug 1724613.
    root = await provider(admin, "root", VCPU=4, DISK_GB=10)
    shared = await provider(admin, "shared", DISK_GB=100)
    rack = new_id()
    await describe(admin, root, aggregates=[rack])
    await describe(admin, shared, [SHARES], [rack])
    query = "resources=VCPU:1,DISK_GB:5"
    own = {root["uuid"]: {"VCPU": 1, "DISK_GB": 5}}
    other = {root["uuid"]: {"VCPU": 1}, shared["uuid"]: {"DISK_GB": 5}}
    found = served(await candidates(admin, query))
    assert sorted(found, key=len) == [own, other]
    # A tree that is asked for excludes what others share with it.
    assert served(await candidates(admin, f"{query}&in_tree={root['uuid']}")) == [own]
    assert served(await candidates(admin, "resources_d=DISK_GB:50")) == [{shared["uuid"]: {"DISK_GB": 50}}]


async def test_a_provider_shares_with_trees_through_any_of_their_providers(admin: Client) -> None:
    root = await provider(admin, "root", VCPU=4)
    child = await provider(admin, "child", root["uuid"])
    shared = await provider(admin, "shared", DISK_GB=100)
    rack = new_id()
    await describe(admin, child, aggregates=[rack])
    await describe(admin, shared, [SHARES], [rack])
    assert served(await candidates(admin, "resources=VCPU:1,DISK_GB:5")) == [
        {root["uuid"]: {"VCPU": 1}, shared["uuid"]: {"DISK_GB": 5}}
    ]


async def test_a_limit_without_randomisation_is_stable(admin: Client) -> None:
    for n in range(5):
        await provider(admin, f"host{n}", VCPU=4)
    first = await candidates(admin, "resources=VCPU:1&limit=3")
    assert len(first) == 3
    assert await candidates(admin, "resources=VCPU:1&limit=3") == first


@pytest.mark.parametrize("strategy", [BREADTH, DEPTH])
async def test_hosts_can_be_taken_at_random(database: Database, strategy: str) -> None:
    settings = Settings(
        randomize_allocation_candidates=True, allocation_candidates_generation_strategy=strategy
    )
    app = build_api(PlacementService(database, settings=settings), authenticate=check)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app)) as http:
        admin = Client(http, "admins:admin")
        hosts = [(await provider(admin, f"host{n}", VCPU=4))["uuid"] for n in range(6)]
        # Forty answers that are the same by chance: one case in 6^39.
        first = {
            next(iter(served(await candidates(admin, "resources=VCPU:1&limit=1"))[0])) for _ in range(40)
        }
        assert len(first) > 1
        assert first <= set(hosts)
        every = [tuple(found) for found in served(await candidates(admin, "resources=VCPU:1"))]
        assert sorted(every) == sorted((uuid,) for uuid in hosts)


# Reshaping


async def test_a_reshape_that_fails_changes_nothing(admin: Client) -> None:
    root = await provider(admin, "root", VCPU=4, DISK_GB=10)
    child = await provider(admin, "child", root["uuid"])
    consumer = new_id()
    await admin("PUT", f"/allocations/{consumer}", holding({root["uuid"]: {"VCPU": 2}}), status=204)

    async def everything() -> Any:
        paths = [
            f"/resource_providers/{made['uuid']}/{what}"
            for made in (root, child)
            for what in ("inventories", "usages")
        ]
        return [await admin("GET", path) for path in (*paths, f"/allocations/{consumer}")]

    before = await everything()
    inventories = {
        root["uuid"]: {"resource_provider_generation": 2, "inventories": {"DISK_GB": {"total": 10}}},
        child["uuid"]: {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 4}}},
    }
    moved = holding({child["uuid"]: {"VCPU": 2}}, 1)
    stale = {**inventories, child["uuid"]: {**inventories[child["uuid"]], "resource_provider_generation": 7}}
    for body, status, why in (
        ({"inventories": inventories, "allocations": {}}, 409, "placement.inventory.inuse"),
        ({"inventories": stale, "allocations": {consumer: moved}}, 409, "placement.concurrent_update"),
        ({"inventories": inventories, "allocations": {consumer: {**moved, "consumer_generation": 9}}}, 409,
         "placement.concurrent_update"),
        ({"inventories": inventories, "allocations": {consumer: holding({child["uuid"]: {"VCPU": 5}}, 1)}}, 409,
         "placement.undefined_code"),
        ({"inventories": {**inventories, new_id(): inventories[child["uuid"]]}, "allocations": {consumer: moved}}, 400,
         "placement.resource_provider.not_found"),
    ):  # fmt: skip
        assert code(await admin("POST", "/reshaper", body, status=status)) == why
        assert await everything() == before
    await admin(
        "POST", "/reshaper", {"inventories": inventories, "allocations": {consumer: moved}}, status=204
    )
    assert (await admin("GET", f"/resource_providers/{child['uuid']}/usages"))["usages"] == {"VCPU": 2}
