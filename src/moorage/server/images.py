"""Images for hosts: streamed from the image service with our own token, so that hosts need none of it.

A host gets an image only while a server of that image is placed on it.
"""

import ssl
from collections.abc import AsyncIterator

import aiohttp
import sqlalchemy as sa
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from moorage.agentlink.http.auth import HostAuthenticator
from moorage.agentlink.http.policies import HOST
from moorage.api import faults
from moorage.api.auth import Credentials, ServiceToken
from moorage.api.endpoint import Endpoint
from moorage.compute.tables import servers
from moorage.core.errors import MoorageError, NotFound, Unavailable
from moorage.core.ids import new_id
from moorage.store.database import Database
from moorage.store.statement import Statement, text_param

_MAY = Statement(
    sa.select(sa.literal(1))
    .select_from(servers)
    .where(
        servers.c.host == text_param("host"),
        servers.c.image_id == text_param("image_id"),
        servers.c.deleted_at.is_(None),
    )
    .limit(1)
)
_CHUNK = 1 << 18


class ImageProxy:
    """GET {prefix}/{image_id} for hosts."""

    def __init__(
        self,
        database: Database,
        hosts: HostAuthenticator,
        token: ServiceToken,
        image_url: str,
        *,
        trust: ssl.SSLContext | bool = True,
    ) -> None:
        self._trust = trust
        self._database = database
        self._hosts = hosts
        self._token = token
        self._url = image_url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections to the image service."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def serve(self, request: Request) -> Response:
        """Stream one image to the host that may have it: one of a server that is placed there."""
        request_id = f"req-{new_id()}"
        try:
            context = await self._hosts(Credentials(request.scope), request_id)
            image_id = request.path_params["image_id"]
            async with self._database.read() as tx:
                if not await _MAY.scalar(tx, host=context.host, image_id=image_id):
                    raise NotFound(f"no server on this host has image {image_id}")
            return await self._stream(image_id)
        except MoorageError as error:
            return JSONResponse(faults.control(error, error.status, request_id), status_code=error.status)

    async def _stream(self, image_id: str) -> Response:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None, sock_read=60),
                connector=aiohttp.TCPConnector(ssl=self._trust),
            )
        url = f"{self._url}/v2/images/{image_id}/file"
        try:
            answer = await self._session.get(url, headers={"X-Auth-Token": await self._token()})
        except aiohttp.ClientError as error:
            raise Unavailable(f"the image service does not answer: {error}") from error
        if answer.status != 200:
            answer.close()
            raise NotFound(f"the image service answers {answer.status} for the data of image {image_id}")
        headers = {}
        if "content-length" in answer.headers:
            headers["content-length"] = answer.headers["content-length"]

        async def body() -> AsyncIterator[bytes]:
            try:
                async for chunk in answer.content.iter_chunked(_CHUNK):
                    yield chunk
            finally:
                answer.close()

        return StreamingResponse(body(), media_type="application/octet-stream", headers=headers)


ENDPOINT = Endpoint(
    "GET", "/images/{image_id}", ImageProxy.serve, HOST, response=bytes, produces="application/octet-stream"
)
"""Below the agents' API, for its document."""
