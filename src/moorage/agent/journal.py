"""The journal makes commands idempotent.

A command's key is (operation, step, kind, fence). Before a command has any effect it is written down
(``accept``); when it has ended its result is (``finish``); the result is offered to the control plane until it
is acknowledged (``acknowledge``). What ``accept`` answers:

===========  =========================================================================================
run          the key is new, or was accepted and never finished: the agent died in between. Handlers are
             idempotent by the guest's id, so running again ends in the same state
replay       the key has a result: it is given again and nothing is done
refuse       a higher fence was seen for the same operation and step: whoever sent this has been replaced
old          a later command was accepted for the same guest: this one was taken back, and comes late
===========  =========================================================================================

Later is what the control plane queued later (``seq``); questions have no place in that order. A key with a result is
a replay whatever came after it.

A host keeps it in SQLite with a sync at every commit. Simulated hosts keep it where their guests are: in memory,
unless they outlive the process.
"""

import asyncio
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, Protocol, TypeVar

import msgspec

from moorage.wire.coding import QUESTIONS
from moorage.wire.messages import Command, Result

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
_decode = msgspec.json.Decoder(Result).decode
_encode = msgspec.json.Encoder().encode


class Verdict(msgspec.Struct, frozen=True):
    """What to do with a command; ``result`` for a replay, ``higher``: the fence or number that it is behind."""

    action: Literal["run", "replay", "refuse", "old"]
    result: Result | None = None
    higher: int = 0


class Journal(Protocol):
    """What the command loop needs of a journal."""

    async def accept(self, command: Command, guest: str) -> Verdict:
        """Write down the command for a guest, and say what to do with it."""
        ...

    async def finish(self, command: Command, result: Result) -> None:
        """Write its result down."""
        ...

    async def unacknowledged(self) -> list[Result]:
        """Results the control plane may not have, oldest first."""
        ...

    async def acknowledge(self, command_ids: Iterable[str]) -> None:
        """The control plane has these."""
        ...

    async def close(self) -> None:
        """Let go of files."""
        ...


RUN = Verdict("run")


def replay(stored: Result, command: Command) -> Verdict:
    """The stored result, addressed to the command that asks now: a re-sent one may have a new id."""
    result = (
        stored if stored.command_id == command.id else msgspec.structs.replace(stored, command_id=command.id)
    )
    return Verdict("replay", result=result)


class MemoryJournal:
    """For simulated hosts whose guests end with the process: bounded, gone with it too."""

    def __init__(self, keep: int = 256) -> None:
        self._keep = keep
        self._fences: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._results: OrderedDict[tuple[str, str, str, int], Result] = OrderedDict()
        self._newest: OrderedDict[str, int] = OrderedDict()
        self._open: dict[str, Result] = {}

    async def accept(self, command: Command, guest: str) -> Verdict:
        """See Journal."""
        place = (command.operation, command.step)
        seen = self._fences.get(place, command.fence)
        if seen > command.fence:
            return Verdict("refuse", higher=seen)
        stored = self._results.get((command.operation, command.step, command.kind, command.fence))
        if stored is not None:
            return replay(stored, command)
        if command.kind not in QUESTIONS:
            newest = self._newest.get(guest, command.seq)
            if newest > command.seq:
                return Verdict("old", higher=newest)
            _keep_last(self._newest, guest, command.seq, self._keep)
        _keep_last(self._fences, place, command.fence, self._keep)
        return RUN

    async def finish(self, command: Command, result: Result) -> None:
        """See Journal."""
        key = (command.operation, command.step, command.kind, command.fence)
        _keep_last(self._results, key, result, self._keep)
        self._open[command.id] = result

    async def unacknowledged(self) -> list[Result]:
        """See Journal."""
        return list(self._open.values())

    async def acknowledge(self, command_ids: Iterable[str]) -> None:
        """See Journal."""
        for command_id in command_ids:
            self._open.pop(command_id, None)

    async def close(self) -> None:
        """Nothing to let go of."""


def _keep_last(kept: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)


_SCHEMA = """
CREATE TABLE IF NOT EXISTS commands (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    operation TEXT NOT NULL, step TEXT NOT NULL, kind TEXT NOT NULL, fence INTEGER NOT NULL,
    command_id TEXT NOT NULL, result BLOB, acknowledged INTEGER NOT NULL DEFAULT 0,
    UNIQUE (operation, step, kind, fence)
);
CREATE TABLE IF NOT EXISTS newest (
    number INTEGER PRIMARY KEY AUTOINCREMENT, guest TEXT NOT NULL UNIQUE, seq INTEGER NOT NULL
);
"""


class FileJournal:
    """For real hosts: SQLite, synced at every commit, used from one thread of its own.

    ``keep`` is how many acknowledged entries stay for replays, and of how many guests the newest command is known.
    """

    def __init__(self, path: Path, keep: int = 10_000) -> None:
        self._path = path
        self._keep = keep
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self._connection: sqlite3.Connection | None = None

    async def accept(self, command: Command, guest: str) -> Verdict:
        """See Journal."""
        return await self._in_thread(lambda db: _accept(db, command, guest))

    async def finish(self, command: Command, result: Result) -> None:
        """See Journal."""
        await self._in_thread(lambda db: _finish(db, command, result))

    async def unacknowledged(self) -> list[Result]:
        """See Journal."""
        sql = "SELECT result FROM commands WHERE result IS NOT NULL AND acknowledged = 0 ORDER BY number"
        return await self._in_thread(lambda db: [_decode(row[0]) for row in db.execute(sql)])

    async def acknowledge(self, command_ids: Iterable[str]) -> None:
        """See Journal."""
        ids = [(i,) for i in command_ids]
        await self._in_thread(lambda db: _acknowledge(db, ids, self._keep))

    async def close(self) -> None:
        """Close the file."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    async def _in_thread(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._transact, work)

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._connection = sqlite3.connect(self._path)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.executescript(_SCHEMA)
        with self._connection:
            return work(self._connection)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _accept(db: sqlite3.Connection, command: Command, guest: str) -> Verdict:
    seen = 0
    sql = "SELECT kind, fence, result FROM commands WHERE operation = ? AND step = ?"
    stored: Result | None = None
    known = False
    for kind, fence, result in db.execute(sql, (command.operation, command.step)):
        seen = max(seen, fence)
        if (kind, fence) == (command.kind, command.fence):
            known = True
            stored = _decode(result) if result is not None else None
    if seen > command.fence:
        return Verdict("refuse", higher=seen)
    if stored is not None:
        return replay(stored, command)
    if command.kind not in QUESTIONS:
        row = db.execute("SELECT seq FROM newest WHERE guest = ?", (guest,)).fetchone()
        newest = command.seq if row is None else row[0]
        if newest > command.seq:
            return Verdict("old", higher=newest)
        db.execute("REPLACE INTO newest (guest, seq) VALUES (?, ?)", (guest, command.seq))
    if not known:
        db.execute(
            "INSERT INTO commands (operation, step, kind, fence, command_id) VALUES (?, ?, ?, ?, ?)",
            (command.operation, command.step, command.kind, command.fence, command.id),
        )
    return RUN


def _finish(db: sqlite3.Connection, command: Command, result: Result) -> None:
    db.execute(
        "UPDATE commands SET result = ?, command_id = ? WHERE operation = ? AND step = ? AND kind = ? AND fence = ?",
        (_encode(result), command.id, command.operation, command.step, command.kind, command.fence),
    )


def _acknowledge(db: sqlite3.Connection, ids: list[tuple[str]], keep: int) -> None:
    db.executemany("UPDATE commands SET acknowledged = 1 WHERE command_id = ?", ids)
    db.execute(
        "DELETE FROM commands WHERE acknowledged = 1 AND number <= (SELECT max(number) FROM commands) - ?",
        (keep,),
    )
    db.execute("DELETE FROM newest WHERE number <= (SELECT max(number) FROM newest) - ?", (keep,))
