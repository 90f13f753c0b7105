"""``moorage host``: the commands as an operator runs them, against a cloud."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from moorage.agent.fleet import SimulatedHost
from moorage.children.bootstrap import Addresses
from moorage.store.database import Database
from tests.cloud.test_power_sync import booted
from tests.support.agent_program import agent_of
from tests.support.agent_server import PATIENCE
from tests.support.cloud import TestCloud, reported, running_cloud
from tests.support.identity import Identity

REGION = "RegionHosts"


class Operator:
    """Runs ``moorage host``."""

    def __init__(self, cloud: TestCloud, folder: Path) -> None:
        self.cloud = cloud
        self._clouds = folder / "clouds.yaml"
        entries = {f"moorage-{user}": cloud.identity.cloud(user, region=REGION) for user in ("admin", "demo")}
        self._clouds.write_text(yaml.safe_dump({"clouds": entries}))

    async def __call__(self, *words: str) -> tuple[int, str]:
        """The exit status, and what was printed."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "moorage.cli.main", "host", *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={"OS_CLIENT_CONFIG_FILE": str(self._clouds), "PATH": "/usr/bin:/bin", "COLUMNS": "200"},
        )
        out, _ = await process.communicate()
        return process.returncode or 0, out.decode()

    async def done(self, *words: str) -> str:
        status, out = await self(*words)
        assert status == 0, out
        return out

    async def shows(self, host: str, wanted: str) -> None:
        """Wait until the host is shown with this: what it has told of its guests comes with its next report."""
        async with asyncio.timeout(PATIENCE):
            while wanted not in await self.done("show", host):
                await asyncio.sleep(0.1)

    async def refused(self, *words: str) -> str:
        """The one line that says why."""
        status, out = await self(*words)
        assert (status, out.count("\n"), out.startswith("moorage: ")) == (1, 1, True), out
        return out


@pytest.fixture
async def operator(database: Database, identity: Identity, tmp_path: Path) -> AsyncIterator[Operator]:
    async with running_cloud(database, identity, hosts=[SimulatedHost(name="h1")]) as cloud:
        one = cloud.cloud
        addresses = Addresses(
            compute=one.url("compute") + "/v2.1", placement=one.url("placement"), network=one.url("network")
        )
        await identity.publish(addresses, region=REGION)
        yield Operator(cloud, tmp_path)


async def test_a_host_is_enrolled_shown_revoked_and_enrolled_again(
    operator: Operator, image_id: str, tmp_path: Path
) -> None:
    cloud = operator.cloud
    server = await booted(cloud, await cloud.client(), image_id)
    ticket = (await operator.done("enroll", "h2")).strip()
    async with contextlib.AsyncExitStack() as stack:
        url = cloud.cloud.url("agent")
        await stack.enter_async_context(agent_of(url, "h2", tmp_path / "h2", ticket, heartbeat=1))
        await reported(cloud.cloud, 2)
        listed, two = await asyncio.gather(operator.done("list"), operator.done("show", "h2"))
        assert [(line.split("│")[1].strip(), line.split("│")[2].strip()) for line in rows(listed)] == [
            ("h1", "up"),
            ("h2", "up"),
        ]
        await operator.shows("h1", f"guest {server} running: keep")
        assert "state: up\n" in two
        assert "hypervisor_type: simulated" in two
        assert two.count("\ncertificate ") == 1
        assert "guest" not in two

        assert await operator.done("revoke", "h2") == ""
        assert "certificate: none, the host cannot talk" in await operator.done("show", "h2")
        # A ticket is used once: the agent that has one knows itself again with a new one alone.
        again = (await operator.done("enroll", "h2")).strip()
        assert again != ticket
    async with agent_of(url, "h2", tmp_path / "h2", again, heartbeat=1):
        async with asyncio.timeout(PATIENCE):
            while "certificate: none" in await operator.done("show", "h2"):
                await asyncio.sleep(0.1)


def rows(table: str) -> list[str]:
    return [line for line in table.splitlines() if line.startswith("│")]


async def test_what_is_refused_is_one_line_that_says_why(operator: Operator) -> None:
    shown, revoked, spaces, slashes, outside, member, unknown = await asyncio.gather(
        operator.refused("show", "nobody"),
        operator.refused("revoke", "nobody"),
        operator.refused("enroll", "a name with spaces"),
        operator.refused("enroll", "h1/revoke"),
        operator.refused("show", "../operations"),
        operator.refused("list", "--cloud", "moorage-demo"),
        operator.refused("list", "--cloud", "nowhere"),
    )
    assert "there is no host 'nobody'" in shown
    assert "there is no host 'nobody'" in revoked
    assert "a host's name has up to 255 letters" in spaces
    # A name is one part of the path, whatever is in it.
    assert [words.endswith("could not be found.\n") for words in (slashes, outside)] == [True, True]
    assert "moorage:admin" in member
    assert "nowhere" in unknown
    # Nothing came of any of it: the host is as it was.
    assert (await operator.done("show", "h1")).count("\ncertificate ") == 1


async def test_an_authority_is_made_once_and_kept(operator: Operator, tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    first = await operator.done("authority", str(folder))
    assert first == f"agent_ca_key = {folder}/agents-ca.key\nagent_ca_certs = {folder}/agents-ca.crt\n"
    key = folder / "agents-ca.key"
    made = key.read_bytes()
    assert key.stat().st_mode & 0o777 == 0o600
    assert await operator.done("authority", str(folder)) == first
    assert key.read_bytes() == made
    file = tmp_path / "file"
    file.write_text("")
    assert str(file) in await operator.refused("authority", str(file))
