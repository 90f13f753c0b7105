"""A whole cloud at DEBUG, with secrets that are known: none of them shows up anywhere."""

import asyncio
import base64
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from tests.support.agent_program import agent_of
from tests.support.identity import Identity
from tests.support.ports import free_ports

PORTS = ("COMPUTE_PORT", "PLACEMENT_PORT", "NETWORK_PORT", "AGENT_PORT", "METRICS_PORT")


@asynccontextmanager
async def moorage(
    words: tuple[str, ...], environ: Mapping[str, str], log: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A command of ours with its output in a file; ended at the end."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "moorage.cli.main", *words, stdout=output, stderr=output, env=environ
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
            await asyncio.wait_for(process.wait(), 180)


def arguments(pid: int) -> str:
    """The command lines of a process and of all its children."""
    process, found = psutil.Process(pid), []
    for each in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended since, as PostgreSQL's do
            found.append(" ".join(each.cmdline()))
    return "\n".join(found)


async def test_no_secret_is_logged_shown_measured_or_passed_as_an_argument(
    identity: Identity, image_id: str, database_url: str, tmp_path: Path
) -> None:
    state = tmp_path / "s"
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    with_password = database_url.replace("postgres@", "postgres:hunter-database@")
    secrets = {
        "the database's password": "hunter-database",
        "the service user's password": identity.service_password,
        "the metrics' token": "hunter-metrics",
        "a user's token": await identity.token("demo"),
        "an administrator's token": await identity.token("admin"),
        "a password in a request": "hunter-request",
        "a server's password": "hunter-admin-pass",
        "a server's user data": "hunter-user-data",
        "its user data as they were sent": base64.b64encode(b"hunter-user-data").decode(),
    }
    config = tmp_path / "moorage.conf"
    config.touch(mode=0o600)
    config.write_text(
        f"[DEFAULT]\nidentity_password = {identity.service_password}\n[metrics]\ntoken = hunter-metrics\n"
    )
    environ = {
        **os.environ,
        **{f"MOORAGE_{name}": str(port) for name, port in ports.items()},
        "MOORAGE_STATE": str(state),
        "MOORAGE_DATABASE_URL": with_password,
        "MOORAGE_IDENTITY_URL": identity.auth_url,
        "MOORAGE_IMAGE_URL": identity.image_url,
        "MOORAGE_HOSTS": "simulated",
        "MOORAGE_SIMULATED_HOSTS": "1",
        "MOORAGE_LOG_LEVEL": "DEBUG",
    }
    log, shown = tmp_path / "log", tmp_path / "shown"
    found: dict[str, str] = {}
    async with moorage(("up", "--config-file", str(config)), environ, log) as process:
        async with asyncio.timeout(300):
            while "moorage: ready" not in log.read_text():
                assert process.returncode is None, log.read_text()
                await asyncio.sleep(0.1)
        url = f"http://127.0.0.1:{ports['COMPUTE_PORT']}"
        found["faults"] = await provoke(url, secrets)
        async with aiohttp.ClientSession() as session:
            api = Api(session, url, ports["NETWORK_PORT"], secrets)
            ticket = secrets["a host's ticket"] = await api.ticket("h2")
            agents = f"https://127.0.0.1:{ports['AGENT_PORT']}"
            folder = tmp_path / "h2"
            async with agent_of(agents, "h2", folder, ticket, words=("--log-level=DEBUG",)) as told:
                await api.boot_on("h2", image_id)
                found["arguments of the agent"] = arguments(os.getpid())
            found["the agent's log"] = told.read_text()
            await api.boot_on("sim-0001", image_id)
        keys = {"h2": json.loads((folder / "identity.json").read_text())["key"]}
        bearer = {"Authorization": "Bearer hunter-metrics"}
        async with (
            aiohttp.ClientSession(headers=bearer) as session,
            session.get(f"http://127.0.0.1:{ports['METRICS_PORT']}/metrics") as answer,
        ):
            assert answer.status == 200
            found["metrics"] = await answer.text()
        found["arguments"] = arguments(process.pid)
        async with moorage(("config", "show", "--config-file", str(config)), environ, shown) as command:
            assert await asyncio.wait_for(command.wait(), 180) == 0
    found["config show"] = shown.read_text()
    found["log"] = log.read_text()
    found["arguments of Keystone and Glance"] = arguments(os.getpid())
    keys["authority"] = (state / "agents-ca.key").read_text()
    for path in (state / "simulated").glob("*/identity.json"):
        keys[path.parent.name] = json.loads(path.read_text())["key"]
    assert len(keys) == 3
    assert "guest.spawn" in found["the agent's log"]
    secrets.update({f"the key of {name}": pem.splitlines()[1] for name, pem in keys.items()})

    assert "token = ***" in found["config show"]
    assert "postgres:***@" in found["config show"]
    assert "request.answered" in found["log"]
    assert "moorage_requests_total" in found["metrics"]
    for place, text in found.items():
        for name, secret in secrets.items():
            assert secret not in text, f"{name} is in the {place}"


class Api:
    """What it takes to boot a server, with the password and user data that are known."""

    def __init__(
        self, session: aiohttp.ClientSession, compute: str, network_port: int, secrets: Mapping[str, str]
    ) -> None:
        self._session = session
        self._compute = compute
        self._network = f"http://127.0.0.1:{network_port}/v2.0"
        self._secrets = secrets

    async def ask(self, method: str, url: str, body: Any = None, *, admin: bool = True) -> Any:
        token = self._secrets["an administrator's token" if admin else "a user's token"]
        headers = {"X-Auth-Token": token}
        async with self._session.request(method, url, headers=headers, json=body) as answer:
            assert answer.status < 300, await answer.text()
            return await answer.json()

    async def ticket(self, host: str) -> str:
        return str((await self.ask("POST", f"{self._compute}/moorage/v1/hosts/{host}/ticket"))["ticket"])

    async def boot_on(self, host: str, image: str) -> None:
        """Boot a server there, and wait for it; the host may still be enrolling."""
        body = {"flavor": {"name": f"f-{host}", "ram": 64, "vcpus": 1, "disk": 1}}
        size = (await self.ask("POST", f"{self._compute}/v2.1/flavors", body))["flavor"]["id"]
        body = {"network": {"name": f"n-{host}"}}
        net = (await self.ask("POST", f"{self._network}/networks", body))["network"]["id"]
        body = {"subnet": {"network_id": net, "cidr": "10.1.0.0/24", "ip_version": 4}}
        await self.ask("POST", f"{self._network}/subnets", body)
        async with asyncio.timeout(180):
            while host not in {
                each["host"]
                for each in (await self.ask("GET", f"{self._compute}/v2.1/os-services"))["services"]
                if each["state"] == "up"
            }:
                await asyncio.sleep(0.1)
            body = {
                "server": {
                    "name": "s",
                    "imageRef": image,
                    "flavorRef": size,
                    "networks": [{"uuid": net}],
                    "availability_zone": f"nova:{host}",
                    "adminPass": self._secrets["a server's password"],
                    "user_data": self._secrets["its user data as they were sent"],
                    "config_drive": True,
                }
            }
            made = (await self.ask("POST", f"{self._compute}/v2.1/servers", body))["server"]
            assert made["adminPass"] == self._secrets["a server's password"]
            while True:
                server = (await self.ask("GET", f"{self._compute}/v2.1/servers/{made['id']}"))["server"]
                if server["status"] == "ACTIVE":
                    break
                assert server["status"] == "BUILD", server
                await asyncio.sleep(0.1)


async def provoke(url: str, secrets: Mapping[str, str]) -> str:
    """The answers to requests that go wrong in many ways."""
    good, admin = secrets["a user's token"], secrets["an administrator's token"]
    asked = secrets["a password in a request"]
    requests = [
        ("GET", "/v2.1/servers", "wrong", None),
        ("GET", "/v2.1/servers?limit=x", good, None),
        ("GET", "/v2.1/nothing", good, None),
        ("POST", "/v2.1/servers", good, {"server": {"name": 1, "adminPass": asked, "user_data": asked}}),
        ("POST", "/v2.1/servers", good, {"server": {"name": "s", "adminPass": asked, "colour": "x"}}),
        ("POST", "/v2.1/flavors", good, {"flavor": {}}),
        ("POST", "/v2.1/servers/x/action", good, {"rebuild": {"adminPass": asked}}),
        ("GET", "/moorage/v1/health", admin, None),
        ("GET", "/agent/v1/commands", good, None),
    ]
    answers = []
    async with aiohttp.ClientSession() as session:
        for method, path, token, body in requests:
            headers = {"X-Auth-Token": token}
            async with session.request(method, url + path, headers=headers, json=body) as answer:
                answers.append(json.dumps(dict(answer.headers)) + await answer.text())
    return "\n".join(answers)


async def test_a_process_that_cannot_begin_says_why_without_its_secrets(tmp_path: Path) -> None:
    environ = {**os.environ, "MOORAGE_STATE": str(tmp_path / "s"), "MOORAGE_HOSTS": "none"}
    for url in ("postgresql://u:hun/ter2@127.0.0.1:1/m", "postgresql://u:hunter2@127.0.0.1:1/m"):
        log = tmp_path / "log"
        async with moorage(("up",), {**environ, "MOORAGE_DATABASE_URL": url}, log) as process:
            assert await asyncio.wait_for(process.wait(), 180) != 0
        text = log.read_text()
        assert text.startswith("moorage: "), text
        assert "ter2" not in text
