"""Versions of definitions: how an operation that an earlier release began goes on in this one.

A row names its kind, version and step. A conductor takes the operations whose kind and version it knows: its own
definitions, and the earlier versions for which they have a rule. Others are left to a conductor that knows them.
What is taken over by a rule gets the names of the new version with its first record.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from moorage.core.errors import MoorageError
from moorage.operations.definition import Definition, Earlier
from moorage.operations.model import FORWARD, Operation

KEPT = "_names"
"""In an operation's data: new name of a step -> the name under which hosts have heard of it."""


class BegunEarlier(MoorageError):
    """The release that began it did what this one does not go on with; it is undone."""

    status = 409
    code = "operation.begun_earlier"


class Catalogue:
    """The definitions of a process, by kind."""

    def __init__(self, definitions: Iterable[Definition]) -> None:
        self.definitions: dict[str, Definition] = {}
        for definition in definitions:
            if definition.kind in self.definitions:
                raise ValueError(
                    f"{definition.kind} is defined twice: earlier versions are rules of the newest"
                )
            self.definitions[definition.kind] = definition

    def knows(self, kind: str, version: int) -> bool:
        """Whether an operation of that kind and version can be driven here."""
        definition = self.definitions.get(kind)
        return definition is not None and (version == definition.version or version in definition.earlier)

    @property
    def known(self) -> list[str]:
        """Every kind and version that can be driven, as ``queue.claim`` takes them."""
        return [
            name_of(d.kind, version) for d in self.definitions.values() for version in (d.version, *d.earlier)
        ]

    def of(self, op: Operation) -> Definition:
        """The definition that drives ``op``; raises KeyError for one that ``knows`` says no to."""
        if not self.knows(op.kind, op.version):
            raise KeyError(name_of(op.kind, op.version))
        return self.definitions[op.kind]


def name_of(kind: str, version: int) -> str:
    """How a kind and version are written in one word."""
    return f"{kind}/{version}"


def adopt(definition: Definition, op: Operation) -> bool:
    """Give an operation of an earlier version the names of this one; whether it is to be undone.

    Nothing is written: the next record does. A conductor that dies before leaves the row as it was.
    """
    rule: Earlier = definition.earlier[op.version]
    op.data = {_renamed(rule, name, op.data): value for name, value in op.data.items()}
    op.data[KEPT] = {new: old for old, new in rule.steps.items()} | op.data.get(KEPT, {})
    op.step = rule.steps.get(op.step, op.step)
    if op.undo_to is not None:
        op.undo_to = rule.steps.get(op.undo_to, op.undo_to)
    op.version = definition.version
    return rule.unwind and op.direction == FORWARD


def _renamed(rule: Earlier, name: str, data: Mapping[str, Any]) -> str:
    new = rule.steps.get(name, name)
    # Two old steps may have become one: the result under its own name is the one that the new step reads.
    return name if new != name and new in data else new


class Release(msgspec.Struct, frozen=True):
    """One line of the file of what was released: a kind, a version, and the steps it had."""

    kind: str
    version: int
    steps: tuple[str, ...]


def release_of(definition: Definition) -> Release:
    """A definition as it is released."""
    return Release(definition.kind, definition.version, tuple(s.name for s in definition.steps))


def broken(definitions: Iterable[Definition], released: Iterable[Release]) -> list[str]:
    """What would become of operations that earlier releases began: each sentence is one that nobody goes on with."""
    found = {d.kind: d for d in definitions}
    sentences = []
    for line in released:
        definition = found.get(line.kind)
        if definition is None:
            sentences.append(f"{line.kind}: was released and has no definition any more")
        elif line.version == definition.version:
            now = release_of(definition).steps
            if now != line.steps:
                sentences.append(
                    f"{line.kind} version {line.version} was released with the steps {', '.join(line.steps)} and has "
                    f"{', '.join(now)}: give it version {line.version + 1} and say in `earlier` how {line.version} goes on"
                )
        elif line.version not in definition.earlier:
            sentences.append(f"{line.kind} version {line.version}: `earlier` has no rule for it")
        else:
            rule = definition.earlier[line.version]
            lost = [s for s in line.steps if rule.steps.get(s, s) not in release_of(definition).steps]
            sentences += [
                f"{line.kind} version {line.version}: step {s} leads nowhere in version {definition.version}"
                for s in lost
            ]
    return sentences
