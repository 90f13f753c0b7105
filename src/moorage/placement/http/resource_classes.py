"""`/resource_classes`: kinds of resources."""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.api import Reply
from moorage.core.errors import BadRequest, Duplicate
from moorage.placement import providers
from moorage.placement.errors import StandardName
from moorage.placement.http.common import CustomName, PlacementCall, href, reply
from moorage.placement.names import CUSTOM, MAX_LENGTH, RESOURCE_CLASSES


class ResourceClassBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: CustomName


def _render(call: PlacementCall, name: str) -> dict[str, Any]:
    return {"name": name, "links": [{"rel": "self", "href": href(call, f"/resource_classes/{name}")}]}


async def list_classes(call: PlacementCall) -> Reply:
    """Answer all resource classes."""
    async with call.app.database.read() as tx:
        names = await RESOURCE_CLASSES.all(tx)
    return reply(call, {"resource_classes": [_render(call, found.name) for found in names]})


async def create_class(call: PlacementCall) -> Reply:
    """Create a custom class; 409 when it exists."""
    async with call.app.database.transaction() as tx:
        if not await RESOURCE_CLASSES.create(tx, call.body.name):
            raise Duplicate(f"Conflicting resource class already exists: {call.body.name}")
    return Reply(status=201, headers={"location": call.url(f"/resource_classes/{call.body.name}")})


async def show_class(call: PlacementCall) -> Reply:
    """Answer one class."""
    async with call.app.database.read() as tx:
        found = await RESOURCE_CLASSES.get(tx, call.path["name"])
    return reply(call, _render(call, found.name), changed_at=found.changed_at)


async def rename_class(call: PlacementCall) -> Reply:
    """Rename a custom class (1.2 to 1.6)."""
    old, new = call.path["name"], call.body.name
    async with call.app.database.transaction() as tx:
        await RESOURCE_CLASSES.get(tx, old)
        if old in RESOURCE_CLASSES.standard:
            raise StandardName(f"Cannot update standard resource class {old}")
        if old != new and not await RESOURCE_CLASSES.create(tx, new):
            raise Duplicate(f"Resource class already exists: {new}")
        if old != new:
            await providers.rename_class(tx, old, new)
            await RESOURCE_CLASSES.delete(tx, old)
    return reply(call, _render(call, new), status=200)


async def ensure_class(call: PlacementCall) -> Reply:
    """Create a custom class unless it exists (from 1.7 on)."""
    name = call.path["name"]
    _check_custom(name, "resource class")
    async with call.app.database.transaction() as tx:
        created = await RESOURCE_CLASSES.create(tx, name)
    return Reply(status=201 if created else 204, headers={"location": call.url(f"/resource_classes/{name}")})


def _check_custom(name: str, kind: str) -> None:
    for keyword, broken in (("pattern", not CUSTOM.match(name)), ("maxLength", len(name) > MAX_LENGTH)):
        if broken:
            raise BadRequest(
                f"Failed validating '{keyword}': the {kind} {name} does not match CUSTOM_[A-Z0-9_]+ with at most"
                f" {MAX_LENGTH} characters.",
                field="name",
            )


async def delete_class(call: PlacementCall) -> None:
    """Delete a custom class that no inventory has."""
    async with call.app.database.transaction() as tx:
        await RESOURCE_CLASSES.delete(tx, call.path["name"])
