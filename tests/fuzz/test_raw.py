"""Bytes that are hardly HTTP, sent to every port of the cloud side by side: each connection comes to its end, no answer is
a 5xx, no secret is in one, and the port still answers.

What HTTP says of single cases is in `tests/server/test_connections.py`; here they are mixed and cut anywhere.
"""

import asyncio
import contextlib
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.limits import Limits
from moorage.server.listeners import Listeners
from tests.fuzz.conftest import Target
from tests.fuzz.test_fuzz import examples
from tests.support.world import MARK

PATHS = {"compute": b"/v2.1/servers", "network": b"/v2.0/networks", "placement": b"/resource_providers"}
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_DEEP = b'{"server":' + b"[" * 200_000
_LARGE = b"1000\r\n" + b" " * 4096 + b"\r\n"

LINES = (
    b"GET %s HTTP/1.1", b"POST %s HTTP/1.1", b"PUT %s/x HTTP/1.1", b"DELETE %s/\0 HTTP/1.1", b"GET %s/\xff\xfe HTTP/1.1",
    b"GET %s?name=%%ff%%00&limit=\xc3 HTTP/1.1", b"GET %s", b"GET  %s HTTP/1.1", b"GET %s HTTP/9.9", b"%s", b"",
    b"CONNECT %s HTTP/1.1", b"OPTIONS * HTTP/1.1", b"GET http://u:p@h:99999%s HTTP/1.1", b"HEAD %s HTTP/1.0",
    b"FOO %s HTTP/1.1", b"GET %s#f?a HTTP/1.1", b"GET /..%%2f..%%2f%s HTTP/1.1", b"GET %s?" + b"a=1&" * 5000 + b" HTTP/1.1",
)  # fmt: skip
HEADERS = (
    b"Host: x", b"Host: a\0b", b"Host : x", b"Host: y\r\nHost: z", b"Connection: close", b"Connection: Upgrade",
    b"Upgrade: websocket", b"Expect: 100-continue", b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: 0",
    b"Content-Length: 99999999999999999999", b"Content-Length: 3, 5", b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked, identity", b"Content-Type: application/json",
    b"Content-Type: \xff", b"Accept: text/html", b"OpenStack-API-Version: compute \xff", b"OpenStack-API-Version: compute 2.96",
    b"X-Auth-Token: \xff\xfe", b"X-Auth-Token: " + b"a" * 40_000, b"X-Long: " + b"y" * 80_000, b" folded", b":", b"\0: \0",
    b"X-Many: 1\r\n" * 120 + b"X: 1", b"X-Openstack-Request-Id: req-\r",
)  # fmt: skip
BODIES = (
    b"", b"hello", b"{}", b'{"server": {"name": "\xff"}}', b'{"network": {"name": "\\u0000"}}', b'{"a": \0}', _DEEP, b"[" * 31,
    b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"5\r\nhel", b"zz\r\n", b"ffffffffffffffffff\r\n", _LARGE * 300 + b"0\r\n\r\n",
    b"5;ext=\0\r\nhello\r\n0\r\nTrailer: x\r\n\r\n", b"0\r\n" + b"X: y\r\n" * 20_000, b"1e400", b"9" * 5000,
)  # fmt: skip


def _request(path: bytes, line: bytes, headers: list[bytes], body: bytes, token: bytes) -> bytes:
    first = line % path if b"%s" in line else line
    return b"\r\n".join([first, b"X-Auth-Token: " + token, *headers, b"", body])


def requests(path: bytes, token: bytes) -> st.SearchStrategy[bytes]:
    """One request, or several that follow each other, perhaps cut off."""
    one = st.builds(
        _request,
        st.just(path),
        st.one_of(st.sampled_from(LINES[:3]), st.sampled_from(LINES)),
        st.lists(st.sampled_from(HEADERS), max_size=4),
        st.sampled_from(BODIES),
        st.just(token),
    )
    several = st.lists(one, min_size=1, max_size=4).map(b"".join)
    cut = st.builds(lambda sent, at: sent[: len(sent) * at // 100], several, st.integers(1, 99))
    return st.one_of(several, several, cut)


async def spoken(port: int, sent: bytes) -> bytes:
    """All that is answered until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    got = b""
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(sent)
            while chunk := await reader.read(1 << 16):
                got += chunk
    finally:
        writer.close()
    return got


async def alive(port: int) -> None:
    """Return once it answers: it ends what is half sent, which on a busy machine this may be for a moment too."""
    asked = b"GET /healthcheck/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    async with asyncio.timeout(120):
        while not (await spoken(port, asked)).startswith(b"HTTP/1.1 200"):
            await asyncio.sleep(0.1)


@pytest.fixture(scope="module")
def ports(target: Target) -> Iterator[dict[str, int]]:
    """The cloud's applications on ports of their own, where what is half sent ends soon."""
    cloud = target.cloud.cloud
    limits = Limits(head_seconds=1.0, body_seconds=1.0, idle_seconds=0.5, answer_seconds=5.0)
    listeners = Listeners(limits, cloud.front)
    found = {api: listeners.add(cloud.apps[api], "127.0.0.1", 0) for api in PATHS}
    target.run(listeners.start())
    yield found
    target.run(listeners.stop())


@pytest.mark.parametrize("api", PATHS)
def test_no_bytes_break_a_port(
    api: str, target: Target, ports: dict[str, int], request: pytest.FixtureRequest
) -> None:
    port = ports[api]
    token = target.credentials["other member"]["X-Auth-Token"].encode()
    world = target.world
    secrets = (MARK, world.network, world.port, world.server, world.project)

    async def all_of(many: list[bytes]) -> list[bytes]:
        async with asyncio.timeout(120):
            return await asyncio.gather(*(spoken(port, sent) for sent in many))

    @examples(request, 2)
    @given(st.lists(requests(PATHS[api], token), min_size=20, max_size=40))
    def run(many: list[bytes]) -> None:
        answers = target.run(all_of(many))
        for sent, answer in zip(many, answers, strict=True):
            statuses = [int(s) for s in _STATUS.findall(answer)]
            assert all(status < 500 for status in statuses), (sent[:2000], answer[:2000])
            assert not [s for s in secrets if s.encode() in answer], (sent[:2000], answer[:2000])
        target.run(alive(port))

    run()
