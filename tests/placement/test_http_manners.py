"""How the Placement API says no, in the words and codes that its clients look for."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from moorage.core.ids import new_id
from tests.support.placement import LATEST, Client, holding, provider


async def test_a_client_that_takes_no_json_gets_none(admin: Client, http: httpx.AsyncClient) -> None:
    headers = {"x-auth-token": "admins:admin", "accept": "text/plain"}
    refused = await http.get("http://placement/resource_providers", headers=headers)
    assert refused.status_code == 406
    for accept in ("*/*", "application/*", "text/html, application/json;q=0.5"):
        answer = await http.get("http://placement/resource_providers", headers=headers | {"accept": accept})
        assert answer.status_code == 200, accept
    never = headers | {"accept": "application/json;q=0"}
    assert (await http.get("http://placement/resource_providers", headers=never)).status_code == 406


async def test_a_browser_reads_faults_as_a_page(http: httpx.AsyncClient) -> None:
    headers = {"accept": "text/html", "openstack-api-version": "placement <b>"}
    page = await http.get("http://placement/", headers=headers)
    assert (page.status_code, page.headers["content-type"]) == (400, "text/html; charset=UTF-8")
    assert "&lt;b&gt;" in page.text
    assert "<b>" not in page.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 400), ({"content-type": "text/plain"}, 415), ({"content-type": "application/json"}, 400)],
)
async def test_a_body_has_a_media_type(http: httpx.AsyncClient, headers: dict[str, str], status: int) -> None:
    token = {"x-auth-token": "admins:admin"}
    answer = await http.post("http://placement/resource_providers", content=b"x", headers=token | headers)
    assert answer.status_code == status


async def test_a_put_without_a_body_is_of_no_known_type(http: httpx.AsyncClient) -> None:
    url = f"http://placement/resource_providers/{new_id()}"
    answer = await http.put(url, headers={"x-auth-token": "admins:admin"})
    assert answer.status_code == 415


@pytest.mark.parametrize(
    ("version", "status", "text"),
    [
        ("0.5", 406, "Unacceptable version header: 0.5"),
        ("1.99", 406, "Unacceptable version header: 1.99"),
        ("1.2.3", 400, "invalid version string: 1.2.3"),
        ("pony.horse", 400, "invalid version string: pony.horse"),
    ],
)
async def test_versions_that_are_not_offered(admin: Client, version: str, status: int, text: str) -> None:
    refused = await admin("GET", "/", status=status, version=version)
    assert text in refused["errors"][0]["detail"]


async def test_a_provider_that_does_not_exist_goes_before_a_wrong_body(admin: Client) -> None:
    for path in ("aggregates", "inventories", "traits"):
        await admin("PUT", f"/resource_providers/{new_id()}/{path}", [], status=404)


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("inventories", {"inventories": {}}, "'resource_provider_generation' is a required property"),
        ("inventories", {"resource_provider_generation": 0, "inventories": {}, "x": 1}, "('x' was unexpected)"),
        ("inventories", {"resource_provider_generation": "a", "inventories": {}}, "'a' is not of type 'integer'"),
        ("inventories", {"resource_provider_generation": True, "inventories": {}}, "True is not of type 'integer'"),
        (
            "inventories",
            {"resource_provider_generation": 0, "inventories": {"DISK_GB": {"total": 1}, "VCPU": {"total": 0}}},
            "0 is less than the minimum of 1",
        ),
        (
            "inventories",
            {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 2**31}}},
            "2147483648 is greater than the maximum of 2147483647",
        ),
        (
            "inventories",
            {"resource_provider_generation": 0, "inventories": {"vcpu": {"total": 1}}},
            "'vcpu' does not match any of the regexes: '^[A-Z0-9_]+$'",
        ),
        ("traits", {"traits": "x", "resource_provider_generation": 0}, "'x' is not of type 'array'"),
        ("traits", {"traits": ["A", "b"], "resource_provider_generation": 0}, "'b' does not match '^[A-Z0-9_]+$'"),
        ("traits", {"traits": ["A" * 256], "resource_provider_generation": 0}, "is too long"),
        ("aggregates", {"aggregates": ["x"], "resource_provider_generation": 0}, "'x' is not a 'uuid'"),
        ("aggregates", 7, "7 is not of type 'object'"),
    ],
)  # fmt: skip
async def test_a_wrong_body_is_told_as_a_failed_schema(
    admin: Client, path: str, body: Any, text: str
) -> None:
    made = await provider(admin, "host")
    refused = await admin("PUT", f"/resource_providers/{made['uuid']}/{path}", body, status=400)
    detail = refused["errors"][0]["detail"]
    assert detail.startswith("JSON does not validate: ")
    assert text in detail


async def test_the_wrong_value_is_named_wherever_it_stands(admin: Client) -> None:
    made = await provider(admin, "host", VCPU=4)
    good, bad = holding({made["uuid"]: {"VCPU": 1}}), holding({made["uuid"]: {"VCPU": 0}})
    refused = await admin("POST", "/allocations", {new_id(): good, new_id(): bad}, status=400)
    assert "0 is less than the minimum of 1" in refused["errors"][0]["detail"]
    empty = await admin("PUT", f"/allocations/{new_id()}", {**good, "mappings": {}}, status=400)
    assert "{} does not have enough properties" in empty["errors"][0]["detail"]


@pytest.mark.parametrize("raw", [b"", b"{", b'{"traits": [', b'{"unknown": 1, '])
async def test_what_is_not_json_is_called_so(admin: Client, http: httpx.AsyncClient, raw: bytes) -> None:
    made = await provider(admin, "host")
    answer = await http.put(
        f"http://placement/resource_providers/{made['uuid']}/traits",
        content=raw,
        headers={
            "x-auth-token": "admins:admin",
            "content-type": "application/json",
            "openstack-api-version": f"placement {LATEST}",
        },
    )
    assert answer.status_code == 400
    assert "Malformed JSON" in answer.json()["errors"][0]["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/resource_providers?name=%00",
        "/usages?project_id=%00",
        "/allocation_candidates?resources=VCPU:1&required=%00",
        "/allocation_candidates?resources=%00:1",
        "/allocation_candidates?resources=VCPU:1&in_tree=%00",
        "/allocation_candidates?resources=VCPU:1&member_of=%00",
        "/allocation_candidates?resources=VCPU:" + "9" * 19,
    ],
)
async def test_what_cannot_be_looked_for_is_the_clients_mistake(admin: Client, path: str) -> None:
    await admin("GET", path, status=400)


@pytest.mark.parametrize("kind", ["resource_providers", "allocations", "traits", "resource_classes"])
async def test_what_cannot_be_a_name_is_not_found(admin: Client, kind: str) -> None:
    await admin("GET", f"/{kind}/%00", status=404)


async def test_what_cannot_be_stored_is_the_clients_mistake(admin: Client) -> None:
    made = await provider(admin, "host", VCPU=4)
    await admin("POST", "/resource_providers", {"name": "a\0"}, status=400)
    nobody = holding({made["uuid"]: {"VCPU": 1}}, project_id="\0")
    await admin("PUT", f"/allocations/{new_id()}", nobody, status=400)
    huge = holding({made["uuid"]: {"VCPU": 10**30}})
    await admin("PUT", f"/allocations/{new_id()}", huge, status=409)
    await admin("POST", "/allocations", {new_id(): huge, new_id(): huge}, status=409)
    generation = {"resource_provider_generation": 10**30, "inventories": {}}
    await admin("PUT", f"/resource_providers/{made['uuid']}/inventories", generation, status=409)


async def test_a_limit_may_have_any_number_of_digits(admin: Client) -> None:
    await provider(admin, "host", VCPU=4)
    found = await admin("GET", f"/allocation_candidates?resources=VCPU:1&limit={'9' * 4500}")
    assert len(found["allocation_requests"]) == 1


async def test_a_capacity_beyond_64_bits_is_only_large(admin: Client) -> None:
    made = await provider(admin, "host", VCPU=1)
    most = {"resource_provider_generation": 1, "total": 2**31 - 1, "allocation_ratio": 3.4e38}
    await admin("PUT", f"/resource_providers/{made['uuid']}/inventories/VCPU", most)
    found = await admin("GET", "/allocation_candidates?resources=VCPU:1")
    assert len(found["allocation_requests"]) == 1
    await admin("PUT", f"/allocations/{new_id()}", holding({made["uuid"]: {"VCPU": 2**31 - 1}}), status=204)


async def test_a_consumer_is_named_once(admin: Client) -> None:
    made = await provider(admin, "host", VCPU=4)
    consumer = new_id()
    body = holding({made["uuid"]: {"VCPU": 1}})
    twice = {consumer: body, consumer.upper(): body}
    await admin("POST", "/allocations", twice, status=400)
    await admin("POST", "/reshaper", {"inventories": {}, "allocations": twice}, status=400)


async def test_an_inventory_in_use_is_named_in_the_order_of_classes(admin: Client) -> None:
    made = await provider(admin, "host", DISK_GB=9, VCPU=9)
    await admin(
        "PUT", f"/allocations/{new_id()}", holding({made["uuid"]: {"DISK_GB": 1, "VCPU": 1}}), status=204
    )
    refused = await admin("DELETE", f"/resource_providers/{made['uuid']}/inventories", status=409)
    assert "'VCPU, DISK_GB'" in refused["errors"][0]["detail"]
