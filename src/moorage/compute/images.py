"""Images, as the image service tells of them."""

import ssl
import time
from collections import OrderedDict
from typing import Any, Protocol

import aiohttp
import msgspec

from moorage.compute.errors import ImageNotUsable, ImageServiceUnavailable
from moorage.core.ids import is_uuid


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """``size`` in bytes, ``min_disk`` in GiB, ``min_ram`` in MiB; ``checksum`` as algorithm and hex."""

    id: str
    name: str | None = None
    status: str = "active"
    size: int | None = None
    disk_format: str | None = None
    min_disk: int = 0
    min_ram: int = 0
    checksum: str | None = None
    os_hash_algo: str | None = None
    os_hash_value: str | None = None

    def snapshot(self) -> dict[str, Any]:
        """What a server keeps of its image: what a host needs to fetch and check it."""
        return {
            "name": self.name,
            "size": self.size,
            "disk_format": self.disk_format,
            "hash_algo": self.os_hash_algo or ("md5" if self.checksum else None),
            "hash_value": self.os_hash_value or self.checksum,
        }


class Images(Protocol):
    """Where images are looked up."""

    async def get(self, image_id: str, token: str | None) -> Image:
        """The image as the token's owner sees it; raises ImageNotUsable, ImageServiceUnavailable."""
        ...


class GlanceImages:
    """Images of a Glance at ``url``. What an owner saw is believed for ``cache_seconds``; at most ``size`` entries.

    ``trust``: whose certificates Glance's may be signed by (``core.trust``).
    """

    def __init__(
        self,
        url: str,
        *,
        cache_seconds: float = 30.0,
        size: int = 2000,
        timeout: float = 10.0,
        trust: ssl.SSLContext | bool = True,
    ) -> None:
        self._trust = trust
        self._url = url.rstrip("/")
        self._cache_seconds = cache_seconds
        self._size = size
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._cache: OrderedDict[tuple[str, str | None], tuple[float, Image]] = OrderedDict()
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, image_id: str, token: str | None) -> Image:
        """See ``Images.get``."""
        if not is_uuid(image_id):
            raise ImageNotUsable("Invalid imageRef provided.", field="server.imageRef")
        key = (image_id, token)
        known = self._cache.get(key)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        image = await self._fetch(image_id, token)
        self._cache[key] = (time.monotonic() + self._cache_seconds, image)
        while len(self._cache) > self._size:
            self._cache.popitem(last=False)
        return image

    async def _fetch(self, image_id: str, token: str | None) -> Image:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=self._timeout, connector=aiohttp.TCPConnector(ssl=self._trust)
            )
        headers = {"X-Auth-Token": token} if token else {}
        try:
            async with self._session.get(f"{self._url}/v2/images/{image_id}", headers=headers) as answer:
                body = await answer.read()
                status = answer.status
        except (TimeoutError, aiohttp.ClientError) as error:
            raise ImageServiceUnavailable(f"the image service does not answer: {error}") from error
        if status in (403, 404):
            raise ImageNotUsable(f"Image {image_id} could not be found.", field="server.imageRef")
        if status != 200:
            raise ImageServiceUnavailable(f"the image service answers {status} for image {image_id}")
        return msgspec.json.decode(body, type=Image)
