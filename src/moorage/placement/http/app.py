"""The Placement API as an application: where its manners differ from those of the kit.

The original is a WSGI program whose habits its clients know: faults in HTML for who asks for HTML, 406 where JSON is
not acceptable, 404 for a provider that does not exist before 400 for a body that is wrong.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.datastructures import Headers

from moorage.api import Api, Call, Endpoint, Version, VersionScheme
from moorage.core.errors import BadRequest, MoorageError, NotAcceptable, NotFound, UnsupportedMediaType
from moorage.placement import providers
from moorage.placement.http.wording import as_schema_fault

_JSON = "application/json"
_TWO_NUMBERS = re.compile(r"[0-9]+\.[0-9]+")


class PlacementVersions(VersionScheme, frozen=True):
    """Versions in the words of the microversion-parse library, which reads any two numbers."""

    def negotiate(self, headers: Mapping[str, str]) -> Version:
        """Return the version to answer in; raises BadRequest or NotAcceptable."""
        try:
            return super().negotiate(headers)
        except (BadRequest, NotAcceptable) as error:
            asked = self.asked(headers) or ""
            if _TWO_NUMBERS.fullmatch(asked):
                raise self.refuse(f"Unacceptable version header: {asked}") from error
            raise BadRequest(f"invalid version string: {asked}", code=error.code) from error

    def headers(self, version: Version) -> dict[str, str]:
        """Return the headers that tell the version; `Vary` in lower case, as clients of this API compare it."""
        return super().headers(version) | {"Vary": "openstack-api-version"}


class PlacementApi(Api):
    """An Api with the manners of the original Placement."""

    def _check_headers(self, rows: list[Endpoint], headers: Mapping[str, str]) -> None:
        media = headers.get("content-type")
        if media is None and int(headers.get("content-length") or 0) > 0:
            raise BadRequest("content-type header required when a body is sent", field="content-type")
        if media is None and rows[0].body is not None:
            raise UnsupportedMediaType(f"The media type {media} is not supported, use {_JSON}")
        if rows[0].method == "GET" and rows[0].policy is not None and not accepts(headers, _JSON):
            raise NotAcceptable(f"Only {_JSON} is provided")

    async def _bad_body(self, call: Call[Any], raw: bytes, error: BadRequest) -> MoorageError:
        if "uuid" in call.path:
            async with call.app.database.read() as tx:
                try:
                    await providers.show_provider(tx, call.path["uuid"])
                except NotFound as missing:
                    return missing
        cause = error.__cause__
        if isinstance(cause, msgspec.ValidationError):
            return as_schema_fault(cause, raw)
        return BadRequest(f"Malformed JSON: {error.message}", field=error.field)

    def _fault(
        self, error: MoorageError, request_id: str, headers: Headers
    ) -> tuple[int, bytes, dict[str, str]]:
        status, body, extra = super()._fault(error, request_id, headers)
        given = headers.get("accept", "")
        if "text/html" in given and _JSON not in given:
            return status, _page(status, error.message), {**extra, "content-type": "text/html; charset=UTF-8"}
        return status, body, extra


def accepts(headers: Mapping[str, str], media: str) -> bool:
    """Whether an `Accept` header lets a media type through; without the header all are welcome."""
    given = headers.get("accept")
    if not given:
        return True
    wanted = {media, media.partition("/")[0] + "/*", "*/*"}
    for part in given.split(","):
        name, *parameters = (word.strip().replace(" ", "") for word in part.split(";"))
        if name.lower() in wanted:
            return not any(p in {"q=0", "q=0.0", "q=0.00", "q=0.000"} for p in parameters)
    return False


def _page(status: int, message: str) -> bytes:
    title = f"{status} {HTTPStatus(status).phrase}"
    text = html.escape(message)
    return (
        f"<html><head><title>{title}</title></head><body><h1>{title}</h1><p>{text}</p></body></html>".encode()
    )
