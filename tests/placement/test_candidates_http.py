"""`GET /allocation_candidates` as it follows changes, and how old it may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from moorage.api import Api
from moorage.api.policy import Policies
from moorage.core.ids import new_id
from moorage.placement.config import DEPTH, Settings
from moorage.placement.http.explain import CONTROL_ENDPOINTS, CONTROL_POLICIES
from moorage.placement.http.routes import build_api
from moorage.placement.service import PlacementService
from moorage.store.database import Database
from tests.support.placement import Client, holding, provider
from tests.support.tokens import check


def client(service: PlacementService) -> Client:
    transport = httpx.ASGITransport(app=build_api(service, authenticate=check))
    return Client(httpx.AsyncClient(transport=transport), "admins:admin")


async def candidates(admin: Client, query: str = "resources=VCPU:1") -> Any:
    return await admin("GET", f"/allocation_candidates?{query}")


async def test_a_repeated_request_sees_every_change_of_this_and_other_processes(database: Database) -> None:
    ours, theirs = client(PlacementService(database)), client(PlacementService(database))
    host = await provider(ours, "host", VCPU=2)
    uuid = host["uuid"]
    summary = (await candidates(ours))["provider_summaries"][uuid]
    assert summary["resources"] == {"VCPU": {"capacity": 2, "used": 0}}
    consumer = new_id()
    await theirs("PUT", f"/allocations/{consumer}", holding({uuid: {"VCPU": 2}}), status=204)
    assert (await candidates(ours))["allocation_requests"] == []
    await theirs("DELETE", f"/allocations/{consumer}", status=204)
    child = await provider(theirs, "child", uuid, VCPU=1)
    generation = (await theirs("GET", f"/resource_providers/{uuid}"))["generation"]
    traits = {"traits": ["HW_CPU_X86_AVX"], "resource_provider_generation": generation}
    await theirs("PUT", f"/resource_providers/{uuid}/traits", traits)
    found = await candidates(ours)
    assert len(found["allocation_requests"]) == 2
    assert found["provider_summaries"][uuid]["traits"] == ["HW_CPU_X86_AVX"]
    assert found["provider_summaries"][child["uuid"]]["parent_provider_uuid"] == uuid
    await theirs("DELETE", f"/resource_providers/{child['uuid']}", status=204)
    found = await candidates(ours)
    assert list(found["provider_summaries"]) == [uuid]
    assert len(found["allocation_requests"]) == 1


async def test_a_name_that_is_deleted_is_unknown_again(database: Database) -> None:
    ours, theirs = client(PlacementService(database)), client(PlacementService(database))
    await provider(ours, "host", VCPU=2)
    await ours("PUT", "/traits/CUSTOM_SOON_GONE", status=201)
    query = "resources=VCPU:1&required=CUSTOM_SOON_GONE"
    assert (await candidates(ours, query))["allocation_requests"] == []
    await theirs("DELETE", "/traits/CUSTOM_SOON_GONE", status=204)
    await ours("GET", f"/allocation_candidates?{query}", status=400)


def control(service: PlacementService) -> Client:
    """Placement's part of the control API."""
    policies = Policies(CONTROL_POLICIES, system=True)
    api = Api("control", service, CONTROL_ENDPOINTS, "control", None, policies=policies, authenticate=check)
    return Client(httpx.AsyncClient(transport=httpx.ASGITransport(app=api)), "admins:admin")


@pytest.mark.parametrize(
    ("face", "path", "count"),
    [
        (client, "/allocation_candidates", lambda found: len(found["allocation_requests"])),
        (control, "/placement/explain", lambda found: found["serving"]),
        (control, "/placement/capacity", lambda found: found["everywhere"]["total"]),
    ],
    ids=["candidates", "explain", "capacity"],
)
async def test_an_answer_says_how_old_it_is_and_a_request_how_old_it_may_be(
    database: Database, face: Callable[[PlacementService], Client], path: str, count: Callable[[Any], int]
) -> None:
    service = PlacementService(database)
    ours, theirs = client(service), client(PlacementService(database))
    asked = face(service)

    async def ask(max_age: str | None = None, status: int = 200) -> Any:
        more = {} if max_age is None else {"X-Moorage-Index-Max-Age": max_age}
        return await asked("GET", f"{path}?resources=VCPU:1", status=status, headers=more)

    await provider(ours, "host", VCPU=1)
    assert count(await ask()) == 1
    age = float(asked.headers["x-moorage-index-age"])
    assert age >= 0
    await provider(theirs, "another", VCPU=1)
    assert count(await ask("3600")) == 1
    assert float(asked.headers["x-moorage-index-age"]) > age
    assert count(await ask()) == 2
    for wrong in ("soon", "-1", "nan"):
        await ask(wrong, status=400)


@pytest.mark.parametrize(
    ("settings", "query", "count"),
    [
        (Settings(max_allocation_candidates=3), "", 3),
        (Settings(max_allocation_candidates=3), "&limit=2", 2),
        (Settings(max_allocation_candidates=3), "&limit=5", 3),
        (Settings(max_allocation_candidates=-1), "", 4),
    ],
)
async def test_a_search_has_a_maximum(database: Database, settings: Settings, query: str, count: int) -> None:
    admin = client(PlacementService(database, settings=settings))
    for number in range(4):
        await provider(admin, f"host{number}", VCPU=2)
    found = await candidates(admin, f"resources=VCPU:1{query}")
    assert len(found["allocation_requests"]) == count


async def test_upstreams_order_can_be_had(database: Database) -> None:
    settings = Settings(allocation_candidates_generation_strategy=DEPTH)
    wide, deep = client(PlacementService(database)), client(PlacementService(database, settings=settings))
    for number in range(2):
        host = await provider(wide, f"host{number}", VCPU=2)
        for at in range(2):
            await provider(wide, f"host{number}-{at}", host["uuid"], DISK_GB=5)
    query = "resources=VCPU:1,DISK_GB:1&limit=2"
    roots = {
        name: {next(iter(r["mappings"][""])) for r in (await candidates(admin, query))["allocation_requests"]}
        for name, admin in (("wide", wide), ("deep", deep))
    }
    assert (len(roots["wide"]), len(roots["deep"])) == (2, 1)
