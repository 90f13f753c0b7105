"""What is between the hosts: a switch per rack and one spine that routes between racks.

    host r1h1 ─┐                                             ┌─ host r2h1
               ├─ switch-rack1 ── spine (routes) ── switch-rack2 ─┤
    host r1h2 ─┘                                             └─ host r2h2

Every box is a namespace.  In a rack's switch, the bridge ``under`` carries the hosts' tunnel addresses, and one bridge
for each physical network carries its frames, tags included (a Linux bridge without VLAN filtering passes them through).
A physical network of several racks is joined in the spine by a bridge; one with a gateway is routed by the spine.
"""

from __future__ import annotations

from moorage.lab import netns
from moorage.lab.model import Lab, PhysicalNetwork, Rack
from moorage.lab.names import Names

SPINE = "spine"
UNDERLAY = "under"


def switch_of(names: Names, rack: str) -> str:
    """The namespace of a rack's switch."""
    return names.namespace(f"switch-{rack}")


def build(lab: Lab, names: Names) -> None:
    """Make the switches and the spine; what is there already stays."""
    spine = names.namespace(SPINE)
    netns.create(spine, forwarding=True)
    for rack in lab.racks:
        netns.create(switch_of(names, rack.name))
        netns.bridge(switch_of(names, rack.name), UNDERLAY)
        _join_spine(names, rack, UNDERLAY, f"u-{rack.name}")
        netns.batch(spine, [f"addr replace {rack.gateway} dev u-{rack.name}"])
    for number, network in enumerate(lab.physical_networks):
        _build_physical(lab, names, network, number)


def plug_host(names: Names, rack: Rack, host: str) -> None:
    """Wire a host's namespace to its rack's switch: ``phy0`` for tunnels and ``p-NETWORK`` for each physical network."""
    space, switch = names.namespace(host), switch_of(names, rack.name)
    netns.connect(space, "phy0", switch, f"u-{host}")
    netns.batch(switch, [f"link set dev u-{host} master {UNDERLAY}"])
    for number, name in enumerate(rack.physical_networks):
        port = f"{number}-{host}"
        netns.connect(space, uplink(name), switch, port)
        netns.batch(switch, [f"link set dev {port} master {name}"])


def uplink(physical_network: str) -> str:
    """The host's link to a physical network."""
    return f"p-{physical_network}"


def _build_physical(lab: Lab, names: Names, network: PhysicalNetwork, number: int) -> None:
    racks = lab.racks_of(network.name)
    for rack in racks:
        netns.bridge(switch_of(names, rack.name), network.name)
    if len(racks) < 2 and network.gateway is None:
        return
    spine = names.namespace(SPINE)
    netns.bridge(spine, network.name)
    for rack in racks:
        link = f"{number}-{rack.name}"
        _join_spine(names, rack, network.name, link)
        netns.batch(spine, [f"link set dev {link} master {network.name}"])
    if network.gateway is not None:
        netns.batch(spine, [f"addr replace {network.gateway} dev {network.name}"])
        netns.offload_off(spine, network.name)


def _join_spine(names: Names, rack: Rack, bridge: str, link: str) -> None:
    """A cable from a bridge of the rack's switch to the spine, named ``link`` there and ``up-BRIDGE`` here."""
    switch = switch_of(names, rack.name)
    netns.connect(names.namespace(SPINE), link, switch, f"up-{bridge}")
    netns.batch(switch, [f"link set dev up-{bridge} master {bridge}"])
