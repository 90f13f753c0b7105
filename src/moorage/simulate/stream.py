"""What is asked of a cloud: streams of arrivals from files, and made-up times for streams that have none.

JSON  a list of arrivals, fields as in `model.Arrival`
CSV   a row each: the same fields by name (`required`, `forbidden`, `physical_networks` with spaces between), a
      column for each resource class in capitals, and `numa`: over how many providers VCPU and MEMORY_MB are
      spread in equal parts; or the columns of the published trace (see `_from_trace`)
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from moorage.simulate.errors import BadFile
from moorage.simulate.model import Arrival, World

TRACE_COLUMNS = ["flavor_vcpus", "flavor_ram", "numa", "strategy", "group", "domain"]
_LISTS = ("required", "forbidden", "physical_networks")
_NUMBERS = ("at", "lifetime")
_TRACE_POLICIES = {"fault_domain": "fault-domain"}


def load(path: Path) -> list[Arrival]:
    """Read a stream, in the order of time; raises BadFile."""
    try:
        if path.suffix == ".csv":
            found = list(_from_rows(path))
        else:
            found = msgspec.json.decode(path.read_bytes(), type=list[Arrival])
        _check(found)
    except (OSError, msgspec.DecodeError, ValueError) as error:
        raise BadFile(f"{path}: {error}") from error
    return sorted(found, key=lambda arrival: arrival.at)


def of_consumers(world: World) -> list[Arrival]:
    """The servers that a dumped cloud held, to be placed anew: what each took in all, in the order of creation."""
    found = []
    for number, consumer in enumerate(world.consumers):
        totals: dict[str, int] = {}
        for amounts in consumer.allocations.values():
            for name, amount in amounts.items():
                totals[name] = totals.get(name, 0) + amount
        found.append(Arrival(id=consumer.uuid, at=float(number), resources=totals))
    return found


def timed(arrivals: Iterable[Arrival], *, seed: int, per_hour: float, hours: float | None) -> list[Arrival]:
    """The same arrivals as a Poisson process, `per_hour` of them, each staying `hours` on average (exponential).

    With `hours` None they stay. The order is kept.
    """
    draw = random.Random(seed)
    now, found = 0.0, []
    for arrival in arrivals:
        now += draw.expovariate(per_hour / 3600)
        stays = None if hours is None else draw.expovariate(1 / (hours * 3600))
        found.append(msgspec.structs.replace(arrival, at=now, lifetime=stays))
    return found


def _from_rows(path: Path) -> Iterator[Arrival]:
    with path.open(newline="") as stream:
        reader = csv.DictReader(stream)
        trace = list(reader.fieldnames or []) == TRACE_COLUMNS
        for line, row in enumerate(reader, 2):
            try:
                fields = _of_trace(row, line - 1) if trace else _of_row(row, line - 1)
                yield msgspec.convert(fields, Arrival)
            except (msgspec.ValidationError, ValueError) as error:
                raise ValueError(f"line {line}: {error}") from error


def _of_row(row: dict[str, str], number: int) -> dict[str, Any]:
    fields: dict[str, Any] = {"id": str(number)}
    resources: dict[str, int] = {}
    for name, text in row.items():
        if not text:
            continue
        if name.isupper():
            resources[name] = int(text)
        elif name in _LISTS:
            fields[name] = text.split()
        elif name in _NUMBERS:
            fields[name] = float(text)
        elif name != "numa":
            fields[name] = text
    return {**fields, **_spread(resources, int(row.get("numa") or 0))}


def _of_trace(row: dict[str, str], number: int) -> dict[str, Any]:
    """The trace gives cores and GiB. Its groups are server groups, its strategies their policies; a group is
    known by its number and its strategy, as numbers come again with another one.
    """
    resources = {"VCPU": int(row["flavor_vcpus"]), "MEMORY_MB": int(row["flavor_ram"]) * 1024}
    fields: dict[str, Any] = {"id": str(number), "at": float(number), **_spread(resources, int(row["numa"]))}
    policy = row["strategy"]
    if policy:
        fields |= {"policy": _TRACE_POLICIES.get(policy, policy), "group": f"{policy}:{row['group']}"}
        fields |= {"domain": row["domain"]} if row["domain"] else {}
    return fields


def _spread(resources: dict[str, int], nodes: int) -> dict[str, Any]:
    """CPUs and memory in equal parts over so many providers (0: wherever they are); the rest wherever it is."""
    if not nodes:
        return {"resources": resources}
    part = {}
    for name in ("VCPU", "MEMORY_MB"):
        amount = resources.pop(name, 0)
        if amount % nodes:
            raise ValueError(f"numa: {amount} {name} cannot be spread over {nodes} nodes in equal parts")
        if amount:
            part[name] = amount // nodes
    return {"resources": resources, "parts": [{"resources": part}] * nodes, "isolate": nodes > 1}


def _check(arrivals: list[Arrival]) -> None:
    seen: set[str] = set()
    for number, arrival in enumerate(arrivals, 1):
        if arrival.id in seen:
            raise ValueError(f"arrival {number}: id: {arrival.id} is there twice")
        seen.add(arrival.id)
        if (arrival.policy is None) != (arrival.group is None):
            raise ValueError(f"arrival {number}: group and policy belong together")
        for resources in (arrival.resources, *(part.resources for part in arrival.parts)):
            if not all(amount > 0 for amount in resources.values()):
                raise ValueError(f"arrival {number}: resources: amounts are above zero")
        if not arrival.totals():
            raise ValueError(f"arrival {number}: resources: nothing is asked for")
