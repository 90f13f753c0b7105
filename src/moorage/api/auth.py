"""Tokens: who sent this request. Checked against Keystone, with a bounded cache; other checkers plug in."""

import asyncio
import hashlib
import ssl
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

import aiohttp
from starlette.datastructures import Headers
from starlette.types import Scope

from moorage.api.context import RequestContext
from moorage.core.errors import Unauthorized, Unavailable
from moorage.core.log import get_logger

log = get_logger(__name__)
PEER = "moorage.peer"
"""Where a listener that asks for certificates leaves the sender's in an ASGI scope: the SHA-256 of its DER form."""


class Credentials(Headers):
    """What a request brings to show who sent it: its headers, and ``peer``, the fingerprint of the certificate that
    its sender has proved to own (None over a connection without one).
    """

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope=scope)
        self.peer: bytes | None = scope.get(PEER)


Authenticator = Callable[[Credentials, str], Awaitable[RequestContext]]
"""Takes the request's credentials and its id; raises Unauthorized."""


class ServiceToken:
    """A token of our own service user, got when first needed and again before it expires.

    ``trust``: whose certificates Keystone's may be signed by (``core.trust``).
    """

    def __init__(
        self,
        url: str,
        *,
        username: str,
        password: str,
        project: str = "service",
        domain: str = "Default",
        trust: ssl.SSLContext | bool = True,
    ) -> None:
        self._trust = trust
        self._url = url.rstrip("/")
        user = {"name": username, "domain": {"name": domain}, "password": password}
        self._credential = {
            "auth": {
                "identity": {"methods": ["password"], "password": {"user": user}},
                "scope": {"project": {"name": project, "domain": {"name": domain}}},
            }
        }
        self._session: aiohttp.ClientSession | None = None
        self._token: str | None = None
        self._until = 0.0
        self._login = asyncio.Lock()

    async def close(self) -> None:
        """Close the connections to Keystone."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def forget(self, token: str) -> None:
        """This token was refused: get another next time, unless that was done already."""
        if self._token == token:
            self._token = None

    async def __call__(self) -> str:
        """A valid token, the same one for all who ask at once; raises Unavailable."""
        async with self._login:
            if self._token is None or self._until < time.monotonic():
                status, body, headers = await self.request("POST", "/auth/tokens", json=self._credential)
                if status != 201:
                    raise Unavailable(f"Keystone refused the service user of this API (status {status}).")
                expires = datetime.fromisoformat(body["token"]["expires_at"])
                left = (expires - datetime.now(expires.tzinfo)).total_seconds()
                self._token, self._until = headers["X-Subject-Token"], time.monotonic() + left - 60
            return self._token

    async def request(self, method: str, path: str, **kw: Any) -> tuple[int, Any, Mapping[str, str]]:
        """One request to Keystone: status, body, headers; raises Unavailable."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=30), connector=aiohttp.TCPConnector(ssl=self._trust)
            )
        try:
            async with self._session.request(method, self._url + path, **kw) as answer:
                body = await answer.json() if answer.content_type == "application/json" else None
                return answer.status, body, answer.headers
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unavailable(f"Keystone does not answer: {error}") from error


class KeystoneAuthenticator:
    """Validates X-Auth-Token by Keystone's own API, as the service user.

    A valid token is remembered for at most ``cache_seconds`` and never beyond its expiry; an invalid one for
    the same time. The cache holds at most ``cache_size`` tokens, by hash: the tokens themselves are not kept.
    """

    def __init__(
        self, service: ServiceToken, *, cache_seconds: float = 60.0, cache_size: int = 10_000
    ) -> None:
        self._service = service
        self._cache: OrderedDict[bytes, tuple[float, dict[str, Any] | None]] = OrderedDict()
        self._cache_seconds = cache_seconds
        self._cache_size = cache_size
        self._pending: dict[bytes, asyncio.Task[dict[str, Any] | None]] = {}

    async def __call__(self, headers: Mapping[str, str], request_id: str) -> RequestContext:
        """The caller of a request; raises Unauthorized, or Unavailable when Keystone does not answer."""
        token = headers.get("x-auth-token")
        if not token:
            raise Unauthorized("The request you have made requires authentication.")
        facts = await self._facts(token)
        if facts is None:
            raise Unauthorized("The token is unknown, expired or revoked.")
        return _context(facts, request_id, token)

    async def _facts(self, token: str) -> dict[str, Any] | None:
        key = hashlib.sha256(token.encode()).digest()
        cached = self._cache.get(key)
        if cached is not None and cached[0] > time.monotonic():
            self._cache.move_to_end(key)
            return cached[1]
        pending = self._pending.get(key)
        if pending is None:
            # Many requests with one new token ask Keystone once, and one that is ended leaves the others their answer.
            pending = self._pending[key] = asyncio.create_task(self._asked(key, token))
            pending.add_done_callback(_seen)
        return await asyncio.shield(pending)

    async def _asked(self, key: bytes, token: str) -> dict[str, Any] | None:
        try:
            facts = await self._validate(token)
            self._remember(key, facts)
        finally:
            self._pending.pop(key, None)
        return facts

    def _remember(self, key: bytes, facts: dict[str, Any] | None) -> None:
        keep = self._cache_seconds
        if facts is not None:
            expires = datetime.fromisoformat(facts["expires_at"])
            keep = min(keep, (expires - datetime.now(expires.tzinfo)).total_seconds())
        if keep > 0:
            self._cache[key] = (time.monotonic() + keep, facts)
            self._cache.move_to_end(key)
            while len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)

    async def _validate(self, token: str) -> dict[str, Any] | None:
        status = 0
        for _ in range(2):
            own = await self._service()
            headers = {"X-Auth-Token": own, "X-Subject-Token": token}
            status, body, _ = await self._service.request("GET", "/auth/tokens?nocatalog", headers=headers)
            if status == 200:
                found: dict[str, Any] = body["token"]
                return found
            if status == 404:
                return None
            if status != 401:
                break
            self._service.forget(own)
        if status == 401:
            return None
        raise Unavailable(f"Keystone answered {status} when a token was checked; try again.")


def _seen(answer: asyncio.Task[Any]) -> None:
    """Where nobody waits any more, a failure is nobody's: it is not one that was overlooked."""
    if not answer.cancelled():
        answer.exception()


def _context(facts: dict[str, Any], request_id: str, token: str) -> RequestContext:
    project = facts.get("project") or {}
    user = facts["user"]
    return RequestContext(
        request_id=request_id,
        user_id=user["id"],
        user_name=user.get("name"),
        user_domain_id=user.get("domain", {}).get("id"),
        project_id=project.get("id"),
        project_name=project.get("name"),
        project_domain_id=project.get("domain", {}).get("id"),
        roles=frozenset(r["name"].lower() for r in facts.get("roles", ())),
        system_scope=bool(facts.get("system", {}).get("all")),
        token=token,
    )
