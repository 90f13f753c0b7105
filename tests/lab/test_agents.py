"""The agents of a lab's hosts: enrolled over the control plane's socket, they boot guests that a probe reaches."""

import asyncio
import hashlib
import itertools
import shutil

import pytest

from moorage.lab import image, model, probe, up
from moorage.lab.names import names_of
from moorage.wire.messages import (
    BootImage,
    ConfigDrive,
    ConsoleOutput,
    DestroyGuest,
    Result,
    SpawnGuest,
    Vif,
)
from support.agent_server import AgentServer
from support.lab import Network, leftovers
from tests.support.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("lab_machine")]

SERVER = "9b1d7c1e-5a3c-4c8e-9d55-0c2a6f1d0001"


def spawn(port: probe.ProbePort, guest: image.GuestImage, digest: str) -> SpawnGuest:
    return SpawnGuest(
        server_id=SERVER,
        name="web",
        hostname="web",
        project_id="p",
        user_id="u",
        vcpus=1,
        memory_mb=128,
        disk_gb=1,
        image=BootImage(
            id="guest",
            url="http://127.0.0.1:1/never-asked",
            hash_algo="sha256",
            hash_value=digest,
            size=guest.disk.stat().st_size,
            disk_format="qcow2",
        ),
        vifs=(
            Vif(
                port_id=port.port_id,
                mac=port.mac,
                network_id="net",
                iface=f"tap{port.port_id[:11]}",
                vif_type="ovs",
                mtu=1442,
            ),
        ),
        config_drive=ConfigDrive(
            meta_data={
                "uuid": SERVER,
                "hostname": "web.example",
                "public_keys": {"mine": "ssh-rsa AAAA me\n"},
            }
        ),
    )


async def result_of(server: AgentServer, command: str) -> Result:
    async with asyncio.timeout(300):
        while command not in server.results:
            await asyncio.sleep(0.05)
    return server.results[command][-1]


async def console_says(server: AgentServer, line: str) -> None:
    """The guest answers on the network a moment before it says so on its console."""
    async with asyncio.timeout(300):
        for attempt in itertools.count():
            command = await server.send(
                "r1h2", ConsoleOutput(server_id=SERVER), operation=f"console {line} {attempt}"
            )
            if line in (await result_of(server, command)).data["output"]:
                return
            await asyncio.sleep(0.5)


async def run_guest(server: AgentServer, state, guest_image, record) -> None:
    network = await asyncio.to_thread(Network, record)
    port, client = network.port("aaaaaaaa-guest", 20), network.port("bbbbbbbb-client", 21)
    digest = hashlib.sha256(guest_image.disk.read_bytes()).hexdigest()
    shutil.copyfile(guest_image.disk, state / "images" / f"sha256-{digest}")

    command = await server.send("r1h2", spawn(port, guest_image, digest), operation="boot")
    result = await result_of(server, command)
    assert result.outcome == "succeeded", result
    assert [host.guests for host in up.status(state).hosts] == [0, 1, 0, 0]

    plugged = await asyncio.to_thread(probe.plug, state, "r2h1", client)
    assert await asyncio.to_thread(plugged.ping, "10.9.0.20", 240)
    await asyncio.to_thread(until, lambda: plugged.echo("10.9.0.20"), "an echo")
    await console_says(server, "moorage guest web ready 10.9.0.20")
    await console_says(server, "moorage guest web, keys: 1")

    host = up.host_named(state, "r1h2")
    result = await result_of(
        server, await server.send("r1h2", DestroyGuest(server_id=SERVER), operation="delete")
    )
    assert result.outcome == "succeeded", result
    assert host.guests() == []
    assert "tap" not in host.vsctl("list-ports", "br-int")


async def test_an_agent_boots_and_deletes_a_guest_and_goes_with_the_lab(
    database_url, short_path, guest_image
):
    state, loop = short_path / "lab", asyncio.get_running_loop()
    async with AgentServer(database_url) as server:

        def enroll(host: str) -> str:
            return asyncio.run_coroutine_threadsafe(server.ticket(host), loop).result(30)

        def build() -> up.Record:
            return up.up(model.default_file(), state, control_url=server.url, enroll=enroll)

        try:
            record = await asyncio.to_thread(build)
            async with asyncio.timeout(300):  # four interpreters start at once
                while len({host for host, _ in server.reports}) < 4:
                    await asyncio.sleep(0.1)
            reports = dict(server.reports)
            assert reports["r2h1"].physical_networks == ("physnet1", "rack2")
            assert (reports["r2h1"].vcpus, reports["r2h1"].memory_mb) == (4, 1024)
            assert reports["r2h1"].chassis == "r2h1"
            await run_guest(server, state, guest_image, record)

            before = await asyncio.to_thread(up.status, state)
            await asyncio.to_thread(build)  # enrolled hosts need no token again, and nothing is started twice
            assert await asyncio.to_thread(up.status, state) == before
        finally:
            await asyncio.to_thread(up.down, state)
    assert leftovers(state) == []
    assert names_of(state).namespaces() == []
