"""The guest's first file system: busybox, a few kernel modules and our ``init``, as a gzipped newc cpio archive.

Written here instead of by cpio and depmod so that it needs neither tool nor root: the format is a header of hexadecimal
fields, the name and the bytes, and every kernel module names what it depends on in its own ``.modinfo`` section.
"""

from __future__ import annotations

import gzip
import io
import lzma
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from moorage.lab.errors import LabError
from moorage.lab.shell import run

#: Modules the guest loads, each after what it depends on.  Those built into the kernel are left out.
MODULES = (
    "virtio_pci",
    "virtio_net",
    "virtio_blk",
    "virtio_rng",
    "virtio_scsi",
    "ata_piix",
    "sd_mod",
    "sr_mod",
    "isofs",
    "vfat",
    "nls_ascii",
    "nls_iso8859_1",
    "nls_cp437",
    "evdev",
    "button",
    "8021q",
)

SCRIPTS = {"init": "init.sh", "etc/lease.sh": "lease.sh", "etc/acpi/PWRF/00000080": "power.sh"}

_DEPENDS = re.compile(rb"(?:^|\0)depends=([^\0]*)\0")


class Entry(msgspec.Struct, frozen=True):
    """One file of the archive; ``device`` is (major, minor) for a character device."""

    name: str
    mode: int
    content: bytes = b""
    device: tuple[int, int] = (0, 0)


def scripts() -> dict[str, bytes]:
    """The guest's own programs by their place in the archive."""
    here = Path(__file__).parent / "guest"
    return {place: (here / name).read_bytes() for place, name in SCRIPTS.items()}


def build(root: Path) -> bytes:
    """Make the archive from a folder holding the extracted kernel and busybox packages."""
    modules = kernel_modules(root)
    files: dict[str, tuple[int, bytes]] = {place: (0o755, content) for place, content in scripts().items()}
    files["bin/busybox"] = (0o755, _busybox(root).read_bytes())
    for library in _libraries(_busybox(root)):
        files[str(library).lstrip("/")] = (0o755, library.resolve().read_bytes())
    for name, content in modules.items():
        files[f"modules/{name}.ko"] = (0o644, content)
    order = "".join(f"{name}.ko\n" for name in modules)
    files["modules/order"] = (0o644, order.encode())
    return gzip.compress(archive(_entries(files)), compresslevel=6, mtime=0)


def _entries(files: Mapping[str, tuple[int, bytes]]) -> Iterator[Entry]:
    folders = {"dev", "proc", "sys"}
    for name in files:
        folders.update(str(parent) for parent in Path(name).parents if str(parent) != ".")
    for folder in sorted(folders):
        yield Entry(folder, stat.S_IFDIR | 0o755)
    yield Entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    for name, (mode, content) in files.items():
        yield Entry(name, stat.S_IFREG | mode, content)


def archive(entries: Iterator[Entry]) -> bytes:
    """Write entries in cpio's ``newc`` format."""
    out = io.BytesIO()
    for number, entry in enumerate((*entries, Entry("TRAILER!!!", 0)), start=1):
        name = entry.name.encode() + b"\0"
        fields = (
            number, entry.mode, 0, 0, 1, 0, len(entry.content), 0, 0, *entry.device, len(name), 0,
        )  # fmt: skip
        out.write(b"070701" + b"".join(b"%08X" % field for field in fields) + name)
        out.write(b"\0" * (-out.tell() % 4))
        out.write(entry.content)
        out.write(b"\0" * (-out.tell() % 4))
    return out.getvalue()


def kernel_modules(root: Path) -> dict[str, bytes]:
    """The modules the guest loads, uncompressed, in the order of loading."""
    found = {_module_name(path): path for path in root.glob("**/lib/modules/*/kernel/**/*.ko*")}
    if not found:
        raise LabError(f"the kernel package in {root} has no modules")
    ordered: dict[str, bytes] = {}
    for name in MODULES:
        _add_module(name, found, ordered)
    return ordered


def _add_module(name: str, found: Mapping[str, Path], ordered: dict[str, bytes]) -> None:
    if name in ordered or name not in found:  # not found: built into this kernel
        return
    content = _read_module(found[name])
    depends = _DEPENDS.search(content)
    for needed in depends.group(1).decode().split(",") if depends else []:
        if needed:
            _add_module(needed.replace("-", "_"), found, ordered)
    ordered[name] = content


def _module_name(path: Path) -> str:
    return path.name.partition(".")[0].replace("-", "_")


def _read_module(path: Path) -> bytes:
    content = path.read_bytes()
    return lzma.decompress(content) if path.suffix == ".xz" else content


def _busybox(root: Path) -> Path:
    for place in ("bin/busybox", "usr/bin/busybox"):
        if (root / place).is_file():
            return root / place
    raise LabError(f"the busybox package in {root} has no busybox program")


def _libraries(program: Path) -> list[Path]:
    """The shared libraries a program is linked with, and the loader, as this machine has them."""
    said = run("ldd", program)
    return [Path(place) for place in re.findall(r"(/\S+\.so\S*) \(0x", said)]
