"""`/resource_providers`: create, find, rename and move, delete."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from moorage.api import Reply, names
from moorage.core.ids import new_id
from moorage.placement import providers
from moorage.placement.http.common import (
    PlacementCall,
    Uuid,
    canonical,
    newest,
    only_keys,
    render_provider,
    reply,
)
from moorage.placement.http.queries import provider_filter
from moorage.placement.reads import PROVIDERS, PROVIDERS_BY_ID

# From which version on each parameter is known; what is not is refused in the words of this API's clients.
QUERY = names(
    "name", "uuid", later={"member_of": "1.3", "resources": "1.4", "in_tree": "1.14", "required": "1.18"}
)
ProviderName = Annotated[str, Meta(min_length=1, max_length=200)]


class CreateProvider(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: ProviderName
    uuid: Uuid | None = None


class CreateNestedProvider(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: ProviderName
    uuid: Uuid | None = None
    parent_provider_uuid: Uuid | None = None


class UpdateProvider(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: ProviderName


class UpdateNestedProvider(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: ProviderName
    parent_provider_uuid: Uuid | UnsetType | None = UNSET


async def list_providers(call: PlacementCall) -> Reply:
    """Answer the providers that meet every condition of the query."""
    only_keys(call.query, QUERY.known(call.version))
    wanted = provider_filter(call.query, call.version)
    single = {key: call.query[key][0] if key in call.query else None for key in ("name", "uuid", "in_tree")}
    async with call.app.database.read() as tx:
        found = await PROVIDERS.all(tx, name=single["name"], id=single["uuid"], tree=single["in_tree"])
        if wanted is not None:
            await wanted.check_names(tx)
            await call.app.follower.catch_up()
            ids = wanted.matching(call.app.index.columns)
            found = await PROVIDERS_BY_ID.all(tx, ids=[p.id for p in found if p.id in ids])
    body = {"resource_providers": [render_provider(call, provider) for provider in found]}
    return reply(call, body, changed_at=newest(found))


async def create_provider(call: PlacementCall) -> Reply:
    """Create a provider: 201 without a body before 1.20, then 200 with it."""
    body = call.body
    async with call.app.database.transaction() as tx:
        made = await providers.create_provider(
            tx,
            provider=canonical(body.uuid) if body.uuid else new_id(),
            name=body.name,
            parent=getattr(body, "parent_provider_uuid", None),
        )
    location = f"/resource_providers/{made.id}"
    if call.version < (1, 20):
        return reply(call, status=201, location=location)
    return reply(call, render_provider(call, made), changed_at=made.created_at, location=location)


async def show_provider(call: PlacementCall) -> Reply:
    """Answer one provider."""
    async with call.app.database.read() as tx:
        found = await providers.show_provider(tx, call.path["uuid"])
    return reply(call, render_provider(call, found), changed_at=newest([found]))


async def update_provider(call: PlacementCall) -> Reply:
    """Rename a provider, and give it a parent; another parent or none from 1.37 on."""
    parent: Any = getattr(call.body, "parent_provider_uuid", UNSET)
    async with call.app.database.transaction() as tx:
        changed = await providers.update_provider(
            tx,
            provider=call.path["uuid"],
            name=call.body.name,
            parent=None if parent is UNSET else parent,
            keep_parent=parent is UNSET,
            reparent=call.version >= (1, 37),
        )
    return reply(call, render_provider(call, changed), changed_at=changed.updated_at)


async def delete_provider(call: PlacementCall) -> None:
    """Delete a provider that has neither children nor allocations."""
    async with call.app.database.transaction() as tx:
        await providers.delete_provider(tx, call.path["uuid"])
