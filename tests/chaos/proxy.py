"""What is between the agents and the APIs: spreads requests over them, and in bad weather delays, cuts and doubles.

It understands HTTP, as bytes alone cannot be sent twice with any meaning: a doubled request reaches two APIs and is
answered once; a cut one is lost before an API sees it, or its answer is lost after. TLS is made to withstand what is in
the middle: this one has the authority's key, and reads the hosts' own from their folders.
"""

import asyncio
import random
import ssl
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import aiohttp
from aiohttp import web

from moorage.agent import identity
from moorage.agentlink.authority import Authority
from moorage.wire.tickets import CONTROL_NAME, Ticket

LAB = "lab"
"""The group of hosts that come by the unix socket."""
_PATIENCE = aiohttp.ClientTimeout(total=None, sock_connect=2, sock_read=60)


class Weather:
    """``delay``: at most so many seconds, before a request and before its answer; the others are shares of requests."""

    def __init__(self) -> None:
        self.calm()

    def calm(self) -> None:
        """Nothing is done to anybody."""
        self.delay = 0.0
        self.lost_request = self.lost_answer = self.doubled = 0.0
        self.cut_off: frozenset[str] = frozenset()

    def storm(self) -> None:
        """Everything at once."""
        self.delay, self.lost_request, self.lost_answer, self.doubled = 1.0, 0.1, 0.15, 0.3


class Proxy:
    """``url`` once started. A host is known by the header that its fleet's name is in, see ``base_of``."""

    def __init__(self, backends: Sequence[str], seed: int, authority: Authority, hosts: Path) -> None:
        self._tls = authority.server_context()
        self._nobody = identity.trusting(Ticket(token="", authority=authority.bundle))
        self._hosts = hosts
        self._known: dict[bytes, ssl.SSLContext] = {}
        self.weather = Weather()
        self.did: Counter[str] = Counter()
        self._backends = list(backends)
        self._random = random.Random(seed)
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None

    async def start(self, port: int, socket: Path | None = None) -> None:
        """Listen on 127.0.0.1, and on a unix socket."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True), auto_decompress=False
        )
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{group}/agent/{rest:.*}", self._serve)
        app.router.add_route("*", "/agent/{rest:.*}", self._serve)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=1, handler_cancellation=True
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port, ssl_context=self._tls).start()
        if socket is not None:
            await web.UnixSite(self._runner, str(socket), ssl_context=self._tls).start()
            socket.chmod(0o666)

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        weather = self.weather
        if request.match_info.get("group", LAB) in weather.cut_off:
            return self._cut(request, "cut off")
        if weather.delay and self._random.random() < 0.5:
            self.did["delayed"] += 1
            await asyncio.sleep(self._random.uniform(0, weather.delay))
        if self._random.random() < weather.lost_request:
            return self._cut(request, "request lost")
        body = await request.read()
        path = "/agent/" + request.match_info["rest"]
        if "/images/" in path:
            return await self._stream(request, path)
        again = request.method == "POST" and self._random.random() < weather.doubled
        asked = [self._ask(request, path, body) for _ in range(2 if again else 1)]
        if again:
            self.did["doubled"] += 1
        answers = await asyncio.gather(*asked)
        # What came while the weather changed: the answer to a host that has been cut off meanwhile is lost too.
        lost = self._random.random() < self.weather.lost_answer
        if lost or request.match_info.get("group", LAB) in self.weather.cut_off:
            return self._cut(request, "answer lost")
        return answers[0]

    def _cut(self, request: web.Request, how: str) -> web.Response:
        self.did[how] += 1
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=502)

    def _as(self, request: web.Request) -> ssl.SSLContext:
        """The sender's own certificate and key."""
        tls = request.get_extra_info("ssl_object")
        shown = tls.getpeercert(binary_form=True) if tls is not None else None
        if shown is None:
            return self._nobody
        if shown not in self._known:
            for path in self._hosts.rglob("identity.json"):
                found = identity.load(path.parent)
                assert found is not None
                der = ssl.PEM_cert_to_DER_cert(found.certificate)
                self._known[der] = identity.context_of(found)
        return self._known[shown]

    def _order(self) -> list[str]:
        return self._random.sample(self._backends, len(self._backends))

    async def _ask(self, request: web.Request, path: str, body: bytes) -> web.Response:
        assert self._session is not None
        for backend in self._order():
            try:
                async with self._session.request(
                    request.method,
                    backend + path,
                    params=request.query,
                    data=body,
                    headers=_headers(request),
                    timeout=_PATIENCE,
                    ssl=self._as(request),
                    server_hostname=CONTROL_NAME,
                ) as answer:
                    content = await answer.read()
                    if answer.status >= 500:
                        self.did[f"answered {answer.status}"] += 1
                    return web.Response(
                        status=answer.status, body=content, content_type=answer.content_type or None
                    )
            except aiohttp.ClientConnectorError:
                continue
            except (aiohttp.ClientError, TimeoutError, OSError):
                break
        return web.Response(status=502)

    async def _stream(self, request: web.Request, path: str) -> web.StreamResponse:
        assert self._session is not None
        url = self._order()[0] + path
        try:
            async with self._session.get(
                url,
                headers=_headers(request),
                timeout=_PATIENCE,
                ssl=self._as(request),
                server_hostname=CONTROL_NAME,
            ) as answer:
                found = web.StreamResponse(status=answer.status)
                if answer.content_length is not None:
                    found.content_length = answer.content_length
                await found.prepare(request)
                async for chunk in answer.content.iter_chunked(1 << 16):
                    await found.write(chunk)
                return found
        except (aiohttp.ClientError, TimeoutError, OSError):
            return self._cut(request, "image cut")


def _headers(request: web.Request) -> dict[str, str]:
    return {k: v for k, v in request.headers.items() if k == "Content-Type"}
