"""What a server asks of its host."""

from __future__ import annotations

import msgspec


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The needs of one server, independent of any host.

    `resources` maps resource classes to amounts in the class's unit (MEMORY_MB in MiB, DISK_GB in
    GiB). `physical_networks` are names as operators write them; every one must reach the host.
    `excluded` maps hosts that refused this server in an earlier attempt to the reason they gave.
    `together` are the hosts of which one must be taken, those of the servers that this one belongs with (None:
    no such wish); `apart` are those that must not be taken, because of servers it has to be kept from. `drawn`
    adds to the scores of hosts, towards or away from them, in units of a weigher's whole range.
    """

    resources: dict[str, int]
    availability_zone: str | None = None
    physical_networks: tuple[str, ...] = ()
    required_traits: tuple[str, ...] = ()
    forbidden_traits: tuple[str, ...] = ()
    requested_host: str | None = None
    excluded: dict[str, str] = {}
    together: tuple[str, ...] | None = None
    apart: tuple[str, ...] = ()
    drawn: dict[str, float] = {}
