"""The Northbound database: a copy of it in memory, and one way to bring our part of it to what it should be.

The connection has a thread of its own, in which the copy is kept and transactions are made; what is called from
outside (``apply``) blocks and belongs into another thread than the event loop's. Rows of ours are known by the mark in
their external_ids, which an index follows; rows of others are never touched. Values are compared, not revisions, so
that a change somebody made by hand is taken back too.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from ovsdbapp.backend.ovs_idl import command, connection, transaction

from moorage.core.errors import Unavailable
from moorage.network.mechanisms.ovn import translate as t
from moorage.network.mechanisms.ovn.translate import Desired

Key = tuple[str, str]


class Applied(msgspec.Struct, frozen=True):
    """What an apply did, in rows."""

    created: int = 0
    changed: int = 0
    deleted: int = 0


class Northbound:
    """A connection to the Northbound database. ``remote`` is an OVSDB remote, ``timeout`` is in seconds."""

    def __init__(self, remote: str, *, timeout: float = 30.0) -> None:
        self._remote = remote
        self._timeout = timeout
        self._connection: Any = None
        self._idl: Any = None

    @property
    def connected(self) -> bool:
        """Whether ``connect`` was called; the connection itself comes back by itself when it breaks."""
        return self._connection is not None

    def connect(self) -> None:
        """Read the database. Raises Unavailable when it does not answer."""
        try:
            self._idl = _Copy.from_server(self._remote, "OVN_Northbound", helper_tables=t.TABLES)
            found = connection.Connection(self._idl, self._timeout)
            found.start()
        except Exception as error:
            raise Unavailable(
                f"OVN's Northbound database at {self._remote} does not answer: {error!r}"
            ) from error
        self._connection = found

    def close(self) -> None:
        """End the connection and its thread."""
        if self._connection is not None:
            self._connection.stop(self._timeout)
            self._connection = None

    def apply(self, desired: Sequence[Desired], scopes: Iterable[str] | None) -> Applied:
        """Make our rows of these scopes exactly ``desired``; None: all of our rows. One transaction.

        Raises Unavailable when the database does not take it in time, and whatever it has against it.
        """
        work = _Apply(self._idl, desired, None if scopes is None else set(scopes))
        txn = transaction.Transaction(_Api(self._idl), self._connection, check_error=True, log_errors=False)
        txn.add(work)
        try:
            txn.commit()
        except Exception as error:
            raise Unavailable(f"OVN's Northbound database refused a change: {error!r}") from error
        return work.applied

    def keys(self) -> set[Key]:
        """The keys of our rows, for audits."""
        with self._connection.lock:
            return set(self._idl.owned)


class _Api:
    """What ovsdbapp's transaction wants of its API object."""

    def __init__(self, idl: Any) -> None:
        self.idl = idl


class _Copy(connection.OvsdbIdl):  # type: ignore[misc]  # ovsdbapp has no types
    """The copy in memory, with an index of our rows that follows it."""

    def __init__(self, *args: Any, **kw: Any) -> None:
        super().__init__(*args, **kw)
        self.owned: dict[Key, Any] = {}
        self.scopes: dict[str, set[Key]] = {}
        self._known: dict[Any, tuple[Key, str]] = {}

    def cooperative_yield(self) -> None:
        """Nothing: this thread is its own, and giving up the processor after every row made big updates slow."""

    def notify(self, event: str, row: Any, updates: Any = None) -> None:  # noqa: ARG002  the library's signature
        """Called for every row that came, changed or went."""
        known = self._known.pop(row.uuid, None)
        if known is not None:
            key, scope = known
            if self.owned.get(key) is not None and self.owned[key].uuid == row.uuid:
                del self.owned[key]
                self.scopes[scope].discard(key)
        if event == "delete":
            return
        marks = row.external_ids
        if marks.get(t.OWNER_KEY) == t.OWNER and t.KEY in marks:
            key, scope = (row._table.name, marks[t.KEY]), marks.get(t.SCOPE, "")  # noqa: SLF001  rows don't tell it otherwise
            self.owned[key] = row
            self.scopes.setdefault(scope, set()).add(key)
            self._known[row.uuid] = (key, scope)


class _Apply(command.BaseCommand):  # type: ignore[misc]  # ovsdbapp has no types
    """The transaction of one ``apply``; the library runs it again when the database had changed meanwhile."""

    def __init__(self, idl: _Copy, desired: Sequence[Desired], scopes: set[str] | None) -> None:
        super().__init__(None)
        self._idl = idl
        self._desired = {(d.table, d.key): d for d in desired}
        self._scopes = scopes
        self.applied = Applied()

    def run_idl(self, txn: Any) -> None:
        """Compare and write, in the connection's thread."""
        rows: dict[Key, Any] = {}
        new: set[Key] = set()
        deleted = self._delete_rest()
        for key, wanted in self._desired.items():
            row = self._idl.owned.get(key)
            if row is not None and _moved(row, wanted):
                self._remove(row)
                row = None
            if row is None:
                row = txn.insert(self._idl.tables[wanted.table])
                new.add(key)
            rows[key] = row
        changed = sum(self._fill(rows, key, is_new=key in new) for key in rows)
        if self._scopes is None:
            self._set_members(rows)
        self.applied = Applied(created=len(new), changed=changed, deleted=deleted)

    def _delete_rest(self) -> int:
        scopes = self._scopes if self._scopes is not None else set(self._idl.scopes)
        rest = [
            key for scope in scopes for key in self._idl.scopes.get(scope, ()) if key not in self._desired
        ]
        for key in rest:
            self._remove(self._idl.owned[key])
        return len(rest)

    def _remove(self, row: Any) -> None:
        table, _, rest = row.external_ids.get(t.PARENT, "").partition("|")
        key, _, column = rest.rpartition("|")
        parent = self._idl.owned.get((table, key))
        if parent is not None and parent.uuid in parent._table.rows:  # noqa: SLF001  it may go in this transaction
            parent.delvalue(column, row.uuid)
        row.delete()

    def _fill(self, rows: dict[Key, Any], key: Key, *, is_new: bool) -> bool:
        """Write what differs; whether an old row was changed."""
        wanted, row = self._desired[key], rows[key]
        marks = wanted.external_ids()
        before = "" if is_new else row.external_ids.get(t.GROUPS, "")
        changed = False
        for column, value in {**wanted.columns, "external_ids": marks}.items():
            if is_new or not _same(getattr(row, column), value):
                setattr(row, column, value)
                changed = True
        for column, keys in wanted.refs.items():
            targets = [self._find(rows, k).uuid for k in keys]
            if (is_new and targets) or (not is_new and [r.uuid for r in getattr(row, column)] != targets):
                setattr(row, column, targets)
                changed = True
        if is_new and wanted.parent is not None:
            table, parent_key, column = wanted.parent
            self._find(rows, (table, parent_key)).addvalue(column, row.uuid)
        if self._scopes is not None and wanted.table == t.PORT and marks[t.GROUPS] != before:
            self._join(rows, row, set(before.split(",")) - {""}, set(wanted.groups))
        return changed and not is_new

    def _join(self, rows: dict[Key, Any], row: Any, before: set[str], after: set[str]) -> None:
        # As mutations: writing a whole list of members for one port would cost more with every port there is.
        for group in after - before:
            self._find(rows, (t.GROUP, group)).addvalue("ports", row.uuid)
        for group in before - after:
            left = self._idl.owned.get((t.GROUP, group))
            if left is not None and left.uuid in left._table.rows:  # noqa: SLF001  the group may go as well
                left.delvalue("ports", row.uuid)

    def _set_members(self, rows: dict[Key, Any]) -> None:
        """In a full pass: the members of every group, compared by value."""
        members: dict[str, set[Any]] = {d.key: set() for d in self._desired.values() if d.table == t.GROUP}
        for key, wanted in self._desired.items():
            for group in wanted.groups:
                members[group].add(rows[key].uuid)
        for group, uuids in members.items():
            row = rows[t.GROUP, group]
            current = {r.uuid for r in getattr(row, "ports", [])}
            if current != uuids:
                row.ports = list(uuids)

    def _find(self, rows: dict[Key, Any], key: Key) -> Any:
        row = rows.get(key) or self._idl.owned.get(key)
        if row is None:
            raise LookupError(f"{key[0]} {key[1]} is not in the Northbound database")
        return row


def _moved(row: Any, wanted: Desired) -> bool:
    return wanted.parent is not None and row.external_ids.get(t.PARENT) != "|".join(wanted.parent)


def _same(current: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return sorted(map(str, current)) == sorted(map(str, wanted))
    return bool(current == wanted)
