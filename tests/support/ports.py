"""Ports for programs that are told where to listen.

Not from the kernel's ephemeral range: whoever connects to anything, or asks for any port, is given one of those, and the
program that was to listen on it may still be starting. Those given here are kept for this process, against other runs on
the same machine too, by an abstract unix socket that is named after the port and lives as long as the process.
"""

import random
import socket
from collections.abc import Iterator
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on now and nobody else is given; raises StopIteration without any."""
    return [next(_PORTS) for _ in range(count)]


def _ports() -> Iterator[int]:
    first, last = map(int, _RANGE.read_text().split())
    known = [port for port in range(20_000, 65_000) if not first <= port <= last]
    random.SystemRandom().shuffle(known)
    return filter(_taken, known)


def _taken(port: int) -> bool:
    """Whether the port is ours from now on."""
    with socket.socket() as probe, socket.socket(socket.AF_UNIX) as mark:
        try:
            probe.bind(("127.0.0.1", port))
            mark.bind(f"\0moorage-test-port-{port}")
        except OSError:
            return False
        mark.detach()  # it is closed by the end of the process alone
        return True


_PORTS = _ports()
