"""``moorage lab image``: one small bootable qcow2 disk made of Debian packages, without root and without installing any.

The packages are fetched with ``apt-get download`` and unpacked into a folder: a kernel, busybox, and the tools that
make a bootable FAT disk.  The result is kept under the cache folder by a hash of all that went into it (the packages'
own checksums, our scripts, this recipe's version), so the next call takes a moment, and a newer kernel makes a new image.
"""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import struct
import tempfile
from pathlib import Path

import msgspec

from moorage.lab import initramfs
from moorage.lab.errors import CommandFailed, LabError, LabUnavailable
from moorage.lab.shell import Progress, quiet, run

IMAGE_NAME = "moorage-guest.qcow2"
#: Memory a guest of this image needs, MiB; with less the kernel does not unpack.
MIN_RAM_MB = 96

_RECIPE = 1
_DISK_BYTES = 32 * 1024 * 1024
_FIRST_SECTOR = 2048
_SECTOR = 512
_KERNEL_META = "linux-image-cloud-amd64"
_TOOLS = ("busybox", "syslinux", "syslinux-common", "mtools", "dosfstools")
_SYSLINUX_CFG = """DEFAULT guest
PROMPT 0
LABEL guest
  KERNEL vmlinuz
  INITRD guest.img
  APPEND console=ttyS0 quiet mitigations=off
"""


class Package(msgspec.Struct, frozen=True):
    """A package as apt would fetch it: its name and the checksum of its file."""

    name: str
    checksum: str


class GuestImage(msgspec.Struct, frozen=True):
    """A finished image: the bootable disk, and its kernel and first file system for direct boot."""

    disk: Path
    kernel: Path
    initrd: Path


def build_image(cache: Path, progress: Progress = quiet) -> GuestImage:
    """Return the guest image, building it when the cache has none of these inputs.

    ``cache`` is made when absent.  Raises LabUnavailable when the machine lacks apt or qemu-img, LabError when apt knows
    no such package (its lists may be empty).
    """
    _check_machine()
    packages = wanted_packages()
    home = cache / f"guest-{_key(packages)}"
    image = GuestImage(home / IMAGE_NAME, home / "vmlinuz", home / "guest.img")
    if image.disk.is_file():
        progress(f"guest image: {image.disk} (made earlier)")
        return image
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="making-") as folder:
        work = Path(folder)
        _build(work, packages, progress)
        _keep(work / "out", image)
    progress(f"guest image: {image.disk} ({image.disk.stat().st_size / 1e6:.1f} MB)")
    return image


def _keep(made: Path, image: GuestImage) -> None:
    """Put what was made in its place, unless another process was there first: guests may boot from that one by now."""
    home = image.disk.parent
    try:
        made.rename(home)
    except OSError:
        if not image.disk.is_file():
            shutil.rmtree(home)
            made.rename(home)


def wanted_packages() -> list[Package]:
    """The packages the image is made of, with the checksums apt knows for them; nothing is fetched."""
    said = run("apt-cache", "depends", "--important", _KERNEL_META)
    kernel = re.search(r"Depends: (linux-image-\S+)", said)
    if kernel is None:
        raise LabError(f"apt knows no package that {_KERNEL_META} depends on: run 'apt-get update'")
    try:
        said = run("apt-get", "download", "--print-uris", kernel.group(1), *_TOOLS)
    except CommandFailed as error:
        raise LabError(f"apt cannot fetch the image's packages: run 'apt-get update' ({error})") from error
    found = re.findall(r"^'\S+' ([^_\s]+)_\S+ \d+ (\S*)$", said, flags=re.MULTILINE)
    return [Package(name, checksum) for name, checksum in sorted(found)]


def _check_machine() -> None:
    missing = [
        f"no {program} (apt-get install {package})"
        for program, package in (("apt-get", "apt"), ("dpkg", "dpkg"), ("qemu-img", "qemu-utils"))
        if shutil.which(program) is None
    ]
    if platform.machine() != "x86_64":
        missing.append(f"the guest image is for x86_64, this machine is {platform.machine()}")
    if missing:
        raise LabUnavailable(missing)


def _key(packages: list[Package]) -> str:
    digest = hashlib.sha256(f"{_RECIPE} {_DISK_BYTES} {initramfs.MODULES} {_SYSLINUX_CFG}".encode())
    for package in packages:
        digest.update(f"{package.name} {package.checksum}\n".encode())
    for place, content in sorted(initramfs.scripts().items()):
        digest.update(place.encode() + content)
    return digest.hexdigest()[:16]


def _build(work: Path, packages: list[Package], progress: Progress) -> None:
    """Make ``work/out`` with the disk, the kernel and the first file system."""
    root, out = work / "root", work / "out"
    root.mkdir()
    out.mkdir()
    progress(f"guest image: fetching {len(packages)} packages with apt")
    run("apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", *[package.name for package in packages],
        cwd=work, timeout=600)  # fmt: skip
    progress("guest image: unpacking")
    for deb in sorted(work.glob("*.deb")):
        run("dpkg", "-x", deb, root, timeout=300)
    kernels = sorted((root / "boot").glob("vmlinuz-*"))
    if not kernels:
        raise LabError("the kernel package has no boot/vmlinuz-*")
    shutil.copyfile(kernels[-1], out / "vmlinuz")
    progress("guest image: making the disk")
    (out / "guest.img").write_bytes(initramfs.build(root))
    _make_disk(root, out, work / "disk.raw")
    run("qemu-img", "convert", "-q", "-f", "raw", "-O", "qcow2", work / "disk.raw", out / IMAGE_NAME)


def _make_disk(root: Path, out: Path, disk: Path) -> None:
    """A raw disk with one active FAT partition that syslinux boots from."""
    offset = _FIRST_SECTOR * _SECTOR
    with disk.open("wb") as file:
        file.truncate(_DISK_BYTES)
        file.write(_boot_record(_find(root, "**/mbr/mbr.bin").read_bytes()))
    config = out.parent / "syslinux.cfg"
    config.write_text(_SYSLINUX_CFG)
    tools = {"PATH": f"{root}/usr/bin:{root}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "MTOOLS_SKIP_CHECK": "1"}
    sectors = _DISK_BYTES // _SECTOR - _FIRST_SECTOR
    run(_find(root, "**/sbin/mkfs.fat"), "-F", "16", "-n", "MOORAGE", "--offset", str(_FIRST_SECTOR), disk,
        str(sectors // 2), env=tools)  # fmt: skip
    run("mcopy", "-i", f"{disk}@@{offset}", out / "vmlinuz", out / "guest.img", config, "::/", env=tools)
    run(_find(root, "**/bin/syslinux"), "--install", "--offset", str(offset), disk, env=tools)


def _boot_record(code: bytes) -> bytes:
    """A master boot record: the boot code, and a partition table of one active FAT16 partition."""
    sectors = _DISK_BYTES // _SECTOR - _FIRST_SECTOR
    # Cylinders, heads and sectors are set to the highest value: everything reads the two block numbers instead.
    partition = struct.pack("<B3sB3sII", 0x80, b"\xfe\xff\xff", 0x06, b"\xfe\xff\xff", _FIRST_SECTOR, sectors)
    return code[:440].ljust(446, b"\0") + partition + b"\0" * 48 + b"\x55\xaa"


def _find(root: Path, pattern: str) -> Path:
    found = sorted(path for path in root.glob(pattern) if path.is_file())
    if not found:
        raise LabError(f"the unpacked packages have no {pattern.rpartition('/')[2]}")
    return found[0]
