"""Usages: of a provider, and of a project over all providers."""

from __future__ import annotations

from typing import Any

from moorage.api import Reply, names
from moorage.core.errors import BadRequest
from moorage.placement import providers
from moorage.placement.http.common import PlacementCall, only_keys, reply
from moorage.placement.reads import CONSUMER_COUNTS, PROJECT_USAGES, PROVIDER_USAGES, Usage

QUERY = names("project_id", "user_id", later={"consumer_type": "1.38"})
UNKNOWN = "unknown"
ALL = "all"


async def provider_usages(call: PlacementCall) -> Reply:
    """Answer what is used of each inventory of a provider."""
    async with call.app.database.read() as tx:
        provider = await providers.show_provider(tx, call.path["uuid"])
        rows = await PROVIDER_USAGES.all(tx, id=provider.id)
    usages = {row.resource_class: row.used for row in rows}
    return reply(call, {"resource_provider_generation": provider.generation, "usages": usages})


async def project_usages(call: PlacementCall) -> Reply:
    """Answer what a project (and user) uses; by consumer type from 1.38 on."""
    project, user, kind = _parse(call)
    await call.authorize("placement:usages", {"project_id": project})
    async with call.app.database.read() as tx:
        rows = await PROJECT_USAGES.all(tx, project_id=project, user_id=user)
        counts = await CONSUMER_COUNTS.all(tx, project_id=project, user_id=user)
    if call.version < (1, 38):
        return reply(call, {"usages": _summed(rows)})
    number = {row.consumer_type or UNKNOWN: row.consumers for row in counts}
    return reply(call, {"usages": _by_type(rows, number, kind)})


def _parse(call: PlacementCall) -> tuple[str, str | None, str | None]:
    allowed = QUERY.known(call.version)
    only_keys(call.query, allowed)
    values: dict[str, str | None] = {
        key: call.query[key][0] if key in call.query else None for key in allowed
    }
    project = values["project_id"]
    if project is None:
        raise BadRequest(
            "'project_id' is a required property of the query.",
            field="project_id",
            code="placement.query.missing_value",
        )
    for key, value in values.items():
        if value is not None and not 1 <= len(value) <= 255:
            keyword = "maxLength" if value else "minLength"
            raise BadRequest(
                f"Failed validating '{keyword}': invalid {key} in the query.",
                field=key,
                code="placement.query.bad_value",
            )
    kind = values.get("consumer_type")
    if kind not in {None, UNKNOWN, ALL} and not _is_type(str(kind)):
        raise BadRequest(
            f"Failed validating consumer_type: {kind} is not a type of consumers.",
            field="consumer_type",
            code="placement.query.bad_value",
        )
    return project, values["user_id"], kind


def _is_type(text: str) -> bool:
    return all(c.isdigit() or c == "_" or (c.isascii() and c.isupper()) for c in text)


def _summed(rows: list[Usage]) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows:
        found[row.resource_class] = found.get(row.resource_class, 0) + row.used
    return found


def _by_type(rows: list[Usage], counts: dict[str, int], kind: str | None) -> dict[str, dict[str, Any]]:
    if kind == ALL:
        return {ALL: {"consumer_count": sum(counts.values()), **_summed(rows)}} if rows else {}
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = row.consumer_type or UNKNOWN
        if kind in {None, name}:
            group = found.setdefault(name, {"consumer_count": counts.get(name, 0)})
            group[row.resource_class] = row.used
    return found
