"""Ready checks for children, and the check that a port is free before one starts."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import aiohttp

from moorage.children.errors import PortTaken

Ready = Callable[[], Awaitable[bool]]


def http_ready(url: str) -> Ready:
    """Ready when ``url`` answers below 400."""

    async def check() -> bool:
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
                session.get(url, allow_redirects=False) as answer,
            ):
                return answer.status < 400
        except (aiohttp.ClientError, TimeoutError):
            return False

    return check


def unix_ready(path: str) -> Ready:
    """Ready when a program accepts connections on the unix socket ``path``."""

    async def check() -> bool:
        try:
            _reader, writer = await asyncio.open_unix_connection(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        writer.close()
        await writer.wait_closed()
        return True

    return check


def require_free(name: str, host: str, port: int) -> None:
    """Raise ``PortTaken`` if another program listens at host:port; else its answers would pass for the child's."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise PortTaken(
                f"{name} cannot listen on {host}:{port} ({error.strerror}); stop what does, or set another port",
                host=host,
                port=port,
            ) from error
