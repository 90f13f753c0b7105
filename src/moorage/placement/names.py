"""The vocabulary: resource classes and traits, standard ones from os-* libraries and custom ones stored."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
import os_resource_classes
import os_traits
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from moorage.core.errors import NotFound
from moorage.placement.changes import log_name_gone
from moorage.placement.errors import NameInUse, StandardName, UnknownNames
from moorage.placement.tables import inventories, provider_traits, resource_classes, traits
from moorage.store.database import Tx
from moorage.store.statement import Statement, text_param, texts_param

CUSTOM = re.compile(r"^CUSTOM_[A-Z0-9_]+\Z")
MAX_LENGTH = 255
SHARING_TRAIT = "MISC_SHARES_VIA_AGGREGATE"


class Name(msgspec.Struct, frozen=True):
    """A trait or resource class; `changed_at` is None for a standard one."""

    name: str
    changed_at: datetime | None = None


def normalised(text: str, prefix: str = "CUSTOM_") -> str:
    """Turn an operator's name into a custom name: `phys-net 0` becomes `CUSTOM_PHYS_NET_0`."""
    return prefix + re.sub(r"[^A-Z0-9_]", "_", text.upper())


class Vocabulary:
    """One kind of names: the standard ones, the table of custom ones, and where they are used."""

    def __init__(
        self, kind: str, standard: Iterable[str], table: sa.Table, used_in: sa.Column[Any], in_use: str
    ) -> None:
        self.kind = kind
        self._in_use = in_use
        self.ordered = tuple(standard)
        self.standard = frozenset(self.ordered)
        self._places = {name: place for place, name in enumerate(self.ordered)}
        self._all: Statement[Name] = Statement(
            sa.select(table.c.name, table.c.created_at.label("changed_at")).order_by(table.c.name), row=Name
        )
        self._known: Statement[Name] = Statement(
            sa.select(table.c.name, table.c.created_at.label("changed_at"))
            .where(table.c.name == sa.any_(texts_param("names")))
            .with_for_update(read=True, key_share=True),
            row=Name,
        )
        self._create: Statement[Any] = Statement(
            insert(table).values(name=text_param("name")).on_conflict_do_nothing().returning(table.c.name)
        )
        self._lock: Statement[Any] = Statement(
            sa.select(table.c.name).where(table.c.name == text_param("name")).with_for_update()
        )
        self._used: Statement[Any] = Statement(sa.select(sa.exists().where(used_in == text_param("name"))))
        self._all_used: Statement[Any] = Statement(sa.select(used_in).distinct())
        self._delete: Statement[Any] = Statement(sa.delete(table).where(table.c.name == text_param("name")))

    def place(self, name: str) -> tuple[int, str]:
        """Return the key that sorts names as upstream does: the standard ones in their own order first."""
        return self._places.get(name, len(self._places)), name

    async def all(self, tx: Tx) -> list[Name]:
        """Every name: the standard ones first."""
        return [Name(name) for name in self.ordered] + await self._all.all(tx)

    async def used(self, tx: Tx) -> frozenset[str]:
        """The names that some provider has."""
        return frozenset(row[0] for row in await self._all_used.all(tx))

    async def get(self, tx: Tx, name: str) -> Name:
        """Return one name; raises NotFound."""
        if name in self.standard:
            return Name(name)
        found = await self._known.first(tx, names=[name])
        if found is None:
            raise NotFound(f"No such {self.kind}: {name}.")
        return found

    async def require(self, tx: Tx, names: Iterable[str], what: str | None = None) -> None:
        """Check that all names exist, and keep custom ones from being deleted in this transaction.

        Raises UnknownNames; `what` then begins its message.
        """
        custom = sorted(set(names) - self.standard)
        if not custom:
            return
        known = {found.name for found in await self._known.all(tx, names=custom)}
        missing = [name for name in custom if name not in known]
        if missing:
            raise UnknownNames(self.kind, missing, what)

    async def create(self, tx: Tx, name: str) -> bool:
        """Create a custom name; False when it exists already."""
        return await self._create.scalar(tx, name=name) is not None

    async def delete(self, tx: Tx, name: str) -> None:
        """Delete a custom name. Raises StandardName, NotFound, NameInUse."""
        if name in self.standard:
            raise StandardName(f"Cannot delete standard {self.kind} {name}")
        # Two statements: the second must see what was committed while the first waited for the lock.
        if await self._lock.scalar(tx, name=name) is None:
            raise NotFound(f"No such {self.kind}: {name}.")
        if await self._used.scalar(tx, name=name):
            raise NameInUse(f"Error in delete {self.kind}: {self._in_use.format(name)}")
        await self._delete.run(tx, name=name)
        await log_name_gone(tx)


RESOURCE_CLASSES = Vocabulary(
    "resource class",
    os_resource_classes.STANDARDS,
    resource_classes,
    inventories.c.resource_class,
    "Class is in use in inventory of {}.",
)
TRAITS = Vocabulary(
    "trait",
    os_traits.get_traits(),
    traits,
    provider_traits.c.trait,
    "The trait {} is in use by a resource provider.",
)
