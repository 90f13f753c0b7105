"""A whole cloud at DEBUG, with secrets that are known: none of them shows up anywhere."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import psutil

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
    identity: Identity, database_url: str, tmp_path: Path
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
        found["faults"] = await provoke(f"http://127.0.0.1:{ports['COMPUTE_PORT']}", secrets)
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
    keys = {"authority": (state / "agents-ca.key").read_text()}
    for path in (state / "simulated").glob("*/identity.json"):
        keys[path.parent.name] = json.loads(path.read_text())["key"]
    assert len(keys) > 1
    secrets.update({f"the key of {name}": pem.splitlines()[1] for name, pem in keys.items()})

    assert "token = ***" in found["config show"]
    assert "postgres:***@" in found["config show"]
    assert "request.answered" in found["log"]
    assert "moorage_requests_total" in found["metrics"]
    for place, text in found.items():
        for name, secret in secrets.items():
            assert secret not in text, f"{name} is in the {place}"


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
