"""What happens when, from a seed alone: pure, so that the same seed asks for the same things at the same times.

A step carries a seed of its own for what is chosen when it is due (which server, which process). It is chosen from what
there is by then, in a fixed order; that depends on timing, and so a replay is as exact as timing allows.
"""

import random
from collections.abc import Mapping

import msgspec

# Relative frequencies.
ACTIONS: Mapping[str, int] = {
    "boot": 10,
    "boot_on_port": 4,
    "boot_many": 2,
    "boot_and_delete": 3,
    "delete_server": 9,
    "stop_server": 4,
    "start_server": 4,
    "reboot_server": 4,
    "create_network": 1,
    "delete_network": 1,
    "create_port": 3,
    "delete_port": 2,
    "look": 8,
    "bad_request": 4,
}
FAULTS: Mapping[str, int] = {
    "kill_api": 3,
    "kill_conductor": 4,
    "kill_agents": 4,
    "freeze_api": 2,
    "freeze_conductor": 3,
    "freeze_agents": 3,
    "stop_conductor": 1,
    "restart_postgres_fast": 1,
    "restart_postgres_immediate": 1,
    "fail_over_postgres": 1,
    "sever_connections": 3,
    "cut_agents_off": 2,
    "lose_agents": 1,
    "storm": 3,
}

# Where two of the hosts are real ones.
REAL_FAULTS: Mapping[str, int] = {"kill_real_agent": 3, "freeze_real_agent": 2, "lose_real_agents": 1}


class Due(msgspec.Struct, frozen=True):
    """``at``: seconds after the beginning."""

    at: float
    what: str
    seed: int


def plan(seed: int, seconds: float, *, every: float, kinds: Mapping[str, int], stream: str) -> list[Due]:
    """Steps about ``every`` seconds; ``stream`` tells independent sequences of one seed apart."""
    chance = random.Random(f"{seed}/{stream}")
    found = []
    at = chance.uniform(0, every)
    while at < seconds:
        what = chance.choices(list(kinds), weights=list(kinds.values()))[0]
        found.append(Due(round(at, 3), what, chance.getrandbits(32)))
        at += chance.uniform(0.3, 1.7) * every
    return found


def covering(seed: int, seconds: float, *, every: float, kinds: Mapping[str, int], stream: str) -> list[Due]:
    """The same, each kind at least once where there is room: a short run sees every fault."""
    found = plan(seed, seconds, every=every, kinds=kinds, stream=stream)
    order = list(kinds)
    random.Random(f"{seed}/{stream}/order").shuffle(order)
    return [
        msgspec.structs.replace(due, what=order[number]) if number < len(order) else due
        for number, due in enumerate(found)
    ]
