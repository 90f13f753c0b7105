"""What is asked of the search, and what it answers: values.

Source of the semantics: the Placement API, microversion 1.39. The un-suffixed group may spread over a tree; a
suffixed group comes from one provider.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

from moorage.placement.model import Allocations


class RequestGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Resources and conditions that belong together.

    `required` and `member_of` are conjunctions of alternatives: each inner set must be met by one of its
    members. `in_tree` is the id of any provider of the only tree that may be used.
    """

    suffix: str = ""
    resources: dict[str, int] = {}
    required: tuple[frozenset[str], ...] = ()
    forbidden: frozenset[str] = frozenset()
    member_of: tuple[frozenset[str], ...] = ()
    not_member_of: frozenset[str] = frozenset()
    in_tree: str | None = None

    @property
    def conditions(self) -> tuple[Any, ...]:
        """What is asked of providers beside resources; equal for groups that the same providers may serve."""
        return (
            bool(self.suffix), self.required, self.forbidden, self.member_of, self.not_member_of, self.in_tree,
        )  # fmt: skip

    @property
    def key(self) -> tuple[Any, ...]:
        """The whole group but for its suffix; equal for groups that are interchangeable."""
        return tuple(self.resources.items()), self.conditions


class Query(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A whole request. `nested=False` is the API before 1.29: one provider of a tree at most."""

    groups: tuple[RequestGroup, ...]
    isolate: bool = False
    same_subtree: tuple[frozenset[str], ...] = ()
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    nested: bool = True

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Equal for queries with the same answer."""
        groups = tuple((group.suffix, group.key) for group in self.groups)
        return groups, self.isolate, self.same_subtree, self.root_required, self.root_forbidden, self.nested


class Candidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One way to serve a request: `mappings` says which providers serve which group's suffix.

    `rendered` is for faces that show it: what they made of it, kept as long as the candidate is.
    """

    root: str
    allocations: Allocations
    mappings: dict[str, list[str]]
    rendered: dict[Any, bytes] = {}
