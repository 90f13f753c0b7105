"""``make contract``: Nova's own schemas held against every answer of our compute API, with ``openstack`` as the client.

The suite is no part of this project: it is a folder beside it, which reads the contract from an installed nova and has
a proxy that checks.  Nova goes into an environment of its own, once; the contract stays there too.  What runs:

    openstack ── proxy of the suite ── compute API of a cloud in this process (simulated hosts, Keystone, Glance)

The last line is ``N requests, N operations, N findings``; the exit status is 1 with findings or a command that failed.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from moorage.children.bootstrap import Addresses
from moorage.core import log
from moorage.server import migrations
from moorage.store.database import Database
from moorage.store.embedded import FAST, EmbeddedPostgres
from tests.contract.commands import COMMANDS, FALSE, GETS, LAST, NEWEST, VERSIONS, WRONG, Row
from tests.support.cloud import TestCloud, running_cloud
from tests.support.identity import Identity, identity
from tests.support.ports import free_ports

NOVA = "34.0.0"
REGION = "Contract"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f contract"


def say(line: str) -> None:
    """Tell what is done, as it is done."""
    print(line, flush=True)  # noqa: T201  a command prints


class Suite(NamedTuple):
    """The suite's folder, and the environment with nova in which it runs."""

    folder: Path
    venv: Path

    @property
    def python(self) -> Path:
        """The environment's Python."""
        return self.venv / "bin" / "python"

    @property
    def contract(self) -> Path:
        """The contract, once it is exported."""
        return self.venv / f"nova-{NOVA}.json"


def prepare(suite: Suite) -> None:
    """Make the environment with nova, and export the contract; both are kept."""
    python, contract = suite.python, suite.contract
    if not contract.exists():
        say(f"installing nova {NOVA} into {suite.venv}")
        uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}") or "uv"
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, suite.venv], check=True)
        wanted = (f"nova=={NOVA}", "jsonschema")
        subprocess.run([uv, "pip", "install", "--quiet", "--python", python, *wanted], check=True)
        say("exporting its contract")
        text = subprocess.run(
            [python, "-W", "ignore", suite.folder / "export.py"], check=True, stdout=subprocess.PIPE
        ).stdout
        new = contract.with_suffix(".new")
        new.write_bytes(text)
        new.rename(contract)


class Proxy:
    """The suite's proxy in front of a server; ``url`` is where it listens."""

    def __init__(self, suite: Suite, server: str, folder: Path) -> None:
        listen = f"127.0.0.1:{free_ports(1)[0]}"
        self.url = f"http://{listen}"
        self._findings = folder / "findings.jsonl"
        self._coverage = folder / "coverage.json"
        self._process = subprocess.Popen(
            [suite.python, Path(__file__).with_name("proxy.py"), suite.folder, "--contract", suite.contract,
             "--listen", listen, "--server", server, "--findings", self._findings, "--coverage", self._coverage],
            stdout=subprocess.PIPE, text=True, env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        )  # fmt: skip

    def end(self) -> tuple[int, list[dict[str, Any]], list[dict[str, Any]]]:
        """How many requests it saw, its findings, and the operations it knows."""
        self._process.send_signal(signal.SIGTERM)
        told, _ = self._process.communicate(timeout=60)
        requests = re.search(r"^(\d+) requests", told, re.MULTILINE)
        assert requests is not None, told
        findings = [json.loads(line) for line in self._findings.read_text().splitlines()]
        return int(requests[1]), findings, json.loads(self._coverage.read_text())


class Openstack:
    """The ``openstack`` command as one user at one microversion, kept running (session.py): it keeps its first one."""

    def __init__(self, environ: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", Path(__file__).with_name("session.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**{k: v for k, v in os.environ.items() if not k.startswith("OS_")}, **environ},
        )

    def run(self, *words: str) -> dict[str, Any]:
        """{"status", "out", "err"} of one command."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def end(self) -> None:
        """End it."""
        self._process.communicate(timeout=30)


class Drive:
    """The commands, in order; ``failed`` are those that did not do what they should."""

    def __init__(self, users: Identity, folder: Path) -> None:
        self.failed: list[str] = []
        self._environs = {
            who: {**users.environ(who, REGION), "HOME": str(folder)} for who in ("admin", "demo")
        }
        self._users: dict[str, Openstack] = {}
        self._version = ""
        self._folder = folder
        key = folder / "key.pub"
        key.write_text(KEY)
        self.names = {"image": "tiny", "network": "net", "key": str(key)}

    def at(self, version: str) -> None:
        """From here on at this microversion."""
        self.end()
        self._version = version
        self._users = {
            who: Openstack({**environ, "OS_COMPUTE_API_VERSION": version})
            for who, environ in self._environs.items()
        }

    def end(self) -> None:
        """End the sessions."""
        for user in self._users.values():
            user.end()
        self._users = {}

    def openstack(self, who: str, *words: str) -> str:
        """One command's output."""
        done = self._users[who].run(*words)
        if done["status"] != 0:
            reason = " ".join(str(done["err"]).split())[-300:]
            self.failed.append(f"{self._version} {who}: openstack {' '.join(words)}: {reason}")
        return str(done["out"])

    def shown(self, who: str, *words: str, column: str = "id") -> str:
        """One field of what a ``show`` or ``list`` says."""
        return self.openstack(who, *words, "-f", "value", "-c", column).split("\n")[0].strip()

    def shared(self) -> None:
        """What every round needs: an image, a network and a security group."""
        image = self._folder / "tiny.raw"
        image.write_bytes(bytes(1024))
        self.openstack(
            "admin", "image", "create", "tiny", "--file", str(image), "--disk-format", "raw", "--public"
        )
        for words in (
            "network create net",
            "subnet create --network net --subnet-range 10.3.0.0/24 net",
            "security group create other",
        ):
            self.openstack("demo", *words.split())

    def round(self, rows: tuple[Row, ...]) -> None:
        """Every command that the microversion has."""
        minor = int(self._version.partition(".")[2])
        for row in rows:
            if not row.since <= minor <= (row.until or NEWEST):
                continue
            if "{group}" in row.words:
                self.names["group"] = self.shown("demo", "server", "group", "show", "sg1")
            self.openstack(row.who, *row.words.format(**self.names).split())
            if row.words.endswith("--wait s1") and "create" in row.words:
                self.names["server"] = self.shown("demo", "server", "show", "s1")

    def found(self) -> dict[str, str]:
        """The ids that plain requests need."""
        self.names |= {
            "flavor": self.shown("admin", "flavor", "show", "c1"),
            "port": self.shown("demo", "port", "list", "--server", "s1", column="ID"),
            "request": self.shown("demo", "server", "event", "list", "s1", column="Request ID"),
            "hypervisor": self.shown("admin", "hypervisor", "show", "sim-0001"),
        }
        return self.names


async def plain_requests(url: str, cloud: TestCloud, names: dict[str, str]) -> None:
    """GETS and WRONG at every microversion. What comes back is the proxy's to judge."""
    found = cloud.identity
    tokens = {who: await found.token(who) for who in ("admin", "demo")}
    names = names | {"project": found.users["demo"].project_id}
    async with aiohttp.ClientSession(base_url=url) as session:

        async def ask(minor: int, who: str, method: str, path: str, body: Any = None) -> None:
            headers = {
                "X-Auth-Token": tokens[who],
                "OpenStack-API-Version": f"compute 2.{minor}",
                "X-OpenStack-Nova-API-Version": f"2.{minor}",
            }
            target = "/v2.1" + path.format(**names)
            async with session.request(method, target, json=body, headers=headers) as answer:
                await answer.read()

        for minor in range(1, NEWEST + 1):
            # Together: the proxy answers one in 40 ms (small packets), and many in the same time.
            asked = [ask(minor, _asker(path), "GET", path) for path in GETS]
            await asyncio.gather(*asked, *(ask(minor, _asker(rest[1]), *rest) for rest in WRONG))


def _asker(path: str) -> str:
    """Who asks: servers and keypairs are a user's."""
    return "demo" if path.startswith(("/servers", "/os-keypairs", "/os-server-groups")) else "admin"


@contextlib.contextmanager
def _postgres() -> Iterator[EmbeddedPostgres]:
    # Paths of sockets are short.
    folder = Path(tempfile.mkdtemp(prefix="moorage-contract-"))
    server = EmbeddedPostgres(folder / "data", FAST)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


@contextlib.asynccontextmanager
async def _cloud(postgres: EmbeddedPostgres, folder: Path) -> AsyncIterator[TestCloud]:
    postgres.create("contract")
    migrations.upgrade(postgres.url("contract"))
    database = Database(postgres.url("contract"))
    await database.open()
    try:
        async with identity(postgres.url(), folder, images=True) as found:
            unlimited = dict.fromkeys(("quota__instances", "quota__cores", "quota__ram"), -1)
            async with running_cloud(database, found, **unlimited) as cloud:
                yield cloud
    finally:
        await database.close()


async def run(suite: Suite, folder: Path) -> int:
    """The whole run; the exit status."""
    began = time.monotonic()
    with _postgres() as postgres:
        async with _cloud(postgres, folder / "identity") as cloud:
            proxy = Proxy(suite, cloud.cloud.url("compute"), folder)
            addresses = Addresses(
                compute=f"{proxy.url}/v2.1",
                placement=cloud.cloud.url("placement"),
                network=cloud.cloud.url("network"),
            )
            await cloud.identity.publish(addresses, REGION)
            made = Drive(cloud.identity, folder)
            for version in VERSIONS:
                say(f"[{time.monotonic() - began:4.0f} s] openstack at {version}")
                await asyncio.to_thread(made.at, version)
                if version == VERSIONS[0]:
                    await asyncio.to_thread(made.shared)
                await asyncio.to_thread(made.round, COMMANDS)
                if version == VERSIONS[-1]:
                    say(f"[{time.monotonic() - began:4.0f} s] plain requests at 2.1 to 2.{NEWEST}")
                    await plain_requests(proxy.url, cloud, await asyncio.to_thread(made.found))
                await asyncio.to_thread(made.round, LAST)
            await asyncio.to_thread(made.end)
            requests, findings, operations = await asyncio.to_thread(proxy.end)
    for finding in [f for f in findings if (f["kind"], f["where"]) in FALSE]:
        findings.remove(finding)
        say(f"left out {finding['where']}: {FALSE[finding['kind'], finding['where']]}")
    for finding in findings:
        say(f"FINDING {finding['kind']} {finding['where']}: {finding['detail']} ({finding['request']})")
    for failure in made.failed:
        say(f"FAILED {failure}")
    seen = sum(bool(row["seen"]) for row in operations)
    say(f"{requests} requests, {seen} operations, {len(findings)} findings")
    return int(bool(findings or made.failed))


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(prog="make contract", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--suites", type=Path, default=Path("../shared/conformance"), help="folder of nova-contract"
    )
    parser.add_argument(
        "--venv", type=Path, default=Path.home() / ".cache/moorage/contract", help="where nova is, or goes"
    )
    given = parser.parse_args()
    suite = Suite((given.suites / "nova-contract").absolute(), given.venv.absolute())
    if not (suite.folder / "check_proxy.py").exists():
        say(f"make contract: there is no {suite.folder}, and the suite is no part of this project: name the folder that "
            "holds nova-contract in CONFORMANCE")  # fmt: skip
        return 2
    log.configure(level="ERROR")
    prepare(suite)
    with tempfile.TemporaryDirectory(prefix="moorage-contract-") as folder:
        return asyncio.run(run(suite, Path(folder)))


if __name__ == "__main__":
    raise SystemExit(main())
