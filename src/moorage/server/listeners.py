"""HTTP servers inside one event loop: several ports and a unix socket, stopped in order.

Their connections are bounded (``connections.py``).

A listener with a TLS context asks its clients for certificates. What the handshake has verified reaches the
application as ``api.auth.PEER`` in the scope.
"""

import asyncio
import contextlib
import hashlib
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import uvicorn

from moorage.api.auth import PEER
from moorage.api.limits import Limits
from moorage.core.errors import MoorageError
from moorage.server.connections import BoundedProtocol

ASGI = Any


class PortInUse(MoorageError):
    """An address is taken by another program."""

    code = "server.port_in_use"


class _Server(uvicorn.Server):
    """Leaves signals to the process it is part of. ``handshake_seconds`` bounds TLS handshakes."""

    def __init__(self, config: uvicorn.Config, handshake_seconds: float) -> None:
        super().__init__(config)
        self.handshake_seconds = handshake_seconds

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's for given sockets, which has no word on how long a TLS handshake may take."""
        config, loop = self.config, asyncio.get_running_loop()
        await self.lifespan.startup()
        protocol = partial(
            config.http_protocol_class,
            config=config,  # type: ignore[call-arg]  # a protocol of uvicorn's
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        within = self.handshake_seconds if config.ssl is not None else None
        self.servers = [
            await loop.create_server(
                protocol, sock=sock, ssl=config.ssl, backlog=config.backlog, ssl_handshake_timeout=within
            )
            for sock in sockets or ()
        ]
        self.started = True


class _PeerProtocol(BoundedProtocol):
    """Says in each request's scope whose certificate the connection has; uvicorn does not by itself."""

    _peer: bytes | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        self._peer = hashlib.sha256(certificate).digest() if certificate else None

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[PEER] = self._peer  # type: ignore[literal-required]  # a TypedDict


class Listeners:
    """``add`` binds at once, so that ports are known before anything is served; ``start`` serves.

    ``wrap`` is put around every application.
    """

    def __init__(self, limits: Limits | None = None, wrap: Callable[[ASGI], ASGI] = lambda app: app) -> None:
        self._wrap = wrap
        self._limits = limits or Limits()
        self._servers: list[tuple[_Server, socket.socket]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._paths: list[Path] = []

    def add(
        self,
        app: ASGI,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
        proxies: Sequence[str] = (),
    ) -> int:
        """Listen on an address; port 0 takes a free one. The port; raises PortInUse.

        ``limits`` differ from those of the other listeners where given. ``proxies`` are the addresses and networks whose
        X-Forwarded-For and X-Forwarded-Proto are believed.
        """
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            listener.close()
            raise PortInUse(
                f"{host} port {port} cannot be used: {error.strerror}; is another cloud running?"
            ) from error
        self._add(app, listener, tls, limits, proxies)
        bound: int = listener.getsockname()[1]
        return bound

    def add_unix(self, app: ASGI, path: Path, *, tls: ssl.SSLContext, limits: Limits | None = None) -> None:
        """Listen on a unix socket that everybody on the machine may connect to: callers bring certificates."""
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        os.chmod(path, 0o666)  # noqa: PTH101, S103  the folder above decides who gets here
        self._paths.append(path)
        self._add(app, listener, tls, limits)

    def _add(
        self,
        app: ASGI,
        listener: socket.socket,
        tls: ssl.SSLContext | None,
        limits: Limits | None,
        proxies: Sequence[str] = (),
    ) -> None:
        config = uvicorn.Config(
            self._wrap(app),
            http=cast("type[asyncio.Protocol]", partial(_PeerProtocol, limits=limits or self._limits)),
            loop="none",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            # Left to itself, uvicorn believes whoever connects from 127.0.0.1, or what the environment says.
            proxy_headers=bool(proxies),
            forwarded_allow_ips=list(proxies),
            timeout_graceful_shutdown=2,
        )
        config.load()
        config.ssl = tls
        self._servers.append((_Server(config, self._limits.head_seconds), listener))

    @property
    def connections(self) -> dict[int, int]:
        """Open connections by port."""
        return {
            listener.getsockname()[1]: len(server.server_state.connections)
            for server, listener in self._servers
            if listener.family != socket.AF_UNIX and listener.fileno() >= 0
        }

    async def start(self) -> None:
        """Serve; returns when every listener accepts."""
        self._tasks = [
            asyncio.create_task(server.serve(sockets=[listener]), name="http-server")
            for server, listener in self._servers
        ]
        while not all(server.started for server, _ in self._servers):
            for task in self._tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Finish requests under way (2 s at most) and close."""
        for server, _ in self._servers:
            server.should_exit = True
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for _, listener in self._servers:
            listener.close()
        for path in self._paths:
            path.unlink(missing_ok=True)
