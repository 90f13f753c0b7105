"""`/resource_providers/{uuid}/aggregates`."""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.api import Reply
from moorage.core.errors import BadRequest
from moorage.placement import providers
from moorage.placement.http.common import PlacementCall, Uuid, reply

AggregateList = list[Uuid]


class Aggregates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    aggregates: list[Uuid]
    resource_provider_generation: int


def _render(call: PlacementCall, names: list[str], generation: int) -> Reply:
    body: dict[str, Any] = {"aggregates": names}
    if call.version >= (1, 19):
        body["resource_provider_generation"] = generation
    return reply(call, body)


async def show_aggregates(call: PlacementCall) -> Reply:
    """Answer the aggregates of a provider."""
    async with call.app.database.read() as tx:
        provider = await providers.show_provider(tx, call.path["uuid"])
        names = await providers.aggregates_of(tx, provider.id)
    return _render(call, names, provider.generation)


async def set_aggregates(call: PlacementCall) -> Reply:
    """Replace the aggregates; compares and bumps the generation from 1.19 on."""
    guarded = call.version >= (1, 19)
    names: list[str] = call.body.aggregates if guarded else call.body
    if len(set(names)) < len(names):
        raise BadRequest(
            "Aggregates must not be repeated: the list has non-unique elements.", field="aggregates"
        )
    async with call.app.database.transaction() as tx:
        generation = await providers.set_aggregates(
            tx,
            call.path["uuid"],
            names,
            call.body.resource_provider_generation if guarded else None,
            bumps=guarded,
        )
    return _render(call, names, generation)
