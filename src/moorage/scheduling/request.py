"""What a server asks of its host."""

from __future__ import annotations

import msgspec


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The needs of one server, independent of any host.

    `resources` maps resource classes to amounts in the class's unit (MEMORY_MB in MiB, DISK_GB in
    GiB). `physical_networks` are names as operators write them; every one must reach the host.
    `excluded` maps hosts that refused this server in an earlier attempt to the reason they gave.
    """

    resources: dict[str, int]
    availability_zone: str | None = None
    physical_networks: tuple[str, ...] = ()
    required_traits: tuple[str, ...] = ()
    forbidden_traits: tuple[str, ...] = ()
    requested_host: str | None = None
    excluded: dict[str, str] = {}
