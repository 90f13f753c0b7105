"""What the policy of a server group asks of one more member's host, from where the others are."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

SOFT = 4.0
"""What one member's presence counts for in a ranking: more than all that is free."""


class Company(msgspec.Struct, frozen=True):
    """The fields of `Request` of these names."""

    together: tuple[str, ...] | None = None
    apart: tuple[str, ...] = ()
    drawn: dict[str, float] = {}


def company(policy: str, members: Mapping[str, int], *, most: int = 1) -> Company:
    """Return what a policy asks, given how many members each host has.

    `most` is how many members an anti-affinity group may have on a host. The policies are `affinity`,
    `anti-affinity`, `soft-affinity` and `soft-anti-affinity`; raises KeyError for another. Without members
    nothing is asked.
    """
    if not members:
        return Company()
    if policy == "affinity":
        return Company(together=tuple(sorted(members)))
    if policy == "anti-affinity":
        return Company(apart=tuple(sorted(host for host, count in members.items() if count >= most)))
    sign = {"soft-affinity": SOFT, "soft-anti-affinity": -SOFT}[policy]
    return Company(drawn={host: sign * count for host, count in sorted(members.items())})
