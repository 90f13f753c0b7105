"""`/traits` and `/resource_providers/{uuid}/traits`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from moorage.api import Reply, names
from moorage.core.errors import BadRequest
from moorage.placement import providers
from moorage.placement.http.common import PlacementCall, only_keys, reply
from moorage.placement.names import CUSTOM, MAX_LENGTH, TRAITS, Name

QUERY = names("name", "associated")
TraitName = Annotated[str, Meta(pattern=r"^[A-Z0-9_]+\Z", min_length=1, max_length=255)]


class ProviderTraits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    traits: list[TraitName]
    resource_provider_generation: int


async def list_traits(call: PlacementCall) -> Reply:
    """Answer all traits, or those that the query selects."""
    only_keys(call.query, ("name", "associated"))
    async with call.app.database.read() as tx:
        found = await TRAITS.all(tx)
        if "associated" in call.query:
            used = await TRAITS.used(tx)
            wanted = _associated(call.query["associated"][0])
            found = [trait for trait in found if (trait.name in used) is wanted]
    if "name" in call.query:
        found = _named(found, call.query["name"][0])
    return reply(call, {"traits": [trait.name for trait in found]})


def _associated(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise BadRequest(
            f'The query parameter "associated" only accepts "true" or "false", got: {text}',
            field="associated",
            code="placement.query.bad_value",
        )
    return text.lower() == "true"


def _named(found: list[Name], text: str) -> list[Name]:
    how, _, value = text.partition(":")
    if how == "startswith":
        return [trait for trait in found if trait.name.startswith(value)]
    if how == "in":
        names = set(value.split(","))
        return [trait for trait in found if trait.name in names]
    raise BadRequest(
        "Badly formatted name parameter. Expected name query string parameter in form: ?name=[in|startswith]:"
        f'[name1,name2|prefix]. Got: "{text}"',
        field="name",
        code="placement.query.bad_value",
    )


async def show_trait(call: PlacementCall) -> Reply:
    """Answer whether a trait exists."""
    async with call.app.database.read() as tx:
        found = await TRAITS.get(tx, call.path["name"])
    return reply(call, status=204, changed_at=found.changed_at)


async def ensure_trait(call: PlacementCall) -> Reply:
    """Create a custom trait unless it exists."""
    name = call.path["name"]
    if not CUSTOM.match(name) or len(name) > MAX_LENGTH:
        raise BadRequest(
            f"The trait is invalid. A valid trait must be no longer than {MAX_LENGTH} characters, start with the"
            ' prefix "CUSTOM_" and use following characters: "A"-"Z", "0"-"9" and "_"',
            field="name",
        )
    async with call.app.database.transaction() as tx:
        created = await TRAITS.create(tx, name)
        found = await TRAITS.get(tx, name)
    return reply(
        call, status=201 if created else 204, changed_at=found.changed_at, location=f"/traits/{name}"
    )


async def delete_trait(call: PlacementCall) -> Reply:
    """Delete a custom trait that no provider has."""
    async with call.app.database.transaction() as tx:
        await TRAITS.delete(tx, call.path["name"])
    return Reply(status=204)


async def show_provider_traits(call: PlacementCall) -> Reply:
    """Answer the traits of a provider."""
    async with call.app.database.read() as tx:
        found = await providers.show_provider(tx, call.path["uuid"])
        names = await providers.traits_of(tx, found.id)
    return reply(call, {"traits": names, "resource_provider_generation": found.generation})


async def set_provider_traits(call: PlacementCall) -> Reply:
    """Replace the traits of a provider."""
    uuid, body = call.path["uuid"], call.body
    async with call.app.database.transaction() as tx:
        await providers.lock_provider(tx, uuid, body.resource_provider_generation)
        await TRAITS.require(tx, body.traits)
        generation = await providers.set_traits(tx, uuid, body.traits)
    names = sorted(set(body.traits))
    return reply(call, {"traits": names, "resource_provider_generation": generation})


async def delete_provider_traits(call: PlacementCall) -> Reply:
    """Take all traits from a provider."""
    async with call.app.database.transaction() as tx:
        await providers.set_traits(tx, call.path["uuid"], ())
    return Reply(status=204)
