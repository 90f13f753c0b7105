"""An API as an ASGI application: from bytes to a Call, from a Reply to bytes.

The order of checks is upstream's: request id, version, route, token, policy, body. It is a plain ASGI callable
rather than a stack of middlewares: one function shows what happens to a request.
"""

import asyncio
import logging
import random
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import msgspec
import structlog
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from moorage.api import faults
from moorage.api.auth import Authenticator, Credentials
from moorage.api.call import Call, Reply
from moorage.api.context import RequestContext
from moorage.api.decode import decode_body, decode_query
from moorage.api.endpoint import Endpoint
from moorage.api.limits import Passage, check_depth, passage_of, query_pairs, read_body
from moorage.api.policy import Policies
from moorage.api.router import Router
from moorage.api.versions import VersionScheme
from moorage.core.errors import (
    BadRequest,
    InternalError,
    MethodNotAllowed,
    MoorageError,
    NotAcceptable,
    Unauthorized,
)
from moorage.core.ids import new_id
from moorage.core.log import get_logger
from moorage.store.database import counting_commits
from moorage.store.errors import SerializationConflict

log = get_logger(__name__)
_stdlib = logging.getLogger(__name__)
_encode = msgspec.json.Encoder(enc_hook=str).encode
_ATTEMPTS = 4
_PAUSE = 0.05  # seconds at most, so that the two that met do not meet again
_READS = frozenset({"GET", "HEAD"})
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F)))
_REQUEST_ID = re.compile(r"req-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Api:
    """One API over one service object.

    name, style     its name in logs and the shape of its faults (``faults.STYLES``)
    app             what handlers find as ``call.app``
    endpoints       the table
    versions        its microversions, or None
    authenticate    who sent a request; endpoints with policy None are open
    prefix          where it is served; ``strip`` are patterns of path beginnings that clients may add (a project id)
    max_body        bytes, where the API's bodies may be larger or smaller than the limits of its server say
    """

    def __init__(
        self,
        name: str,
        app: Any,
        endpoints: Iterable[Endpoint],
        style: str,
        versions: VersionScheme | None,
        *,
        policies: Policies,
        authenticate: Authenticator,
        prefix: str = "",
        strip: str | None = None,
        public_url: str | None = None,
        max_body: int | None = None,
    ) -> None:
        self.name = name
        self.app = app
        self.router = Router(endpoints)
        self.style = style
        self.versions = versions
        self.policies = policies
        self.authenticate = authenticate
        self.prefix = prefix
        self.public_url = public_url
        self.max_body = max_body
        self._render = faults.STYLES[style]
        self._strip = re.compile(strip) if strip else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI: HTTP requests; start and stop are the server's."""
        if scope["type"] != "http":
            return
        headers = Credentials(scope)
        request_id, began = f"req-{new_id()}", time.perf_counter()
        passage = passage_of(scope)
        passage.api = self.name
        with structlog.contextvars.bound_contextvars(request_id=request_id, **_caller_id(headers)):
            version = self.versions.minimum if self.versions else (0, 0)
            try:
                if passage.refusal is not None:
                    raise passage.refusal  # noqa: TRY301  answered like what goes wrong later
                version = self.versions.negotiate(_joined(headers)) if self.versions else version
                endpoint, reply = await self._answer(passage, scope, receive, headers, version, request_id)
                status = reply.status or endpoint.status
                body = b"" if reply.body is None else _bytes(reply.body)
                extra = reply.headers
            except MoorageError as error:
                status, body, extra = self._fault(error, request_id, headers)
            except Exception:
                log.exception("request.failed", method=scope["method"], path=scope["path"])
                status, body, extra = self._fault(
                    InternalError(f"Unexpected fault; the log has it as {request_id}."), request_id, headers
                )
            await self._send(send, scope["method"], status, body, extra, version, request_id)
            passage.status = status
            self._log(scope["method"], passage, time.perf_counter() - began)

    def _log(self, method: str, passage: Passage, seconds: float) -> None:
        # Reads are many and change nothing; what agents send is logged as what it means. The table's path is logged,
        # not the client's: that one may hold anything.
        quiet = passage.status < 500 and (method in _READS or self.name == "agent")
        # Asked first: most lines are not wanted, and this is on every request's way.
        if not _stdlib.isEnabledFor(logging.DEBUG if quiet else logging.INFO):
            return
        say = log.debug if quiet else log.info
        say(
            "request.answered",
            api=self.name,
            method=method,
            route=passage.route,
            status=passage.status,
            seconds=round(seconds, 4),
        )

    async def _answer(
        self,
        passage: Passage,
        scope: Scope,
        receive: Receive,
        headers: Credentials,
        version: tuple[int, int],
        request_id: str,
    ) -> tuple[Endpoint, Reply]:
        path = self._path(scope["path"])
        rows, parameters = self.router.find(scope["method"], path, version)
        passage.route = rows[0].path
        context = await self._context(rows, headers, request_id)
        self._check_headers(rows, headers)
        call = Call(
            app=self.app,
            context=context,
            path=parameters,
            headers=headers,
            version=version,
            base_url=self._base_url(scope, headers),
            raw_path=scope["path"],
            policies=self.policies,
        )
        raw = await self._body(receive, headers, passage) if scope["method"] not in _READS else b""
        endpoint = rows[0]
        if len(rows) == 1 and endpoint.action is None:
            self._authorize(endpoint, context)
        try:
            endpoint, call.body = decode_body(rows, raw, headers, version)
        except BadRequest as error:
            raise await self._bad_body(call, raw, error) from error
        if len(rows) > 1 or endpoint.action is not None:
            self._authorize(endpoint, context)
        call.query = decode_query(
            endpoint, query_pairs(scope["query_string"], passage.limits.query_parameters), version
        )
        answer = await _handled(endpoint, call)
        return endpoint, answer if isinstance(answer, Reply) else Reply(answer)

    async def _body(self, receive: Receive, headers: Headers, passage: Passage) -> bytes:
        limits = passage.limits
        raw = await read_body(receive, passage, self.max_body or limits.body)
        check_depth(raw, limits.json_depth, headers)
        return raw

    async def _context(self, rows: list[Endpoint], headers: Credentials, request_id: str) -> RequestContext:
        if all(row.policy is None for row in rows):
            return RequestContext(request_id=request_id)
        context = await self.authenticate(headers, request_id)
        structlog.contextvars.bind_contextvars(project_id=context.project_id)
        return context

    def _authorize(self, endpoint: Endpoint, context: RequestContext) -> None:
        if endpoint.policy is not None:
            self.policies.check(endpoint.policy, context)

    def _check_headers(self, rows: list[Endpoint], headers: Headers) -> None:
        """For an API that looks at more headers than its handlers do: raises MoorageError."""

    async def _bad_body(self, _call: Call[Any], _raw: bytes, error: BadRequest) -> MoorageError:
        """What an API answers to a body that is not of its type."""
        return error

    def _path(self, path: str) -> str:
        path = path[len(self.prefix) :] if self.prefix and path.startswith(self.prefix) else path
        if self._strip is not None:
            path = self._strip.sub("", path, count=1)
        if len(path) > 1 and path.endswith("/"):
            path = path[:-1]
        return path or "/"

    def _base_url(self, scope: Scope, headers: Headers) -> str:
        if self.public_url is not None:
            return self.public_url.rstrip("/")
        return f"{scope['scheme']}://{headers.get('host', 'localhost')}{self.prefix}"

    def _fault(
        self, error: MoorageError, request_id: str, _headers: Headers
    ) -> tuple[int, bytes, dict[str, str]]:
        status = faults.status_of(error, self.style)
        extra: dict[str, str] = {}
        if isinstance(error, MethodNotAllowed):
            extra["Allow"] = ", ".join(error.allowed)
        if error.retry_after is not None:
            extra["Retry-After"] = str(error.retry_after)
        if isinstance(error, Unauthorized):
            extra["WWW-Authenticate"] = "Keystone"
        return status, _encode(self._render(error, status, request_id)), extra

    async def _send(
        self,
        send: Send,
        method: str,
        status: int,
        body: bytes,
        extra: dict[str, str],
        version: tuple[int, int],
        request_id: str,
    ) -> None:
        found = {"x-openstack-request-id": request_id}
        if self.style == "compute":
            found["x-compute-request-id"] = request_id
        if self.versions is not None and status != NotAcceptable.status:
            found.update(self.versions.headers(version))
        if body:
            found["content-type"] = "application/json"
        found["content-length"] = str(len(body))
        found.update({k.lower(): _header(v) for k, v in extra.items()})
        raw = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in found.items()]
        if status == 204:
            raw = [h for h in raw if h[0] != b"content-length"]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})


async def _handled(endpoint: Endpoint, call: Call[Any]) -> Any:
    """Call the handler; again where it met a concurrent transaction before anything of its own was committed."""
    for _ in range(_ATTEMPTS - 1):
        with counting_commits() as commits:
            try:
                return await endpoint.handler(call)
            except SerializationConflict as error:
                if commits.count:
                    raise
                log.info("request.begun_again", error=error.message)
        await asyncio.sleep(random.uniform(0, _PAUSE))
    return await endpoint.handler(call)


def _header(value: str) -> str:
    """A header's value, in which what a caller chose (a tag in a Location) cannot end the line or leave ASCII."""
    return quote(value, safe=_PRINTABLE)


def _bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else _encode(body)


def _joined(headers: Headers) -> Mapping[str, str]:
    """The headers, with versions of several APIs that came in lines of their own as one list."""
    lines = headers.getlist("openstack-api-version")
    return {**headers, "openstack-api-version": ", ".join(lines)} if len(lines) > 1 else headers


def _caller_id(headers: Headers) -> dict[str, str]:
    # The caller's own request id, if it is one: logs of several services can be joined by it.
    given = headers.get("x-openstack-request-id", "")
    return {"global_request_id": given} if _REQUEST_ID.fullmatch(given) else {}
