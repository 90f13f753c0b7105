"""Guests in QEMU.

A guest is a folder: ``guest.json`` (the record, written first), ``disk.qcow2`` (an overlay on the cached image),
``config.iso``, ``console.log``, ``qemu.pid``, ``qmp.sock``. QEMU makes itself a daemon in a session of its own, so
a guest does not notice when its agent ends; the next agent finds it by its pid file and asks it over QMP.
"""

import asyncio
import os
import platform
import re
import shutil
from pathlib import Path

import msgspec

from moorage.agent.config import Settings
from moorage.agent.errors import GuestFailure, Refused, UnknownGuest
from moorage.agent.hypervisors import configdrive, process, qmp
from moorage.agent.hypervisors.base import OnEnded
from moorage.agent.hypervisors.images import FORMATS, ImageCache, info
from moorage.agent.link import Download
from moorage.core.log import get_logger
from moorage.wire.messages import GuestState, PowerState, SpawnGuest, Vif

log = get_logger(__name__)
_CONSOLE_BYTES = 100 * 1024
_STARTED = 60.0  # seconds a QEMU may take to make itself a daemon
_QUIT = 5.0
_ID = re.compile(r"^[0-9A-Za-z_.-]{1,64}$")


class Guest(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a guest: all that is needed to start it again, and no secret."""

    server_id: str
    name: str
    vcpus: int
    memory_mb: int
    vifs: tuple[Vif, ...] = ()
    kernel: str | None = None
    ramdisk: str | None = None
    kernel_args: str = "console=ttyS0"
    has_config_drive: bool = False
    ready: bool = False


class QemuHypervisor:
    """See ``base.Hypervisor``."""

    type = "QEMU"
    version = 0

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = settings.state_dir / "guests"
        self._images: ImageCache
        self._watches: dict[str, process.Watch] = {}
        self.on_ended: OnEnded | None = None
        self.program = f"qemu-system-{platform.machine()}"
        self.accelerator = "tcg"

    async def start(self, download: Download) -> None:
        """Find QEMU, choose the accelerator, and ask every guest that runs how it is."""
        for program in (self.program, "qemu-img"):
            if shutil.which(program) is None:
                message = f"{program} is not installed: install QEMU, or set hypervisor = simulated"
                raise GuestFailure(message)
        _, out, _ = await process.run(self.program, "--version")
        self.version = parse_version(out)
        self.accelerator = choose_accelerator(self._settings.accelerator)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._images = ImageCache(self._settings.image_dir or self._settings.state_dir / "images", download)
        for state in await self.guests():
            self._watch(state.server_id)
            if state.power_state == "running":
                try:
                    status = await qmp.ask(self._path(state.server_id), "query-status")
                    log.info("guest.found", server=state.server_id, status=status["status"])
                except GuestFailure as error:
                    log.warning("guest.mute", server=state.server_id, error=error.message)

    async def stop(self) -> None:
        """Guests run on."""
        for server_id in list(self._watches):
            self._unwatch(server_id)

    async def define(self, request: SpawnGuest) -> None:
        """Record, fetch the image, make the disks. What an earlier attempt has finished is kept."""
        if request.image is None:
            message = "this host boots guests from images only"
            raise Refused(message, code="agent.no_image")
        folder = self._path(request.server_id)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        guest = Guest(
            server_id=request.server_id,
            name=request.name,
            vcpus=request.vcpus,
            memory_mb=request.memory_mb,
            vifs=request.vifs,
            has_config_drive=request.config_drive is not None,
        )
        if (folder / "guest.json").exists() and self._record(request.server_id).ready:
            return
        self._write(guest)
        if request.config_drive is not None:
            await asyncio.to_thread(configdrive.write, request.config_drive, folder / "config.iso")
        image = request.image
        base = await self._images.fetch(image)
        await _overlay(base, image.disk_format, folder / "disk.qcow2", request.disk_gb)
        if image.kernel is not None:
            ramdisk = await self._images.fetch(image.ramdisk) if image.ramdisk else None
            guest = msgspec.structs.replace(
                guest,
                kernel=str(await self._images.fetch(image.kernel)),
                ramdisk=str(ramdisk) if ramdisk else None,
                kernel_args=image.kernel_args or guest.kernel_args,
            )
        self._write(msgspec.structs.replace(guest, ready=True))

    async def power_on(self, server_id: str) -> None:
        """Start QEMU unless it runs."""
        guest = self._record(server_id)
        folder = self._path(server_id)
        if self._pid(server_id) is not None:
            return
        (folder / "qemu.pid").unlink(missing_ok=True)
        (folder / "qmp.sock").unlink(missing_ok=True)
        arguments = command_line(guest, self._settings, self.accelerator)
        status, _, err = await process.run(self.program, *arguments, cwd=folder, timeout=_STARTED)
        if status != 0:
            told = "; ".join(err.strip().splitlines())[:500] or f"exit status {status}"
            message = f"QEMU did not start guest {server_id}: {told}"
            raise GuestFailure(message, code="agent.qemu_failed")
        found = await qmp.ask(folder, "query-status")
        if found["status"] not in {"running", "prelaunch"}:
            message = f"guest {server_id} is {found['status']} right after its start"
            raise GuestFailure(message, code="agent.qemu_failed")
        self._watch(server_id)

    async def power_off(self, server_id: str, *, soft: bool, timeout: float) -> None:
        """ACPI first when soft, then quit, then SIGKILL."""
        self._record(server_id)
        self._unwatch(server_id)
        folder = self._path(server_id)
        pid = self._pid(server_id)
        if pid is not None and soft:
            await self._tell(folder, "system_powerdown")
            if await process.ended(pid, timeout):
                pid = None
        if pid is not None:
            await self._tell(folder, "quit")
            if not await process.ended(pid, _QUIT):
                process.kill(pid)
                if not await process.ended(pid, _QUIT):
                    message = f"QEMU of guest {server_id} (pid {pid}) cannot be ended"
                    raise GuestFailure(message)
        (folder / "qemu.pid").unlink(missing_ok=True)
        (folder / "qmp.sock").unlink(missing_ok=True)

    async def undefine(self, server_id: str) -> None:
        """Remove the folder; the record goes last, so that an interrupted removal is found and repeated."""
        folder = self._path(server_id)
        if folder.exists():
            for path in folder.iterdir():
                if path.name != "guest.json":
                    path.unlink()
            await asyncio.to_thread(shutil.rmtree, folder)

    async def vifs(self, server_id: str) -> tuple[Vif, ...]:
        """See base."""
        return self._record(server_id).vifs

    async def console(self, server_id: str, length: int | None) -> str:
        """At most the last 100 KiB of the console."""
        self._record(server_id)
        path = self._path(server_id) / "console.log"
        return await asyncio.to_thread(_tail, path, length)

    async def guests(self) -> list[GuestState]:
        """By their folders and processes; nothing is asked of a guest."""
        found: list[GuestState] = []
        for path in sorted(self._folder.glob("*/guest.json")):
            server_id = path.parent.name
            state: PowerState = "shutdown" if self._pid(server_id) is None else "running"
            found.append(GuestState(server_id, state))
        return found

    def _watch(self, server_id: str) -> None:
        self._unwatch(server_id)
        pid = self._pid(server_id)
        if pid is None:
            self._ended(server_id)
        else:
            self._watches[server_id] = process.Watch(pid, lambda: self._ended(server_id))

    def _unwatch(self, server_id: str) -> None:
        watch = self._watches.pop(server_id, None)
        if watch is not None:
            watch.close()

    def _ended(self, server_id: str) -> None:
        self._watches.pop(server_id, None)
        log.info("guest.ended", server=server_id)
        if self.on_ended is not None:
            self.on_ended(server_id)

    async def _tell(self, folder: Path, command: str) -> None:
        try:
            await qmp.ask(folder, command)
        except GuestFailure as error:
            # A QEMU that hangs, or has just ended: what follows finds out which.
            log.info("guest.deaf", folder=str(folder), command=command, error=error.message)

    def _path(self, server_id: str) -> Path:
        if not _ID.match(server_id) or server_id in {".", ".."}:
            message = f"{server_id!r} is not a server id"
            raise Refused(message)
        return self._folder / server_id

    def _pid(self, server_id: str) -> int | None:
        return process.running(self._path(server_id) / "qemu.pid", f"guest={server_id}")

    def _record(self, server_id: str) -> Guest:
        try:
            content = (self._path(server_id) / "guest.json").read_bytes()
        except FileNotFoundError:
            message = f"guest {server_id} is not on this host"
            raise UnknownGuest(message) from None
        return msgspec.json.decode(content, type=Guest)

    def _write(self, guest: Guest) -> None:
        path = self._path(guest.server_id) / "guest.json"
        new = path.with_suffix(".new")
        with new.open("wb") as file:
            file.write(msgspec.json.encode(guest))
            file.flush()
            os.fsync(file.fileno())
        new.rename(path)


def command_line(guest: Guest, settings: Settings, accelerator: str) -> list[str]:
    """QEMU's arguments; paths are relative to the guest's folder, where it is started."""
    accel = f"tcg,tb-size={settings.tb_size}" if accelerator == "tcg" else accelerator
    cpu = settings.cpu_model or ("qemu64" if accelerator == "tcg" else "host")
    line = ["-name", f"guest={guest.server_id}", "-machine", settings.machine, "-accel", accel, "-cpu", cpu]
    line += ["-smp", str(guest.vcpus), "-m", str(guest.memory_mb), "-nodefaults", "-no-user-config"]
    line += ["-display", "none", "-daemonize", "-pidfile", "qemu.pid", "-serial", "file:console.log"]
    line += ["-qmp", "unix:qmp.sock,server=on,wait=off", "-device", "virtio-rng-pci"]
    if re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", guest.server_id):
        line += ["-uuid", guest.server_id]
    line += ["-drive", "file=disk.qcow2,if=virtio,format=qcow2"]
    if guest.has_config_drive:
        line += ["-drive", "file=config.iso,if=virtio,format=raw,readonly=on"]
    if guest.kernel is not None:
        line += ["-kernel", guest.kernel, "-append", guest.kernel_args]
        line += ["-initrd", guest.ramdisk] if guest.ramdisk else []
    for number, vif in enumerate(guest.vifs):
        if vif.vif_type != "ovs":
            continue
        # vnet_hdr=off: with it, TCP from guests has no checksums on Open vSwitch's userspace datapath.
        line += ["-netdev", f"tap,id=n{number},ifname={vif.iface},script=no,downscript=no,vnet_hdr=off"]
        line += ["-device", f"virtio-net-pci,netdev=n{number},mac={vif.mac},romfile="]
    return line


def choose_accelerator(wanted: str) -> str:
    """``auto`` is kvm only where the CPU shows vmx or svm: a kvm device that opens does not prove that guests boot."""
    if wanted != "auto":
        return wanted
    flags = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    usable = bool(flags & {"vmx", "svm"}) and os.access("/dev/kvm", os.R_OK | os.W_OK)
    return "kvm" if usable else "tcg"


def parse_version(text: str) -> int:
    """7.2.22 as 7002022, the form of the hypervisors API; 0 when there is none."""
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    return int(found[1]) * 1_000_000 + int(found[2]) * 1_000 + int(found[3]) if found else 0


async def _overlay(base: Path, base_format: str, disk: Path, disk_gb: int) -> None:
    if disk.exists():
        return
    virtual = (await info(base, base_format)).virtual_size
    if disk_gb and virtual > disk_gb * 2**30:
        message = f"the image needs {virtual} bytes of disk, the flavor gives {disk_gb} GiB"
        raise Refused(message, code="agent.disk_too_small")
    new = disk.with_suffix(".new")
    size = [f"{disk_gb}G"] if disk_gb else []
    status, _, err = await process.run(
        "qemu-img", "create", "-q", "-f", "qcow2", "-F", FORMATS[base_format], "-b", base, new, *size
    )
    if status != 0:
        message = f"the disk could not be made: {err.strip()}"
        raise GuestFailure(message)
    new.rename(disk)


def _tail(path: Path, length: int | None) -> str:
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - _CONSOLE_BYTES))
            text = file.read(_CONSOLE_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""
    lines = text.splitlines(keepends=True)
    return "".join(lines if length is None else lines[max(0, len(lines) - length) :])
