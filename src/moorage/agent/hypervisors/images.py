"""The cache of images: each file named by its hash, checked against it before it gets that name.

A download goes to a file of its own and is renamed when its hash, size and format are right, so a file that is
there is whole. One download at a time for an image: a lock in this process and a file lock for agents that share
the folder.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from moorage.agent.errors import ImageFailure
from moorage.agent.hypervisors.process import run
from moorage.agent.link import Download
from moorage.core.errors import MoorageError
from moorage.core.log import get_logger
from moorage.wire.messages import ImageRef

log = get_logger(__name__)
# What qemu-img calls them; the kernel and ramdisk formats, and their disk, are plain bytes.
FORMATS = {"raw": "raw", "qcow2": "qcow2", "ami": "raw", "aki": "raw", "ari": "raw"}
_CHUNK = 1 << 20


class ImageCache:
    """Images of one host below ``folder``, had by ``download``."""

    def __init__(self, folder: Path, download: Download) -> None:
        self._folder = folder
        self._source = download
        self._locks: dict[str, asyncio.Lock] = {}

    async def fetch(self, image: ImageRef) -> Path:
        """The image's file, downloaded if need be. Raises ImageFailure."""
        if image.disk_format not in FORMATS:
            message = (
                f"image {image.id}: format {image.disk_format} is not one of {', '.join(sorted(FORMATS))}"
            )
            raise ImageFailure(message)
        if image.hash_algo not in hashlib.algorithms_guaranteed or not image.hash_value.isalnum():
            message = f"image {image.id} has no checksum that can be verified ({image.hash_algo})"
            raise ImageFailure(message)
        name = f"{image.hash_algo}-{image.hash_value}"
        path = self._folder / name
        async with self._locks.setdefault(name, asyncio.Lock()):
            if path.exists():
                return path
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            async with _file_lock(self._folder / f"{name}.lock"):
                if not path.exists():
                    await self._download(image, path)
        return path

    async def _download(self, image: ImageRef, path: Path) -> None:
        part = path.with_suffix(".part")
        try:
            digest, size = await self._write(image, part)
            if digest != image.hash_value.lower():
                message = (
                    f"image {image.id}: {image.hash_algo} of what came is {digest}, not {image.hash_value}"
                )
                raise ImageFailure(message, code="agent.image_hash")
            await _check_format(image, part)
            part.rename(path)
            log.info("image.cached", image=image.id, size=size)
        except MoorageError as error:
            if isinstance(error, ImageFailure):
                raise
            message = f"image {image.id} could not be downloaded: {error.message}"
            raise ImageFailure(message) from error
        except OSError as error:
            message = f"image {image.id} could not be written: {error}"
            raise ImageFailure(message) from error
        finally:
            part.unlink(missing_ok=True)

    async def _write(self, image: ImageRef, part: Path) -> tuple[str, int]:
        digest = hashlib.new(image.hash_algo)
        size = 0
        async with self._source(image.url) as stream:
            with part.open("wb") as file:
                async for chunk in stream.iter_chunked(_CHUNK):
                    size += len(chunk)
                    if size > image.size > 0:
                        message = f"image {image.id} is larger than the {image.size} bytes it is said to have"
                        raise ImageFailure(message)
                    await asyncio.to_thread(_add, file, digest, chunk)
                await asyncio.to_thread(os.fsync, file.fileno())
        return digest.hexdigest(), size


def _add(file: Any, digest: Any, chunk: bytes) -> None:
    file.write(chunk)
    digest.update(chunk)


@contextlib.asynccontextmanager
async def _file_lock(path: Path) -> AsyncIterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


class ImageInfo(msgspec.Struct, frozen=True, rename="kebab"):
    """What qemu-img says of a file; sizes in bytes."""

    virtual_size: int
    backing_filename: str | None = None
    format_specific: dict[str, Any] | None = None


async def info(path: Path, disk_format: str) -> ImageInfo:
    """Read an image's header. Raises ImageFailure."""
    status, out, err = await run("qemu-img", "info", "--output=json", "-f", FORMATS[disk_format], path)
    if status != 0:
        message = f"the image is not a {disk_format}: {err.strip()}"
        raise ImageFailure(message)
    return msgspec.json.decode(out, type=ImageInfo)


async def _check_format(image: ImageRef, part: Path) -> None:
    # A user's qcow2 can name other files of the host as its backing or data: such a one must never be opened.
    if FORMATS[image.disk_format] == "raw":
        return
    found = await info(part, image.disk_format)
    data = (found.format_specific or {}).get("data") or {}
    if found.backing_filename is not None or data.get("data-file") is not None:
        message = f"image {image.id} refers to another file; flatten it before it is uploaded"
        raise ImageFailure(message, code="agent.image_unsafe")
