"""Clouds from files: a dump, a description, a table of hosts, or the servers of a published trace.

JSON  what `moorage placement dump` wrote (it has `providers`)
YAML  a description: `hosts`, a list of patterns

    hosts:
      - name: "r{rack}h{number}"       # also {n}, which counts through all racks
        racks: 4
        per_rack: 10
        zones: [az1, az2]              # taken in turn, rack by rack
        inventory: {DISK_GB: 2000, VCPU: {total: 64, allocation_ratio: 4.0}}
        traits: [HW_CPU_X86_AVX2]
        children:
          - {name: "numa{i}", count: 2, inventory: {MEMORY_MB: 131072}, traits: [HW_NUMA_ROOT]}

CSV   one host a row: `name`, optional `zone` and `rack`, and a column for each resource class; or the columns
      CPU1,RAM1,CPU2,RAM2 of the trace (two NUMA nodes: free cores, free memory in GiB)
"""

from __future__ import annotations

import csv
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from moorage.simulate.errors import BadFile
from moorage.simulate.model import HostSpec, ProviderSpec, Stock, World

_IDS = uuid.UUID("7b1f2c64-3f0e-4f6e-9d0a-52d3e1a0c8b4")
"""Namespace of made-up ids: the same name always gets the same id."""
TRACE_COLUMNS = ["CPU1", "RAM1", "CPU2", "RAM2"]


class ChildPattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Children of each host. `{i}` counts them from 0."""

    name: str
    count: int = 1
    inventory: dict[str, int | Stock] = {}
    traits: list[str] = []


class HostPattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hosts that are alike."""

    name: str
    racks: int = 1
    per_rack: int = 1
    zones: tuple[str, ...] = ("nova",)
    inventory: dict[str, int | Stock] = {}
    traits: list[str] = []
    children: list[ChildPattern] = []


class Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A made-up cloud."""

    hosts: list[HostPattern]


def load(path: Path, *, racks: Path | None = None) -> World:
    """Read a cloud; raises BadFile. `racks` names the rack of each host of a trace, in its order."""
    try:
        if path.suffix == ".csv":
            return _from_rows(path, racks)
        if path.suffix in (".yaml", ".yml"):
            return described(msgspec.convert(yaml.safe_load(path.read_text()), Description))
        return msgspec.json.decode(path.read_bytes(), type=World)
    except (OSError, msgspec.DecodeError, yaml.YAMLError, ValueError) as error:
        raise BadFile(f"{path}: {error}") from error


def described(description: Description) -> World:
    """Make the cloud that a description describes. Raises ValueError for two hosts of one name."""
    hosts: list[HostSpec] = []
    providers: list[ProviderSpec] = []
    for pattern in description.hosts:
        for n in range(pattern.racks * pattern.per_rack):
            rack, number = divmod(n, pattern.per_rack)
            name = pattern.name.format(rack=rack, number=number, n=n)
            zone = pattern.zones[rack % len(pattern.zones)]
            hosts.append(HostSpec(name=name, zone=zone, rack=f"rack{rack}"))
            providers += _tree(name, f"rack{rack}", pattern)
    _no_twins(hosts)
    return World(hosts=hosts, providers=providers)


def _tree(name: str, rack: str | None, pattern: HostPattern) -> Iterator[ProviderSpec]:
    root = _id(name)
    yield ProviderSpec(
        uuid=root,
        name=name,
        inventories=_stocks(pattern.inventory),
        traits=pattern.traits,
        aggregates=[] if rack is None else [_id(f"rack:{rack}")],
    )
    for child in pattern.children:
        for i in range(child.count):
            title = f"{name}:{child.name.format(i=i)}"
            yield ProviderSpec(
                uuid=_id(title),
                name=title,
                parent_provider_uuid=root,
                inventories=_stocks(child.inventory),
                traits=child.traits,
            )


def _from_rows(path: Path, racks: Path | None) -> World:
    with path.open(newline="") as stream:
        reader = csv.DictReader(stream)
        columns = reader.fieldnames or []
        rows = list(reader)
    if list(columns) == TRACE_COLUMNS:
        return _from_trace(rows, _racks(racks))
    if "name" not in columns:
        raise ValueError(f"the first line has no column `name`: {','.join(columns)}")
    hosts: list[HostSpec] = []
    providers: list[ProviderSpec] = []
    for number, row in enumerate(rows, 2):
        rack = row.get("rack") or None
        hosts.append(HostSpec(name=row["name"], zone=row.get("zone") or "nova", rack=rack))
        amounts = {
            c: _whole(row[c], number, c) for c in columns if c not in ("name", "zone", "rack") and row[c]
        }
        providers += _tree(row["name"], rack, HostPattern(name=row["name"], inventory=dict(amounts)))
    _no_twins(hosts)
    return World(hosts=hosts, providers=providers)


def _from_trace(rows: list[dict[str, Any]], racks: list[str]) -> World:
    """Hosts with two NUMA nodes, each a provider of VCPU and MEMORY_MB; what the trace calls free is all there is."""
    hosts: list[HostSpec] = []
    providers: list[ProviderSpec] = []
    for n, row in enumerate(rows):
        name = f"host-{n}"
        hosts.append(HostSpec(name=name, rack=racks[n] if n < len(racks) else None))
        root = _id(name)
        providers.append(ProviderSpec(uuid=root, name=name))
        for node in (1, 2):
            cores = _whole(row[f"CPU{node}"], n + 2, f"CPU{node}")
            memory = _whole(row[f"RAM{node}"], n + 2, f"RAM{node}") * 1024
            given = {"VCPU": cores, "MEMORY_MB": memory}
            providers.append(
                ProviderSpec(
                    uuid=_id(f"{name}:numa{node}"),
                    name=f"{name}:numa{node}",
                    parent_provider_uuid=root,
                    inventories={rc: Stock(total=amount) for rc, amount in given.items() if amount},
                    traits=["HW_NUMA_ROOT"],
                )
            )
    return World(hosts=hosts, providers=providers)


def _racks(path: Path | None) -> list[str]:
    if path is None:
        return []
    with path.open(newline="") as stream:
        return [row["rack_id"] for row in csv.DictReader(stream)]


def _whole(text: str, line: int, column: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"line {line}: column {column}: a whole number, not {text!r}") from error


def _stocks(inventory: dict[str, int | Stock]) -> dict[str, Stock]:
    return {rc: Stock(total=given) if isinstance(given, int) else given for rc, given in inventory.items()}


def _no_twins(hosts: list[HostSpec]) -> None:
    seen: set[str] = set()
    for host in hosts:
        if host.name in seen:
            raise ValueError(
                f"two hosts are called {host.name}: does `name` lack {{rack}}, {{number}} or {{n}}?"
            )
        seen.add(host.name)


def _id(name: str) -> str:
    return str(uuid.uuid5(_IDS, name))
