"""`/allocations` and `/resource_providers/{uuid}/allocations`.

The body of a write has grown over the microversions; each form is a type of its own and `to_write` reads
them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from moorage.api import Reply
from moorage.core.errors import BadRequest, NotFound
from moorage.core.ids import is_uuid
from moorage.placement import providers
from moorage.placement.http.common import Amount, ClassName, Id, PlacementCall, Uuid, canonical, reply
from moorage.placement.model import Allocations, ConsumerWrite
from moorage.placement.reads import (
    ALLOCATIONS_OF_CONSUMER,
    ALLOCATIONS_OF_PROVIDER,
    CONSUMER,
    CONSUMERS_BY_ID,
)

NOBODY = "00000000-0000-0000-0000-000000000000"
"""Project and user of consumers written before microversion 1.8, which did not tell them."""

Amounts = Annotated[dict[ClassName, Amount], Meta(min_length=1)]
Type = Annotated[str, Meta(pattern=r"^[A-Z0-9_]+\Z", min_length=1, max_length=255)]
Mappings = Annotated[
    dict[Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{0,64}\Z")], Annotated[list[Uuid], Meta(min_length=1)]],
    Meta(min_length=1),
]


class ProviderRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    uuid: Uuid


class ListedAllocation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    resource_provider: ProviderRef
    resources: Amounts


class ProviderAllocation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    resources: Amounts
    generation: int | None = None


Listed = Annotated[list[ListedAllocation], Meta(min_length=1)]
Keyed = dict[Uuid, ProviderAllocation]
SomeKeyed = Annotated[Keyed, Meta(min_length=1)]


class Write10(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    allocations: Listed


class Write18(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    allocations: Listed
    project_id: Id
    user_id: Id


class Write112(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    allocations: SomeKeyed
    project_id: Id
    user_id: Id


class Post113(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    allocations: Keyed
    project_id: Id
    user_id: Id


class Write128(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    allocations: Keyed
    project_id: Id
    user_id: Id
    consumer_generation: int | None


class Write134(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    allocations: Keyed
    project_id: Id
    user_id: Id
    consumer_generation: int | None
    mappings: Mappings | None = None


class Write138(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    allocations: Keyed
    project_id: Id
    user_id: Id
    consumer_generation: int | None
    consumer_type: Type
    mappings: Mappings | None = None


def to_write(consumer: str, body: Any) -> ConsumerWrite:
    """Read any form of a consumer's allocations."""
    given = body.allocations
    allocations: Allocations = {}
    if isinstance(given, list):
        for item in given:
            allocations.setdefault(item.resource_provider.uuid, {}).update(item.resources)
    else:
        allocations = {provider: dict(item.resources) for provider, item in given.items()}
    return ConsumerWrite(
        consumer_id=canonical(consumer),
        allocations=allocations,
        project_id=getattr(body, "project_id", NOBODY),
        user_id=getattr(body, "user_id", NOBODY),
        consumer_type=getattr(body, "consumer_type", None),
        generation=getattr(body, "consumer_generation", None),
        check_generation=hasattr(body, "consumer_generation"),
    )


def to_writes(bodies: Mapping[str, Any]) -> list[ConsumerWrite]:
    """Read the allocations of several consumers; raises BadRequest for one that is named in two ways."""
    writes = [to_write(consumer, body) for consumer, body in bodies.items()]
    if len({write.consumer_id for write in writes}) < len(writes):
        raise BadRequest("A consumer is named twice, its uuid written in two ways.", field="allocations")
    return writes


def _consumer(call: PlacementCall) -> str:
    given = call.path["consumer"]
    if not is_uuid(given):
        raise BadRequest(f"Malformed consumer_uuid: {given} is not a uuid.", field="consumer_uuid")
    return given


async def show_allocations(call: PlacementCall) -> Reply:
    """Answer what a consumer holds; an unknown consumer holds nothing."""
    async with call.app.database.read() as tx:
        rows = await ALLOCATIONS_OF_CONSUMER.all(tx, id=canonical(call.path["consumer"]))
        consumer = await CONSUMER.first(tx, id=canonical(call.path["consumer"]))
    held: dict[str, Any] = {}
    for row in rows:
        entry = held.setdefault(row.provider_id, {"generation": row.generation, "resources": {}})
        entry["resources"][row.resource_class] = row.used
    body: dict[str, Any] = {"allocations": held}
    if held and consumer is not None:
        since = {
            "project_id": (1, 12),
            "user_id": (1, 12),
            "consumer_generation": (1, 28),
            "consumer_type": (1, 38),
        }
        facts = {
            "project_id": consumer.project_id,
            "user_id": consumer.user_id,
            "consumer_generation": consumer.generation,
            "consumer_type": consumer.consumer_type or "unknown",
        }
        body |= {key: facts[key] for key, first in since.items() if call.version >= first}
    return reply(call, body)


async def put_allocations(call: PlacementCall) -> Reply:
    """Replace what a consumer holds."""
    write = to_write(_consumer(call), call.body)
    return await _write(call, [write])


async def post_allocations(call: PlacementCall) -> Reply:
    """Replace what several consumers hold, all or none."""
    if not call.body:
        raise BadRequest(
            "At least one consumer is needed: the body does not have enough properties.", field="body"
        )
    return await _write(call, to_writes(call.body))


async def _write(call: PlacementCall, writes: list[ConsumerWrite]) -> Reply:
    await call.app.write(writes)
    return Reply(status=204)


async def delete_allocations(call: PlacementCall) -> Reply:
    """Give back all that a consumer holds; 404 when it holds nothing."""
    consumer = canonical(call.path["consumer"])
    async with call.app.database.transaction() as tx:
        if not await call.app.ledger.release(tx, consumer):
            raise NotFound(f"No allocations for consumer '{consumer}'")
    return Reply(status=204)


async def provider_allocations(call: PlacementCall) -> Reply:
    """Answer what is allocated on a provider, by consumer."""
    async with call.app.database.read() as tx:
        provider = await providers.show_provider(tx, call.path["uuid"])
        rows = await ALLOCATIONS_OF_PROVIDER.all(tx, id=provider.id)
        ids = sorted({row.consumer_id for row in rows})
        consumers = {found.id: found for found in await CONSUMERS_BY_ID.all(tx, ids=ids)}
    held: dict[str, Any] = {}
    for row in rows:
        entry = held.setdefault(row.consumer_id, {"resources": {}})
        entry["resources"][row.resource_class] = row.used
        if call.version >= (1, 28) and row.consumer_id in consumers:
            entry["consumer_generation"] = consumers[row.consumer_id].generation
    return reply(call, {"allocations": held, "resource_provider_generation": provider.generation})
