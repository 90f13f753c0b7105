"""A small client of the identity API, as far as making accounts and the catalogue needs it."""

from types import TracebackType
from typing import Any, Self

import aiohttp

from moorage.core.errors import Unavailable

Json = dict[str, Any]


class IdentityRefused(Unavailable):
    """Keystone answered a request of ours with an error."""

    code = "children.identity_refused"


class IdentityClient:
    """The identity API as one user. Use it as an async context manager: it gets its token on entry."""

    def __init__(
        self, auth_url: str, *, username: str, password: str, project: str, domain: str = "Default"
    ) -> None:
        self._url = auth_url.rstrip("/")
        user = {"name": username, "domain": {"name": domain}, "password": password}
        self._request = {
            "auth": {
                "identity": {"methods": ["password"], "password": {"user": user}},
                "scope": {"project": {"name": project, "domain": {"name": domain}}},
            }
        }
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60))
        self._session = session
        try:
            async with session.post(f"{self._url}/auth/tokens", json=self._request) as answer:
                await _require_success(answer, "POST /auth/tokens")
                session.headers["X-Auth-Token"] = answer.headers["X-Subject-Token"]
        except BaseException:
            await session.close()
            raise
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(self, method: str, path: str, body: Json | None = None, **query: str) -> Json:
        """One request; the decoded body, empty where there is none. Raises ``IdentityRefused``."""
        if self._session is None:
            raise RuntimeError("use IdentityClient as an async context manager")
        async with self._session.request(method, self._url + path, json=body, params=query) as answer:
            await _require_success(answer, f"{method} {path}")
            found: Json = await answer.json() if answer.content_length else {}
            return found

    async def names(self, collection: str, **query: str) -> dict[str, str]:
        """The ids of a collection's members by name."""
        found = await self.call("GET", f"/{collection}", None, **query)
        return {member["name"]: member["id"] for member in found[collection]}


async def _require_success(answer: aiohttp.ClientResponse, what: str) -> None:
    if answer.status >= 400:
        raise IdentityRefused(f"Keystone refused {what}: {answer.status} {await answer.text()}")
