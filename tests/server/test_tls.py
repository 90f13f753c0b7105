"""HTTPS of the public APIs, and whom our own clients believe."""

import asyncio
import contextlib
import ssl
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from keystoneauth1 import session

from moorage.api import Api, Call, Endpoint, RequestContext
from moorage.api.auth import ServiceToken
from moorage.api.limits import Limits
from moorage.api.policy import Policies
from moorage.cli import client as cli
from moorage.core import config
from moorage.core.errors import MoorageError, Unavailable
from moorage.core.secrets import TooOpen
from moorage.core.trust import BundleUnusable, trust
from moorage.server.allinone import addresses
from moorage.server.listeners import Listeners
from moorage.server.options import options
from moorage.server.tls import ApiTls, TlsUnusable, api_tls


class Files:
    """An authority, and the files of a certificate of its for ``localhost``."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.certificate, self.key = folder / "api.crt", folder / "api.key"
        self.bundle = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.bundle))
        self.renew()

    def renew(self) -> None:
        issued = self.authority.issue_cert("localhost", "127.0.0.1")
        for path, text in (
            (self.certificate, b"".join(blob.bytes() for blob in issued.cert_chain_pems)),
            (self.key, issued.private_key_pem.bytes()),
        ):
            new = path.with_suffix(".new")
            new.touch(mode=0o600)
            new.write_bytes(text)
            new.replace(path)

    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.bundle))

    def configuration(self, **more: Any) -> Any:
        tls = {"tls.certificate_file": str(self.certificate), "tls.key_file": str(self.key)}
        return config.load(options(), environ={}, overrides={**tls, **more})


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def show(call: Call[Any]) -> Any:
    return {"url": call.url()}


async def nobody(_headers: Any, request_id: str) -> RequestContext:
    return RequestContext(request_id=request_id)


@contextlib.asynccontextmanager
async def serving(tls: ApiTls, **limits: Any) -> AsyncIterator[int]:
    """The port of an API over TLS."""
    table = (Endpoint("GET", "/", show), Endpoint("GET", "/auth/tokens", show))
    api = Api("things", None, table, "compute", None, policies=Policies({}), authenticate=nobody)
    listeners = Listeners(Limits(**limits))
    port = listeners.add(api, "127.0.0.1", 0, tls=tls.context)
    await listeners.start()
    try:
        yield port
    finally:
        await listeners.stop()


async def serial(port: int, context: ssl.SSLContext) -> Any:
    """The serial number of the certificate that a new connection gets, over which a request is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\n\r\n")
        answer = (await asyncio.wait_for(reader.read(), 120)).decode()
        assert answer.startswith("HTTP/1.1 200")
        assert '"url":"https://localhost:1"' in answer
        return writer.get_extra_info("peercert")["serialNumber"]
    finally:
        writer.close()


def tls_of(files: Files, **more: Any) -> ApiTls:
    found = api_tls(files.configuration(**more))
    assert found is not None
    return found


async def test_the_apis_answer_by_https_and_take_a_renewed_certificate_while_they_run(files: Files) -> None:
    tls = tls_of(files)
    async with serving(tls) as port:
        first = await serial(port, files.trusting())
        tls.reload()
        assert await serial(port, files.trusting()) == first

        files.renew()
        watch = asyncio.create_task(tls.run(0.05))
        try:
            async with asyncio.timeout(120):
                while await serial(port, files.trusting()) == first:
                    await asyncio.sleep(0.05)
        finally:
            watch.cancel()


async def test_files_that_do_not_fit_leave_what_there_was(files: Files) -> None:
    tls = tls_of(files)
    async with serving(tls) as port:
        first = await serial(port, files.trusting())
        key = files.key.read_bytes()
        files.renew()
        files.key.write_bytes(key)  # the new certificate with the old key, as in the middle of a renewal
        tls.reload()
        assert await serial(port, files.trusting()) == first
        files.certificate.write_text("nothing")
        tls.reload()
        files.certificate.unlink()
        tls.reload()
        assert await serial(port, files.trusting()) == first
        files.renew()
        tls.reload()
        assert await serial(port, files.trusting()) != first


@pytest.mark.parametrize(
    ("minimum", "client", "served"), [("1.2", "1.1", False), ("1.2", "1.2", True), ("1.3", "1.2", False)]
)
async def test_older_versions_of_tls_are_refused(
    files: Files, minimum: str, client: str, served: bool
) -> None:
    async with serving(tls_of(files, **{"tls.minimum_version": minimum})) as port:
        context = files.trusting()
        with warnings.catch_warnings():
            # That a client asks for an old version is the test.
            warnings.simplefilter("ignore", DeprecationWarning)
            version = ssl.TLSVersion[f"TLSv{client.replace('.', '_')}"]
            context.minimum_version = context.maximum_version = version
        context.set_ciphers("ALL:@SECLEVEL=0")
        if served:
            await serial(port, context)
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await serial(port, context)


async def test_a_client_that_does_not_finish_its_handshake_is_cut_off(files: Files) -> None:
    async with serving(tls_of(files), head_seconds=2) as port:

        async def cut_off(beginning: bytes, tls: ssl.SSLContext | None = None) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
            writer.write(beginning)
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 120) == b""
            writer.close()

        await asyncio.gather(cut_off(b""), cut_off(b"\x16\x03\x01\x02\x00"), cut_off(b"", files.trusting()))


@pytest.mark.parametrize("spoil", ["certificate", "key", "other key", "not set", "too open"])
def test_what_cannot_be_used_is_named_at_start(files: Files, spoil: str) -> None:
    conf = files.configuration()
    expected: tuple[type[MoorageError], str] = (TlsUnusable, str(files.certificate))
    if spoil == "certificate":
        files.certificate.unlink()
    elif spoil == "key":
        files.key.write_text("nothing")
    elif spoil == "other key":
        files.key.write_bytes(trustme.CA().issue_cert("x").private_key_pem.bytes())
    elif spoil == "not set":
        conf = files.configuration(**{"tls.key_file": None})
        expected = TlsUnusable, "belong together"
    else:
        files.key.chmod(0o644)
        expected = TooOpen, f"chmod g-w,o-rwx {files.key}"
    with pytest.raises(expected[0], match=expected[1]):
        api_tls(conf)


def test_the_catalogue_says_https_and_the_public_name(files: Files) -> None:
    plain = addresses(config.load(options(), environ={}))
    assert plain.compute == "http://127.0.0.1:8774/v2.1"
    found = addresses(files.configuration(public_host="cloud.example"))
    assert (found.compute, found.placement, found.network) == (
        "https://cloud.example:8774/v2.1",
        "https://cloud.example:8778",
        "https://cloud.example:9696",
    )


async def test_our_own_clients_believe_the_configured_authority_and_no_other(
    files: Files, tmp_path: Path
) -> None:
    async with serving(tls_of(files)) as port:
        url = f"https://localhost:{port}"
        believing = ServiceToken(url, username="u", password="p", trust=trust(str(files.bundle)))
        doubting = ServiceToken(url, username="u", password="p", trust=trust(None))
        status, _, _ = await believing.request("GET", "/auth/tokens")
        assert status == 200
        with pytest.raises(Unavailable, match="certificate verify failed"):
            await doubting.request("GET", "/auth/tokens")
        await believing.close()
        await doubting.close()
    with pytest.raises(BundleUnusable, match="is no bundle of CA certificates"):
        trust(tmp_path / "none.pem")


@pytest.mark.parametrize(
    ("entry", "variable", "verify"),
    [
        ({"cacert": "/a"}, None, "/a"),
        ({}, "/b", "/b"),
        ({}, None, True),
        ({"verify": False, "cacert": "/a"}, None, False),
    ],
)
def test_the_command_line_reads_whom_to_believe_as_openstacksdk_does(
    entry: dict[str, Any], variable: str | None, verify: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth = {"auth_url": "https://k/v3", "username": "u", "password": "p", "project_name": "p"}
    path = tmp_path / "clouds.yaml"
    path.write_text(yaml.safe_dump({"clouds": {"c": {"auth": auth, **entry}}}))
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(path))
    monkeypatch.delenv("OS_CACERT", raising=False)
    if variable is not None:
        monkeypatch.setenv("OS_CACERT", variable)
    made = cli.Control("c")._session
    assert isinstance(made, session.Session)
    assert made.verify == verify
