"""Connections as hostile or broken clients use them: raw sockets against a listener with an API on it."""

import asyncio
import contextlib
import io
import json
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest

from moorage.api import Api, Call, Endpoint, Reply, RequestContext
from moorage.api.limits import Limits
from moorage.api.policy import Policies
from moorage.core import log
from moorage.server.listeners import Listeners


class Server:
    """A listener with one small API, and raw connections to it."""

    def __init__(self, listeners: Listeners) -> None:
        self.listeners = listeners
        self.port = 0
        self.answer = asyncio.Event()
        self.handled = 0

    def open_connections(self) -> int:
        return sum(len(server.server_state.connections) for server, _ in self.listeners._servers)

    @contextlib.asynccontextmanager
    async def connection(
        self, *, receive_buffer: int | None = None
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        raw = socket.socket()
        if receive_buffer is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", self.port))
        reader, writer = await asyncio.open_connection(sock=raw, limit=1 << 16)
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def ask(self, request: bytes) -> tuple[int, dict[str, str], Any]:
        """One request on a connection of its own."""
        async with self.connection() as (reader, writer):
            writer.write(request)
            return await answer_of(reader)


class Echo(msgspec.Struct, frozen=True):
    things: Any


async def show(call: Call[Server]) -> Any:
    call.app.handled += 1
    return {"ok": True}


async def echo(call: Call[Server]) -> Any:
    call.app.handled += 1
    return {"things": call.body.things}


async def long(call: Call[Server]) -> Any:
    await call.app.answer.wait()
    return {"ok": True}


async def large(call: Call[Server]) -> Any:
    return Reply(b"x" * (64 << 20))


async def anybody(_headers: Mapping[str, str], request_id: str) -> RequestContext:
    return RequestContext(request_id=request_id, project_id="p", roles=frozenset({"member"}))


TABLE = (
    Endpoint("GET", "/", show),
    Endpoint("POST", "/things", echo, body=Echo),
    Endpoint("POST", "/unread", show),
    Endpoint("GET", "/long", long),
    Endpoint("GET", "/large", large),
)


@contextlib.asynccontextmanager
async def serving(**limits: Any) -> AsyncIterator[Server]:
    listeners = Listeners(Limits(**limits))
    server = Server(listeners)
    api = Api("things", server, TABLE, "compute", None, policies=Policies({}), authenticate=anybody)
    server.port = listeners.add(api, "127.0.0.1", 0)
    await listeners.start()
    try:
        yield server
    finally:
        server.answer.set()
        await listeners.stop()


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], Any]:
    async with asyncio.timeout(180):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:]) if k}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    return int(head[0].split()[1]), headers, json.loads(body) if body else None


async def closed(reader: asyncio.StreamReader) -> bool:
    """Return True once the server has closed the connection; nothing more may come."""
    async with asyncio.timeout(180):
        try:
            return await reader.read() == b""
        except ConnectionError:
            return True


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """What still comes until the server closes."""
    got = b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(180):
            while chunk := await reader.read(1 << 16):
                got += chunk
    return got


def get(path: str = "/", *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def post(body: bytes, path: str = "/things", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), size, body)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/?" + "a" * 2000), 414),
        (get("/", *(f"x-{n}: y" for n in range(100))), 431),
        (get("/", "x-long: " + "y" * 5000), 431),
        (get("/?" + "&".join(f"a{n}=1" for n in range(21))), 400),
        (post(b'{"things": "' + b"x" * 5000 + b'"}'), 413),
        (post(b'{"things": ' + b"[" * 10 + b"]" * 10 + b"}"), 400),
    ],
    ids=["url", "number of headers", "size of headers", "parameters", "body", "depth"],
)
async def test_what_is_over_a_limit_is_answered_in_the_apis_own_shape(request_: bytes, status: int) -> None:
    async with serving(
        url=1000, header_count=50, headers=4096, query_parameters=20, body=4096, json_depth=10
    ) as server:
        found, headers, body = await server.ask(request_)
        assert found == status
        (fault,) = body.values()
        assert fault["code"] == status
        assert headers["x-openstack-request-id"].startswith("req-")
        assert server.handled == 0
        assert (await server.ask(get()))[0] == 200


async def test_what_is_just_within_the_limits_is_served() -> None:
    async with serving(
        url=1000, header_count=50, headers=4096, query_parameters=20, body=4096, json_depth=10
    ) as server:
        for request in (
            get("/?" + "a" * 990),
            get("/", *(f"x-{n}: y" for n in range(49))),
            get("/", "x-long: " + "y" * 4000),
            get("/?" + "&".join(f"a{n}=1" for n in range(20))),
            post(b'{"things": "' + b"x" * 4000 + b'"}'),
            post(b'{"things": ' + b"[" * 9 + b"]" * 9 + b"}"),
            post(b'{"things": "' + b"[" * 100 + b'"}'),
            post(b'{"things": [' + b",".join([b"{}"] * 100) + b"]}"),
        ):
            assert (await server.ask(request))[0] == 200, request


@pytest.mark.parametrize("beginning", [b"GET / HTTP/1.1\r\nx-long: ", b"GET / HTTP/1.1\r\nx-"])
async def test_a_header_without_end_is_answered_with_431_and_takes_bounded_memory(beginning: bytes) -> None:
    async with serving(headers=4096, url=1024) as server, server.connection() as (reader, writer):
        # Read as it comes: who goes on writing for longer than the server bears loses what was not read.
        answer = asyncio.create_task(answer_of(reader))
        writer.write(beginning + b"y" * 8000)
        await writer.drain()
        for _ in range(20):
            await asyncio.sleep(0.01)
            writer.write(b"y" * 1000)
        status, headers, _ = await answer
        assert (status, headers["connection"]) == (431, "close")
        assert await closed(reader)


async def test_trailers_without_end_are_cut_off() -> None:
    async with serving(headers=4096) as server, server.connection() as (reader, writer):
        writer.write(b"POST /things HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
        for n in range(500):
            writer.write(b"x-%d: yyyyyyyyyyyyyyy\r\n" % n)
        assert await closed(reader)
        assert (await server.ask(get()))[0] == 200


async def test_slow_headers_are_answered_with_408_and_a_silent_connection_is_closed() -> None:
    async with serving(head_seconds=2) as server, contextlib.AsyncExitStack() as stack:
        # All wait at the same time.
        connections = [await stack.enter_async_context(server.connection()) for _ in range(4)]
        (slow, writes_slowly), (silent, _), (blank, writes_blank), (second, writes_second) = connections
        writes_second.write(get())
        writes_slowly.write(b"GET / HTTP/1.1\r\nHost: x\r\nx-a: b\r\n")
        writes_blank.write(b"\r\n")
        assert (await answer_of(second))[0] == 200
        writes_second.write(b"\r\n")  # ends uvicorn's own timer, and begins nothing
        writes_second.write(b"GET / HT")
        status, headers, body = await answer_of(slow)
        assert (status, headers["connection"], body["computeFault"]["code"]) == (408, "close", 408)
        for reader in (slow, silent, blank):
            assert await closed(reader)
        assert (await answer_of(second))[0] == 408


async def test_trickling_headers_do_not_move_the_deadline() -> None:
    async with serving(head_seconds=0.5) as server, server.connection() as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n")

        async def trickle() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    writer.write(b"x-a: b\r\n")
                    await asyncio.sleep(0.05)

        task = asyncio.create_task(trickle())
        try:
            assert (await answer_of(reader))[0] == 408
        finally:
            task.cancel()


async def test_a_slow_body_is_answered_with_408() -> None:
    async with serving(body_seconds=0.3) as server, server.connection() as (reader, writer):
        writer.write(post(b'{"thi', length=100))
        status, headers, body = await answer_of(reader)
        assert (status, headers["connection"], body["computeFault"]["code"]) == (408, "close", 408)
        assert await closed(reader)
        assert server.handled == 0


async def test_a_body_that_nobody_reads_is_bounded_in_size_and_lets_the_client_read_its_answer() -> None:
    async with serving(body=4096) as server, server.connection() as (reader, writer):
        writer.write(post(b"x" * 5000, length=1 << 40))
        assert (await answer_of(reader))[0] == 413

        async def flood() -> None:
            while True:
                writer.write(b"x" * (1 << 20))
                await writer.drain()

        with pytest.raises(ConnectionError):
            async with asyncio.timeout(180):
                await flood()
        assert (await server.ask(get()))[0] == 200


async def test_a_connection_stays_usable_after_a_refused_body_was_sent_whole() -> None:
    async with serving(body=4096) as server, server.connection() as (reader, writer):
        writer.write(post(b"x" * 5000, length=300_000))
        assert (await answer_of(reader))[0] == 413
        writer.write(b"x" * 295_000 + get())
        assert (await answer_of(reader))[0] == 200


async def test_an_idle_connection_is_closed_and_one_that_waits_for_its_answer_is_not() -> None:
    async with (
        serving(idle_seconds=1, head_seconds=1, body_seconds=1, answer_seconds=1) as server,
        server.connection() as (reader, writer),
        server.connection() as (waiting, asking),
    ):
        asking.write(get("/long"))
        writer.write(get())
        assert (await answer_of(reader))[0] == 200
        assert await closed(reader)
        server.answer.set()
        assert (await answer_of(waiting))[0] == 200
        assert await closed(waiting)


async def test_a_client_that_does_not_read_its_answer_is_cut_off() -> None:
    async with (
        serving(answer_seconds=0.3) as server,
        server.connection(receive_buffer=4096) as (reader, writer),
    ):
        writer.write(get("/large"))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        # Not a byte more is read until the server has given up; what the kernel has by then can still be read.
        async with asyncio.timeout(180):
            while server.open_connections():
                await asyncio.sleep(0.05)
        got = 0
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(180):
                while chunk := await reader.read(1 << 20):
                    got += len(chunk)
        assert got < 64 << 20


async def test_a_client_that_reads_steadily_gets_its_whole_answer() -> None:
    # It takes longer than a client may stand still, and it never does.
    async with serving(answer_seconds=1) as server, server.connection() as (reader, writer):
        writer.write(get("/large"))
        await reader.readuntil(b"\r\n\r\n")
        for _ in range(8):
            await asyncio.sleep(0.15)
            assert len(await reader.readexactly(8 << 20)) == 8 << 20


async def test_connections_above_the_limit_are_told_to_try_again_and_then_closed() -> None:
    async with serving(connections=3) as server, contextlib.AsyncExitStack() as stack:
        for _ in range(3):
            _, writer = await stack.enter_async_context(server.connection())
            writer.write(get("/long"))
        status, headers, body = await server.ask(get())
        assert (status, headers["retry-after"], body["serviceUnavailable"]["code"]) == (503, "5", 503)
        many = [await stack.enter_async_context(server.connection()) for _ in range(66)]
        assert await closed(many[-1][0])
        await stack.aclose()
        async with asyncio.timeout(180):
            while (await server.ask(get()))[0] != 200:
                await asyncio.sleep(0.05)


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serving() as server, server.connection() as (reader, writer):
        writer.write(get() + post(b'{"things": 1}') + get())
        bodies = [(await answer_of(reader))[2] for _ in range(3)]
        assert bodies == [{"ok": True}, {"things": 1}, {"ok": True}]


async def test_what_is_no_http_is_answered_with_a_plain_400() -> None:
    async with serving() as server, server.connection() as (reader, writer):
        writer.write(b"\x16\x03\x01\x00\xa5\x01\x00\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("framing", ["Content-Length: 27", "Transfer-Encoding: chunked"])
async def test_a_body_behind_an_upgrade_is_not_taken_for_the_next_request(framing: str) -> None:
    async with serving() as server, server.connection() as (reader, writer):
        head = f"POST /things HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n{framing}\r\n\r\n"
        writer.write(head.encode())
        status, headers, body = await answer_of(reader)
        assert (status, headers["connection"]) == (400, "close")
        assert "Upgrade" in body["badRequest"]["message"]
        writer.write(get())
        assert await closed(reader)
        assert server.handled == 0


async def test_an_upgrade_that_nobody_offers_is_passed_over() -> None:
    async with serving() as server, server.connection() as (reader, writer):
        for protocol in ("h2c", "websocket"):
            writer.write(get("/", "Connection: Upgrade", f"Upgrade: {protocol}", "Content-Length: 0"))
            assert (await answer_of(reader))[0] == 200
        writer.write(get())
        assert (await answer_of(reader))[0] == 200


FRAMED = b"POST /things HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n"
CHUNKED = b'd\r\n{"things": 1}\r\n0\r\n\r\n'


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /things\0 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: \0\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /?\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET things HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://x:99999999/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/3.0\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
        b" / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        FRAMED % b"Content-Length: 13\r\nContent-Length: 14" + b'{"things": 1}',
        FRAMED % b"Content-Length: 13\r\nContent-Length: 13" + b'{"things": 1}',
        FRAMED % b"Content-Length: 13\r\nTransfer-Encoding: chunked" + CHUNKED,
        FRAMED % b"Transfer-Encoding: chunked\r\nContent-Length: 13" + CHUNKED,
        FRAMED % b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity" + CHUNKED,
        FRAMED % b"Transfer-Encoding: xchunked" + CHUNKED,
        FRAMED % b"Content-Length: -1" + b'{"things": 1}',
        FRAMED % b"Content-Length: +13" + b'{"things": 1}',
        FRAMED % b"Content-Length: 99999999999999999999999" + b'{"things": 1}',
        FRAMED % b"Transfer-Encoding: chunked" + b"zz\r\n{}\r\n0\r\n\r\n",
        FRAMED % b"Transfer-Encoding: chunked" + b"fffffffffffffffffffff\r\n{}",
    ],
)
async def test_what_can_be_read_in_two_ways_is_refused_and_the_connection_closed(request_: bytes) -> None:
    async with serving() as server, server.connection() as (reader, writer):
        writer.write(request_ + get())
        assert (await reader.readline()).startswith(b"HTTP/1.1 400")
        assert b"HTTP/1.1" not in await rest_of(reader)
        assert server.handled == 0


async def test_a_noisy_client_does_not_fill_the_log() -> None:
    written = io.StringIO()
    log.configure(level="WARNING", stream=written)
    try:
        async with serving() as server:
            for beginning in (
                b"\0\r\n\r\n",
                get("/", "Connection: Upgrade", "Upgrade: h2c", "Connection: close"),
            ):
                for _ in range(50):
                    async with server.connection() as (reader, writer):
                        writer.write(beginning)
                        await reader.readline()
    finally:
        log.configure(level="WARNING")
    lines = written.getvalue().splitlines()
    assert sum("Invalid HTTP request" in line for line in lines) == 1
    assert len(lines) <= 3


@pytest.mark.parametrize(
    ("proxies", "client", "scheme"),
    [
        ((), "127.0.0.1", "http"),
        (("192.0.2.1",), "127.0.0.1", "http"),
        (("127.0.0.0/8",), "203.0.113.9", "https"),
    ],
)
async def test_only_configured_proxies_say_who_the_client_is(
    proxies: tuple[str, ...], client: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    seen = []

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        seen.append((scope["client"][0], scope["scheme"]))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    listeners = Listeners()
    server = Server(listeners)
    server.port = listeners.add(app, "127.0.0.1", 0, proxies=proxies)
    await listeners.start()
    try:
        async with server.connection() as (reader, writer):
            writer.write(get("/", "X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: https"))
            assert (await reader.readline()).startswith(b"HTTP/1.1 204")
    finally:
        await listeners.stop()
    assert seen == [(client, scheme)]
