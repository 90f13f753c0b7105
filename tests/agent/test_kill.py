"""``kill -9`` of an agent's process at every point of every kind of command: the next process goes on as if nothing had
happened.

Kinds are the wire's own, and points are what an undisturbed run of the command passes (``mortal.py``): a new kind, or
one that does more, is killed there too. So each is in every state that a guest can be in before it.
"""

import asyncio
import contextlib
import hashlib
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.wire.coding import PAYLOADS
from moorage.wire.messages import BootImage, DestroyGuest, GuestPayload, Result, SpawnGuest, StopGuest, Vif
from support.agent_server import PATIENCE, AgentServer

_ANY: dict[Any, Any] = {str: "x", int: 1, bool: False}
CONTENT = bytes(1 << 20)
IMAGE = BootImage(
    id="i", url="/i", hash_algo="sha256", hash_value=hashlib.sha256(CONTENT).hexdigest(), size=len(CONTENT)
)


def vif(guest: str) -> Vif:
    return Vif(
        port_id=f"{guest}-p0", mac="fa:16:3e:00:00:01", network_id="n", iface="tap0", vif_type="simulated"
    )


def of_kind(kind: type[GuestPayload], guest: str) -> GuestPayload:
    """A command of a kind for a guest, with what it must have; no guest's system is waited for."""
    fields = msgspec.structs.fields(kind)
    values = {f.name: _ANY[f.type] for f in fields if f.required}
    fitting = {"vifs": (vif(guest),), "image": IMAGE, "memory_mb": 32, "timeout": 1, "server_id": guest}
    return kind(**{**values, **{f.name: fitting[f.name] for f in fields if f.name in fitting}})


BEFORE: dict[str, Any] = {
    "no guest": lambda _: [],
    "running": lambda guest: [of_kind(SpawnGuest, guest)],
    "stopped": lambda guest: [of_kind(SpawnGuest, guest), StopGuest(server_id=guest, mode="hard")],
}


class Host:
    """A host whose agent is a program, one life after the other."""

    def __init__(self, server: AgentServer, name: str, folder: Path, process: Any) -> None:
        self.server, self.name, self.folder = server, name, folder
        self._process = process
        self._pid = 0

    async def begin(self, point: int = -1, operation: str = "none") -> None:
        """Begin a life that ends at a point of the operation's command."""
        self._process.stdin.write(f"{point} {operation}\n".encode())
        self._pid = await self._told()

    async def end(self) -> None:
        """Tell it to stop."""
        os.kill(self._pid, signal.SIGTERM)
        assert await self.ended() == 0

    async def ended(self) -> int:
        """How this life ended."""
        return await self._told()

    async def _told(self) -> int:
        async with asyncio.timeout(PATIENCE):
            return int(await self._process.stdout.readline())

    async def prepare(self, guest: str, before: str) -> None:
        """Bring the guest into the state before."""
        for number, payload in enumerate(BEFORE[before](guest)):
            await self.server.result(await self.send(payload, f"{guest} {number}"))

    async def send(self, payload: GuestPayload, operation: str) -> str:
        return await self.server.send_when_known(
            self.name, payload, operation=f"{self.name} {operation}".replace(" ", "-")
        )

    async def settled(self) -> None:
        """Nothing is unfinished or untold in the journal."""
        count = "SELECT count(*) FROM commands WHERE result IS NULL OR acknowledged = 0"
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.closing(
                    sqlite3.connect(self.folder / "journal.sqlite", timeout=PATIENCE)
                ) as db:
                    if db.execute(count).fetchone() == (0,):
                        return
                await asyncio.sleep(0.02)

    def points(self) -> list[str]:
        """What this life has passed of the command."""
        return (self.folder / "points").read_text().split()

    def guest(self, guest: str) -> dict[str, Any] | None:
        """What there is of a guest: its record, or its folder and QEMU's processes; ``boots`` where they are counted."""
        record, folder = (self.folder / "guests" / name for name in (f"{guest}.json", guest))
        if record.exists():
            return dict(msgspec.json.decode(record.read_bytes()))
        if not folder.exists():
            return None
        lines = [line for line in qemus(self.folder) if f"guest={guest}," in f"{line},".replace(" ", ",")]
        power = "running" if lines else "shutdown"
        return {
            "files": sorted(f.name for f in folder.iterdir()),
            "power_state": power,
            "processes": len(lines),
        }


@contextlib.asynccontextmanager
async def host_of(server: AgentServer, name: str, folder: Path, hypervisor: str) -> AsyncIterator[Host]:
    options = {
        "control_url": server.url,
        "host": name,
        "state_dir": folder,
        "enroll_token": await server.ticket(name),
        "hypervisor": hypervisor,
        "datapath": "simulated",
        "poll_wait": 5,
    }
    cache = folder / "images"
    cache.mkdir(parents=True)
    (cache / f"sha256-{IMAGE.hash_value}").write_bytes(CONTENT)  # as if downloaded
    with folder.with_suffix(".log").open("wb") as told:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.agent.mortal",
            *(f"--set={name}={value}" for name, value in options.items()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=told,
        )
        try:
            yield Host(server, name, folder, process)
        finally:
            process.kill()
            await process.wait()
            for path in folder.glob("guests/*/qemu.pid"):  # of a test that failed
                with contextlib.suppress(OSError, ValueError):
                    os.kill(int(path.read_text()), signal.SIGKILL)


def qemus(folder: Path) -> list[str]:
    """Command lines of the host's QEMU processes: those that have a file of it open."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended since
            line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if line.startswith("qemu-system") and any(f.is_relative_to(folder) for f in files_of(path)):
                found.append(line)
    return found


def files_of(process: Path) -> Iterator[Path]:
    for descriptor in (process / "fd").iterdir():
        with contextlib.suppress(OSError):  # closed since
            yield descriptor.readlink()


def without(guest: str, told: Result | dict[str, Any] | None) -> Any:
    """What is the same for every guest: all but its name, its command's, and how often it has booted."""
    plain = msgspec.to_builtins(told)
    for name in ("command_id", "operation", "boots"):
        if plain is not None:
            plain.pop(name, None)
    return msgspec.json.decode(msgspec.json.encode(plain).replace(guest.encode(), b"GUEST"))


async def killed_everywhere(host: Host, kind: type[GuestPayload], before: str) -> None:
    """The same command for one guest after the other, the agent killed at another point each time."""
    await host.begin(-1, f"{host.name}-undisturbed")
    await host.prepare("undisturbed", before)
    expected = await host.server.result(await host.send(of_kind(kind, "undisturbed"), "undisturbed"))
    await host.settled()
    left = host.guest("undisturbed")
    await host.server.result(await host.send(DestroyGuest(server_id="undisturbed"), "remove"))
    await host.end()
    points = host.points()  # now that the last one is passed too: it comes after what the journal says
    # What ends a guest and starts it does so a second time, where it had not come to an end.
    again = {"power_off", "power_on"} <= set(points)
    assert left is None or "power_on" not in points or left["power_state"] == "running"
    await host.begin(0, f"{host.name}-guest00")
    for number, point in enumerate(points):
        guest = f"guest{number:02}"
        await host.prepare(guest, before)
        await host.settled()
        sent = await host.send(of_kind(kind, guest), guest)
        assert await host.ended() == -signal.SIGKILL
        assert host.points() == [*points[:number], point]

        # The life that goes on with this guest is the one that is killed at the next.
        await host.begin(number + 1, f"{host.name}-guest{number + 1:02}")
        result = await host.server.result(sent)
        # What is asked now comes after all that was unfinished, and what was untold.
        await host.server.result(await host.send(StopGuest(server_id="nobody"), f"after {guest}"))
        await host.settled()
        found = host.guest(guest)
        await host.server.result(await host.send(DestroyGuest(server_id=guest), f"remove {guest}"))
        where = f"{before}, killed after {point}"
        assert without(guest, result) == without("undisturbed", expected), where
        assert without(guest, found) == without("undisturbed", left), where
        assert len(host.server.results[sent]) == 1, where
        if found is not None and left is not None:
            assert found.get("boots", 0) - left.get("boots", 0) in ({0, 1} if again else {0}), where
            if found["power_state"] == "running":
                port = vif(guest).port_id
                told = [e.kind for _, e in host.server.events if e.data.get("port_id") == port]
                assert "port.plugged" in told, where
    await host.end()
    assert list((host.folder / "guests").iterdir()) == []
    assert qemus(host.folder) == []


@pytest.mark.parametrize("kind", PAYLOADS)
async def test_an_agent_killed_at_any_point_of_a_command_goes_on_as_if_nothing_had_happened(
    server: AgentServer, tmp_path: Path, kind: str
) -> None:
    await in_each_state(server, tmp_path, kind, "simulated", BEFORE)


@pytest.mark.skipif(
    shutil.which("qemu-system-x86_64") is None or shutil.which("qemu-img") is None,
    reason="QEMU is not installed (apt install qemu-system-x86 qemu-utils)",
)
@pytest.mark.parametrize("kind", PAYLOADS)
async def test_so_does_one_whose_guests_are_real(server: AgentServer, tmp_path: Path, kind: str) -> None:
    # A guest is made from nothing, and everything else is done to one that runs.
    before = "no guest" if PAYLOADS[kind] is SpawnGuest else "running"
    await in_each_state(server, tmp_path, kind, "qemu", [before])


async def in_each_state(
    server: AgentServer, folder: Path, kind: str, hypervisor: str, states: Iterable[str]
) -> None:
    """On hosts side by side."""

    async def all_points(before: str) -> None:
        name = before.replace(" ", "-")
        async with host_of(server, name, folder / name, hypervisor) as host:
            await killed_everywhere(host, PAYLOADS[kind], before)

    async with asyncio.TaskGroup() as hosts:
        for before in states:
            hosts.create_task(all_points(before))
