"""/os-keypairs."""

import asyncio
import re
from typing import Annotated, Any, Literal

from msgspec import UNSET, UnsetType

from moorage.api.endpoint import names, since
from moorage.api.fields import only
from moorage.api.paging import next_link
from moorage.compute import keypairs, quotas
from moorage.compute.errors import InvalidField, KeyGenerationGone
from moorage.compute.http import values
from moorage.compute.http.values import Body, ComputeCall
from moorage.compute.model import Keypair

_OLD_NAME = re.compile(r"[_\- a-zA-Z0-9]{1,255}\Z")
_NAME = re.compile(r"[_\-@. a-zA-Z0-9]{1,255}\Z")
QUERY = names("user_id", strict="2.75")
PAGES = names("user_id", "limit", "marker", strict="2.75")
_RULE = "os_compute_api:os-keypairs:"


class NewKeypair(Body, frozen=True):
    name: str
    public_key: str | UnsetType = UNSET
    type: Annotated[Literal["ssh", "x509"] | UnsetType, only(since("2.2"))] = UNSET
    user_id: Annotated[str | UnsetType, only(since("2.10"))] = UNSET


class CreateKeypair(Body, frozen=True):
    keypair: NewKeypair


async def _user(call: ComputeCall, verb: str, asked: str | None) -> str:
    """Whose keypairs are meant: from 2.10 on an administrator may name another user."""
    own = call.context.user_id or ""
    user = asked if asked and call.version >= (2, 10) else own
    await call.authorize(_RULE + verb, {"user_id": user, "project_id": call.context.project_id})
    return user


async def index(call: ComputeCall) -> dict[str, Any]:
    """GET /os-keypairs; pages from 2.35 on."""
    user = await _user(call, "index", values.last(call, "user_id"))
    paged = call.version >= (2, 35)
    limit = values.page_limit(call) if paged else None
    async with call.app.database.read() as tx:
        found = await keypairs.list_(
            tx, user, limit=limit, marker=values.last(call, "marker") if paged else None
        )
    answer: dict[str, Any] = {"keypairs": [{"keypair": _brief(call, k)} for k in found]}
    if limit is not None and found and len(found) == limit:
        answer["keypairs_links"] = [next_link(call.url("/os-keypairs"), call.query, found[-1].name)]
    return answer


async def show(call: ComputeCall) -> dict[str, Any]:
    """GET /os-keypairs/{name}."""
    user = await _user(call, "show", values.last(call, "user_id"))
    async with call.app.database.read() as tx:
        key = await keypairs.get(tx, user, call.path["name"])
    whole = {
        "id": key.id,
        "user_id": key.user_id,
        "created_at": values.time_without_zone(key.created_at),
        "deleted": False,
        "deleted_at": None,
        "updated_at": None,
    }
    return {"keypair": {**_brief(call, key), **whole}}


async def create(call: ComputeCall) -> dict[str, Any]:
    """POST /os-keypairs: import, and below 2.92 generation too."""
    given: NewKeypair = call.body.keypair
    _check(call, given)
    user = await _user(call, "create", values.given(given.user_id))
    kind = values.given(given.type, "ssh")
    made = await _material(call, given, kind)
    async with call.app.database.transaction() as tx:
        limits = await quotas.limits(tx, call.app.limits, call.context.project_id)
        key = await keypairs.create(tx, user, given.name, kind, made[0], limit=limits["key_pairs"])
    view = {**_brief(call, key), "user_id": key.user_id}
    if made[1] is not None:
        view["private_key"] = made[1]
    return {"keypair": view}


def _check(call: ComputeCall, given: NewKeypair) -> None:
    values.name(given.name, "keypair.name")
    if not (_NAME if call.version >= (2, 92) else _OLD_NAME).match(given.name):
        raise InvalidField(
            "Keypair name contains unsafe characters: letters, digits, blanks, '_' and '-' are allowed, and '@' and "
            "'.' from 2.92 on.",
            field="keypair.name",
        )


async def _material(call: ComputeCall, given: NewKeypair, kind: str) -> tuple[str, str | None]:
    if given.public_key is not UNSET:
        return given.public_key, None
    if call.version >= (2, 92):
        raise KeyGenerationGone(
            "keypair.public_key is required: keys are not generated since 2.92.", field="keypair.public_key"
        )
    if kind != "ssh":
        raise InvalidField("Only ssh keys are generated: import an x509 certificate.", field="keypair.type")
    made = await asyncio.to_thread(keypairs.generate, given.name)
    return made.public_key, made.private_key


async def delete(call: ComputeCall) -> None:
    """DELETE /os-keypairs/{name}."""
    user = await _user(call, "delete", values.last(call, "user_id"))
    async with call.app.database.transaction() as tx:
        await keypairs.delete(tx, user, call.path["name"])


def _brief(call: ComputeCall, key: Keypair) -> dict[str, Any]:
    view: dict[str, Any] = {"name": key.name, "public_key": key.public_key, "fingerprint": key.fingerprint}
    return {**view, "type": key.type} if call.version >= (2, 2) else view
