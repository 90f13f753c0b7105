import asyncio
import hashlib
import io
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest
from aiohttp import StreamReader, web
from pycdlib import PyCdlib

from moorage.agent import identity
from moorage.agent.config import Settings
from moorage.agent.datapaths.simulated import SimulatedDatapath
from moorage.agent.errors import GuestFailure, ImageFailure, Refused, UnknownGuest
from moorage.agent.guests import Guests
from moorage.agent.hypervisors import process, qmp
from moorage.agent.hypervisors.images import ImageCache
from moorage.agent.hypervisors.qemu import (
    Guest,
    QemuHypervisor,
    choose_accelerator,
    command_line,
    parse_version,
)
from moorage.agent.link import Transport
from moorage.wire.messages import (
    BootImage,
    ConfigDrive,
    ConsoleOutput,
    DestroyGuest,
    ImageRef,
    RebootGuest,
    SpawnGuest,
    StartGuest,
    StopGuest,
    Vif,
)
from support.authority import AUTHORITY, nobody, shown_by

needs_qemu = pytest.mark.skipif(
    shutil.which("qemu-system-x86_64") is None or shutil.which("qemu-img") is None,
    reason="QEMU is not installed (apt install qemu-system-x86 qemu-utils)",
)


KEY = identity.new_key()
HOST = shown_by(KEY, AUTHORITY.sign_host(identity.request_for(KEY), "h").pem)


class Images:
    """What the control plane's images are to a host: bytes by id, for those with a certificate."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.served: list[str] = []
        self.transport: Transport

    async def get(self, request: web.Request) -> web.Response:
        if not request.get_extra_info("peercert"):
            return web.Response(status=401)
        found = self.files.get(request.match_info["id"])
        self.served.append(request.match_info["id"])
        return web.Response(status=404) if found is None else web.Response(body=found)

    def download(self, path: str) -> AbstractAsyncContextManager[StreamReader]:
        return self.transport.stream(path, HOST)

    def add(self, name: str, content: bytes, disk_format: str = "raw") -> ImageRef:
        self.files[name] = content
        return ImageRef(
            id=name,
            url=f"/{name}",
            hash_algo="sha512",
            hash_value=hashlib.sha512(content).hexdigest(),
            size=len(content),
            disk_format=disk_format,
        )


@pytest.fixture
async def images() -> AsyncIterator[Images]:
    made = Images()
    app = web.Application()
    app.router.add_get("/{id}", made.get)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=AUTHORITY.server_context())
    await site.start()
    async with Transport(f"https://127.0.0.1:{runner.addresses[0][1]}") as made.transport:
        yield made
    await runner.cleanup()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    # A deep folder on purpose: its sockets' paths would be too long to connect to by name.
    folder = tmp_path / ("deep" * 20)
    folder.mkdir()
    return Settings(control_url="https://127.0.0.1:1", host="h", state_dir=folder, datapath="simulated")


def boot_image(ref: ImageRef) -> BootImage:
    return msgspec.convert(msgspec.to_builtins(ref), BootImage)


def spawn(image: BootImage | None, **changes) -> SpawnGuest:
    request = SpawnGuest(
        server_id="8a2f1a50-5d0f-4a37-9e0e-0f1f2a3b4c5d",
        name="one",
        hostname="one",
        project_id="p",
        user_id="u",
        vcpus=1,
        memory_mb=32,
        disk_gb=1,
        image=image,
        vifs=(
            Vif(port_id="p1", mac="fa:16:3e:00:00:01", network_id="n", iface="tap1", vif_type="simulated"),
        ),
        config_drive=ConfigDrive(meta_data={"uuid": "g", "hostname": "one"}, user_data="aGVsbG8="),
    )
    return msgspec.structs.replace(request, **changes)


def qemus(settings: Settings) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            files = [str(fd.readlink()) for fd in (path / "fd").iterdir()]
        except OSError:
            continue
        if path.name != str(os.getpid()) and any(f.startswith(str(settings.state_dir)) for f in files):
            found.append(path.name)
    return found


@needs_qemu
async def test_a_guest_lives_through_its_agents_and_leaves_nothing(settings, images):
    image = boot_image(images.add("disk", bytes(1 << 20)))
    request = spawn(image)
    server = request.server_id
    first = Guests(QemuHypervisor(settings), SimulatedDatapath())
    await first.hypervisor.start(images.download)
    assert first.hypervisor.version > 5_000_000
    done = await first.spawn(request)
    try:
        assert [e.kind for e in done.events] == ["port.plugged"]
        pid = first.hypervisor._pid(server)
        assert pid is not None
        await first.hypervisor.stop()

        second = Guests(QemuHypervisor(settings), SimulatedDatapath())
        await second.hypervisor.start(images.download)
        assert [(s.server_id, s.power_state) for s in await second.hypervisor.guests()] == [
            (server, "running")
        ]
        assert (await qmp.ask(settings.state_dir / "guests" / server, "query-status"))["running"]
        await second.spawn(request)
        assert second.hypervisor._pid(server) == pid
        assert images.served == ["disk"]

        # There is no system in the guest to obey ACPI: a soft stop ends as a hard one.
        await second.stop(StopGuest(server_id=server, timeout=1))
        assert [s.power_state for s in await second.hypervisor.guests()] == ["shutdown"]
        await second.start(StartGuest(server_id=server))
        started = second.hypervisor._pid(server)
        await second.reboot(RebootGuest(server_id=server, hard=True))
        assert second.hypervisor._pid(server) not in {None, pid, started}
        # Ended without being told to, it is told of; a stop that was asked for was not.
        ended: list[str] = []
        told = asyncio.Event()
        second.hypervisor.on_ended = lambda server_id: (ended.append(server_id), told.set())
        process.kill(second.hypervisor._pid(server))
        await asyncio.wait_for(told.wait(), 120)
        assert ended == [server]
        await second.start(StartGuest(server_id=server))
        await second.stop(StopGuest(server_id=server, mode="hard"))
        assert ended == [server]
        await second.start(StartGuest(server_id=server))
        assert (await second.console(ConsoleOutput(server_id=server))).data == {"output": ""}
    finally:
        await first.destroy(DestroyGuest(server_id=server))
    assert list((settings.state_dir / "guests").iterdir()) == []
    assert qemus(settings) == []
    await first.destroy(DestroyGuest(server_id=server))


@needs_qemu
async def test_what_the_guest_finds_on_its_disks(settings, images):
    request = spawn(boot_image(images.add("disk", bytes(1 << 20))), disk_gb=2)
    hypervisor = QemuHypervisor(settings)
    await hypervisor.start(images.download)
    await hypervisor.define(request)
    folder = settings.state_dir / "guests" / request.server_id
    out = subprocess.run(
        ["qemu-img", "info", "--output=json", folder / "disk.qcow2"], check=True, capture_output=True
    ).stdout
    told = msgspec.json.decode(out)
    assert told["virtual-size"] == 2 * 2**30
    assert Path(told["backing-filename"]).is_relative_to(settings.state_dir / "images")
    iso = PyCdlib()
    iso.open(str(folder / "config.iso"))
    assert iso.pvd.volume_identifier.strip() == b"config-2"
    for name, content in [("user_data", b"hello"), ("network_data.json", b"{}")]:
        out = io.BytesIO()
        iso.get_file_from_iso_fp(out, rr_path=f"/openstack/latest/{name}")
        assert out.getvalue() == content
    iso.close()
    await hypervisor.undefine(request.server_id)
    assert not folder.exists()


@needs_qemu
async def test_a_disk_smaller_than_the_image_is_refused(settings, images):
    path = settings.state_dir / "big.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", path, "3G"], check=True)
    content = path.read_bytes()
    hypervisor = QemuHypervisor(settings)
    await hypervisor.start(images.download)
    with pytest.raises(Refused, match="the flavor gives 1 GiB"):
        await hypervisor.define(spawn(boot_image(images.add("big", content, "qcow2"))))


@needs_qemu
async def test_an_image_that_names_a_file_of_the_host_is_never_opened(settings, images):
    path = settings.state_dir / "evil.qcow2"
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", "/etc/hostname", path, "1M"],
        check=True,
    )
    ref = images.add("evil", path.read_bytes(), "qcow2")
    cache = ImageCache(settings.state_dir / "images", images.download)
    with pytest.raises(ImageFailure, match="refers to another file"):
        await cache.fetch(ref)
    assert not [p for p in (settings.state_dir / "images").iterdir() if p.suffix != ".lock"]


@needs_qemu
async def test_a_guest_that_qemu_cannot_start_says_why(settings, images):
    broken = msgspec.structs.replace(settings, machine="no-such-machine")
    guests = Guests(QemuHypervisor(broken), SimulatedDatapath())
    await guests.hypervisor.start(images.download)
    request = spawn(boot_image(images.add("disk", bytes(1024))))
    with pytest.raises(GuestFailure, match="machine type"):
        await guests.spawn(request)
    await guests.destroy(DestroyGuest(server_id=request.server_id))
    assert list((settings.state_dir / "guests").iterdir()) == []


@needs_qemu
async def test_a_server_without_image_and_an_id_that_is_a_path_are_refused(settings, images):
    hypervisor = QemuHypervisor(settings)
    await hypervisor.start(images.download)
    with pytest.raises(Refused, match="from images only"):
        await hypervisor.define(spawn(None))
    for bad in ("../x", "..", "a/b", ""):
        with pytest.raises(Refused, match="not a server id"):
            await hypervisor.vifs(bad)
    with pytest.raises(UnknownGuest):
        await hypervisor.vifs("nobody")


async def test_one_download_serves_all_who_wait_for_it(tmp_path, images):
    ref = images.add("disk", b"x" * 100_000)
    caches = [ImageCache(tmp_path, images.download), ImageCache(tmp_path, images.download)]
    paths = await asyncio.gather(*(c.fetch(ref) for c in caches for _ in range(5)))
    assert images.served == ["disk"]
    assert {p.read_bytes() for p in paths} == {b"x" * 100_000}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"hash_value": "0" * 128}, "sha512 of what came"),
        ({"size": 10}, "larger than the 10 bytes"),
        ({"hash_algo": "crc32"}, "no checksum"),
        ({"hash_value": "../../x"}, "no checksum"),
        ({"disk_format": "vmdk"}, "format vmdk"),
        ({"url": "/nothing"}, "could not be downloaded"),
    ],
)
async def test_an_image_that_is_not_what_it_should_be_is_not_kept(tmp_path, images, change, match):
    ref = msgspec.structs.replace(images.add("disk", b"x" * 1000), **change)
    with pytest.raises(ImageFailure, match=match):
        await ImageCache(tmp_path, images.download).fetch(ref)
    assert not [p for p in tmp_path.iterdir() if p.suffix != ".lock"]


async def test_an_image_without_a_certificate_is_a_failure(tmp_path, images):
    def download(path):
        return images.transport.stream(path, nobody())

    with pytest.raises(ImageFailure, match="401"):
        await ImageCache(tmp_path, download).fetch(images.add("disk", b"x"))


def test_qemus_arguments(settings):
    guest = Guest(
        server_id="8a2f1a50-5d0f-4a37-9e0e-0f1f2a3b4c5d",
        name="one",
        vcpus=2,
        memory_mb=96,
        kernel="/images/k",
        ramdisk="/images/r",
        kernel_args="console=ttyS0 quiet",
        has_config_drive=True,
        vifs=(Vif(port_id="p1", mac="fa:16:3e:00:00:01", network_id="n", iface="tapp1", vif_type="ovs"),),
    )
    line = " ".join(command_line(guest, settings, "tcg"))
    assert "-accel tcg,tb-size=32 -cpu qemu64 -smp 2 -m 96" in line
    assert "-kernel /images/k -append console=ttyS0 quiet -initrd /images/r" in line
    assert "tap,id=n0,ifname=tapp1,script=no,downscript=no,vnet_hdr=off" in line
    assert "mac=fa:16:3e:00:00:01" in line
    assert "-cpu host" in " ".join(command_line(guest, settings, "kvm"))


def test_the_accelerator_is_kvm_only_where_the_cpu_has_it():
    flags = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    auto = choose_accelerator("auto")
    assert auto == "tcg" or flags & {"vmx", "svm"}
    assert choose_accelerator("kvm") == "kvm"


def test_versions():
    assert parse_version("QEMU emulator version 7.2.22 (Debian)") == 7_002_022
    assert parse_version("none") == 0


async def test_a_process_that_only_has_the_pid_is_not_the_guest(tmp_path):
    pidfile = tmp_path / "pid"
    assert process.running(pidfile, "guest=x") is None
    pidfile.write_text("not a number")
    assert process.running(pidfile, "guest=x") is None
    child = subprocess.Popen(["sleep", "600"])
    pidfile.write_text(str(child.pid))
    assert process.running(pidfile, "guest=x") is None
    assert process.running(pidfile, "600") == child.pid
    assert not await process.ended(child.pid, 0.01)
    process.kill(child.pid)
    assert await process.ended(child.pid, 60)
    assert process.running(pidfile, "600") is None  # a zombie by now
    child.wait()
    assert await process.ended(child.pid, 0)
    process.kill(child.pid)
