"""What the machine has, for the report; every figure can be set by configuration."""

import functools
import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from moorage.agent.config import Settings


class Facts(msgspec.Struct, frozen=True):
    """CPUs, MiB of memory, GiB of disk, architecture."""

    vcpus: int
    memory_mb: int
    disk_gb: int
    cpu_arch: str


def of_machine(settings: Settings) -> Facts:
    """The machine's figures, where configuration gives none."""
    return Facts(
        vcpus=settings.vcpus or os.cpu_count() or 1,
        memory_mb=settings.memory_mb or _memory_mb(),
        disk_gb=settings.disk_gb or shutil.disk_usage(settings.state_dir).total // 2**30,
        cpu_arch=platform.machine(),
    )


@functools.cache
def agent_version() -> str:
    """The version of the installed package; "0" when run from a bare checkout."""
    try:
        return version("moorage")
    except PackageNotFoundError:
        return "0"


def _memory_mb() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 1024
    message = "/proc/meminfo has no MemTotal: set memory_mb"
    raise OSError(message)
