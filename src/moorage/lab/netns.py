"""Network namespaces and what is in them, by the ``ip`` and ``ethtool`` programs.

Links are made inside their namespaces at once, so nothing of a lab ever appears in the machine's own.  Names follow the
words ``dev`` and ``name``: a name like ``b`` would be read as a keyword otherwise.
"""

from __future__ import annotations

from pathlib import Path

from moorage.lab.shell import run


def exists(namespace: str) -> bool:
    """True when the namespace is there."""
    return (Path("/run/netns") / namespace).exists()


def create(namespace: str, *, forwarding: bool = False) -> None:
    """Make a namespace with its loopback up, and with IPv4 forwarding when asked; nothing to do when it is there."""
    if not exists(namespace):
        run("ip", "netns", "add", namespace)
    batch(namespace, ["link set dev lo up"])
    if forwarding:
        inside(namespace, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")


def delete(namespace: str) -> None:
    """Remove a namespace and the links in it; its processes must have ended before."""
    if exists(namespace):
        run("ip", "netns", "del", namespace)


def batch(namespace: str, lines: list[str]) -> None:
    """Run several ``ip`` commands in a namespace, ending at the first that fails."""
    run("ip", "-n", namespace, "-batch", "-", stdin="".join(f"{line}\n" for line in lines))


def inside(namespace: str, *argv: str | Path, env: dict[str, str] | None = None, timeout: float = 60) -> str:
    """Run a program in a namespace to its end and return what it printed."""
    return run("ip", "netns", "exec", namespace, *argv, env=env, timeout=timeout)


def has_link(namespace: str, name: str) -> bool:
    """True when the namespace has a link of that name."""
    said = run("ip", "-n", namespace, "-oneline", "link", "show")
    return any(line.split()[1].rstrip(":").partition("@")[0] == name for line in said.splitlines())


def connect(namespace: str, name: str, other: str, other_name: str) -> None:
    """Join two namespaces by a veth pair unless they are, both ends up.

    Checksum offload is off on both: the userspace datapath passes packets on as they are, and those of a kernel that
    leaves checksums to the card would be dropped by the receiver.
    """
    if not has_link(namespace, name):
        batch(namespace, [f"link add name {name} type veth peer name {other_name} netns {other}"])
    for place, link in ((namespace, name), (other, other_name)):
        batch(place, [f"link set dev {link} up"])
        offload_off(place, link)


def offload_off(namespace: str, link: str) -> None:
    """Let the kernel compute checksums itself on a link."""
    inside(namespace, "ethtool", "-K", link, "tx", "off")


def bridge(namespace: str, name: str) -> None:
    """Make a Linux bridge that learns and floods like a plain switch, with nothing else of its own."""
    if has_link(namespace, name):
        return
    batch(namespace, [f"link add name {name} type bridge forward_delay 0", f"link set dev {name} up"])
