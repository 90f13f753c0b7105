"""A cloud by HTTPS: the catalogue, our command line, and a certificate that is renewed by SIGHUP."""

import asyncio
import os
import signal
from pathlib import Path

import aiohttp
import psutil
import yaml

from moorage.children.bootstrap import Addresses
from moorage.store.database import Database
from tests.cloud.test_secrets import moorage
from tests.server.test_tls import Files
from tests.support.cloud import running_cloud
from tests.support.identity import Identity
from tests.support.ports import free_ports


async def test_a_cloud_by_https_is_used_through_its_catalogue(
    database: Database, identity: Identity, tmp_path: Path
) -> None:
    files = Files(tmp_path)
    secure = {"tls__certificate_file": str(files.certificate), "tls__key_file": str(files.key)}
    async with running_cloud(database, identity, hosts=0, public_host="localhost", **secure) as cloud:
        url = cloud.cloud.url("compute")
        assert url.startswith("https://localhost:")
        await identity.publish(
            Addresses(
                compute=f"{url}/v2.1",
                placement=cloud.cloud.url("placement"),
                network=cloud.cloud.url("network"),
            ),
            region="Secure",
        )
        entry = {**identity.cloud("admin", "Secure"), "cacert": str(files.bundle)}
        clouds = tmp_path / "clouds.yaml"
        clouds.touch(mode=0o600)
        clouds.write_text(
            yaml.safe_dump({"clouds": {"secure": entry, "doubting": {**entry, "cacert": None}}})
        )
        environ = {**os.environ, "OS_CLIENT_CONFIG_FILE": str(clouds)}
        for name, status, says in (("secure", 0, "audit: clean"), ("doubting", 1, "does not answer")):
            log = tmp_path / name
            async with moorage(("audit", "--cloud", name), environ, log) as command:
                assert await asyncio.wait_for(command.wait(), 180) == status, log.read_text()
            assert says in log.read_text()
        async with aiohttp.ClientSession() as session:
            for api in ("compute", "placement", "network"):
                where = cloud.cloud.url(api) + "/healthcheck"
                async with session.get(where, ssl=files.trusting()) as answer:
                    assert answer.status == 200


async def test_sighup_takes_a_renewed_certificate(
    identity: Identity, database_url: str, tmp_path: Path
) -> None:
    files = Files(tmp_path)
    names = ("COMPUTE_PORT", "PLACEMENT_PORT", "NETWORK_PORT", "METRICS_PORT")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    environ = {
        **os.environ,
        **{f"MOORAGE_{name}": str(port) for name, port in ports.items()},
        "MOORAGE_DATABASE_URL": database_url,
        "MOORAGE_IDENTITY_URL": identity.auth_url,
        "MOORAGE_IDENTITY_PASSWORD": identity.service_password,
        "MOORAGE_STATE": str(tmp_path / "s"),
        "MOORAGE_HOSTS": "none",
        "MOORAGE_TLS_CERTIFICATE_FILE": str(files.certificate),
        "MOORAGE_TLS_KEY_FILE": str(files.key),
        "MOORAGE_TLS_RELOAD_INTERVAL": "3600",
    }

    async def serial() -> str:
        context, port = files.trusting(), ports["NETWORK_PORT"]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        found = str(writer.get_extra_info("peercert")["serialNumber"])
        writer.close()
        return found

    log = tmp_path / "log"
    async with moorage(("up",), environ, log) as process, asyncio.timeout(300):
        while "moorage: ready" not in log.read_text():
            assert process.returncode is None, log.read_text()
            await asyncio.sleep(0.1)
        files_allowed, most = psutil.Process(process.pid).rlimit(psutil.RLIMIT_NOFILE)
        assert files_allowed == (65_536 if most == -1 else min(most, 65_536))
        first = await serial()
        files.renew()
        assert await serial() == first
        process.send_signal(signal.SIGHUP)
        while await serial() == first:
            await asyncio.sleep(0.1)
        assert process.returncode is None
