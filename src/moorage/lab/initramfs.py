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

#: Modules the guest loads, by the list it reads: at once; to look for a config drive elsewhere; for the power button;
#: and those that are there for whoever asks. What is built into the kernel or not in it is left out.
MODULES = {
    "modules": ("virtio_pci", "virtio_net", "virtio_blk", "isofs"),
    "modules.late": (
        "virtio_scsi",
        "ata_piix",
        "sd_mod",
        "sr_mod",
        "vfat",
        "nls_cp437",
        "nls_ascii",
        "nls_iso8859_1",
    ),
    "modules.power": ("evdev", "button", "virtio_rng"),
    "modules.other": ("8021q",),
}

#: Folders that must be there before anything is mounted or written.
FOLDERS = ("dev", "mnt", "proc", "root/.ssh", "run", "sys", "tmp", "var/www", "etc")

SCRIPTS = {"init": "init.sh", "etc/lease.sh": "lease.sh", "etc/acpi/PWRF/00000080": "power.sh"}

_DEPENDS = re.compile(rb"(?:^|\0)depends=([^\0]*)\0")


class Entry(msgspec.Struct, frozen=True):
    """One file of the archive; ``device`` is (major, minor) for a character device."""

    name: str
    mode: int
    content: bytes = b""
    device: tuple[int, int] = (0, 0)


class Module(msgspec.Struct, frozen=True):
    """A kernel module and all others it needs, those that are loaded last first."""

    depends: tuple[str, ...]
    content: bytes


def scripts() -> dict[str, bytes]:
    """The guest's own programs by their place in the archive."""
    here = Path(__file__).parent / "guest"
    return {place: (here / name).read_bytes() for place, name in SCRIPTS.items()}


def build(root: Path) -> bytes:
    """Make the archive from a folder holding the extracted kernel and busybox packages."""
    busybox = _busybox(root)
    files = {place: (stat.S_IFREG | 0o755, content) for place, content in scripts().items()}
    files["bin/busybox"] = (stat.S_IFREG | 0o755, busybox.read_bytes())
    for applet in run(busybox, "--list").split():
        files.setdefault(f"bin/{applet}", (stat.S_IFLNK | 0o777, b"busybox"))
    for library in _libraries(busybox):
        files[str(library).lstrip("/")] = (stat.S_IFREG | 0o755, library.resolve().read_bytes())
    files["etc/passwd"] = (stat.S_IFREG | 0o644, b"root:x:0:0:root:/root:/bin/sh\n")
    files |= _module_files(root)
    return gzip.compress(archive(_entries(files)), compresslevel=6, mtime=0)


def _module_files(root: Path) -> dict[str, tuple[int, bytes]]:
    """The modules, what each depends on in the form modprobe reads, and the lists of what to load when."""
    release, modules = kernel_modules(root)
    home = f"lib/modules/{release}"
    contents = {f"{home}/{name}.ko": module.content for name, module in modules.items()}
    lines = [
        f"{name}.ko: {' '.join(f'{needed}.ko' for needed in module.depends)}"
        for name, module in modules.items()
    ]
    contents[f"{home}/modules.dep"] = "".join(f"{line}\n" for line in lines).encode()
    for place, names in MODULES.items():
        contents[f"etc/{place}"] = " ".join(name for name in names if name in modules).encode() + b"\n"
    return {place: (stat.S_IFREG | 0o644, content) for place, content in contents.items()}


def _entries(files: Mapping[str, tuple[int, bytes]]) -> Iterator[Entry]:
    folders = set(FOLDERS)
    for name in (*files, *FOLDERS):
        folders.update(str(parent) for parent in Path(name).parents if str(parent) != ".")
    for folder in sorted(folders):
        yield Entry(folder, stat.S_IFDIR | 0o755)
    yield Entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    for name, (mode, content) in files.items():
        yield Entry(name, mode, content)


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


def kernel_modules(root: Path) -> tuple[str, dict[str, Module]]:
    """The kernel's release, and the modules of MODULES with all they need, uncompressed."""
    found = {_module_name(path): path for path in root.glob("**/lib/modules/*/kernel/**/*.ko*")}
    if not found:
        raise LabError(f"the kernel package in {root} has no modules")
    some = next(iter(found.values())).parts
    release = some[some.index("kernel") - 1]
    modules: dict[str, Module] = {}
    for name in (name for names in MODULES.values() for name in names):
        _add_module(name, found, modules)
    return release, modules


def _add_module(name: str, found: Mapping[str, Path], modules: dict[str, Module]) -> list[str]:
    """Add a module and all it needs; returns it and them, the neediest first, as modprobe wants to read it."""
    if name not in found:  # built into this kernel
        return []
    if name not in modules:
        content = _read_module(found[name])
        said = _DEPENDS.search(content)
        direct = [
            word.replace("-", "_") for word in (said.group(1).decode().split(",") if said else []) if word
        ]
        depends: list[str] = []
        for needed in direct:
            for module in _add_module(needed, found, modules):
                if module in depends:
                    depends.remove(module)
                depends.append(module)
        modules[name] = Module(tuple(depends), content)
    return [name, *modules[name].depends]


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
