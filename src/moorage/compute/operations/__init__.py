"""The long work on servers. One file an operation; each begins with its table of steps."""

from moorage.compute.operations.boot import BOOT
from moorage.compute.operations.delete import DELETE
from moorage.compute.operations.power import REBOOT, START, STOP

DEFINITIONS = (BOOT, DELETE, START, STOP, REBOOT)

__all__ = ["BOOT", "DEFINITIONS", "DELETE", "REBOOT", "START", "STOP"]
