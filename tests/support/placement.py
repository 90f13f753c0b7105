"""The Placement API as tests call it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from moorage.core.ids import new_id

LATEST = "1.39"


class Client:
    def __init__(self, http: httpx.AsyncClient, token: str | None) -> None:
        self._http = http
        self._token = token

    async def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        status: int | None = 200,
        version: str = LATEST,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        answer = await self._send(method, path, body, version, headers or {})
        assert status in {None, answer.status_code}, (method, path, answer.status_code, answer.text)
        self.headers = answer.headers
        return answer.json() if answer.content else None

    async def status(self, method: str, path: str, body: Any = None) -> int:
        """Only the status of an answer, whatever it is."""
        return (await self._send(method, path, body, LATEST, {})).status_code

    async def _send(
        self, method: str, path: str, body: Any, version: str, more: Mapping[str, str]
    ) -> httpx.Response:
        headers = {"OpenStack-API-Version": f"placement {version}", **more}
        if self._token is not None:
            headers["X-Auth-Token"] = self._token
        return await self._http.request(method, f"http://placement{path}", json=body, headers=headers)


async def provider(admin: Client, name: str, parent: str | None = None, **totals: int) -> dict[str, Any]:
    body = {"name": name, "uuid": new_id(), **({"parent_provider_uuid": parent} if parent else {})}
    made = await admin("POST", "/resource_providers", body)
    if totals:
        inventories = {rc: {"total": total} for rc, total in totals.items()}
        await admin(
            "PUT",
            f"/resource_providers/{made['uuid']}/inventories",
            {"resource_provider_generation": made["generation"], "inventories": inventories},
        )
    return made


def holding(
    allocations: dict[str, dict[str, int]], generation: int | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "allocations": {uuid: {"resources": amounts} for uuid, amounts in allocations.items()},
        "project_id": "p1",
        "user_id": "u1",
        "consumer_generation": generation,
        "consumer_type": "INSTANCE",
        **more,
    }


def code(body: Any) -> str:
    return str(body["errors"][0]["code"])
