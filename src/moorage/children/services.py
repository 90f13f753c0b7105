"""Where the upstream services' virtual environment is, and what both of them share: settings and databases.

What is in a service's database is recorded as the comment of that database ("keystone 30.0.0"), so that it goes with
the data: a new release, a lost state folder or another server is noticed by itself.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg
import msgspec

from moorage.children.errors import ServicesMissing

SERVE = Path(__file__).with_name("serve_upstream.py")
# Our own Python's variables must not reach the services' Python.
CLEAN_ENV: Mapping[str, str | None] = {"PYTHONPATH": None, "PYTHONHOME": None, "VIRTUAL_ENV": None}


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What Keystone and Glance are told alike.

    ``postgres_url`` names any database of the server (``postgresql://user@/name?host=/socket/folder`` or with a TCP
    host); the account must be allowed to create databases. ``database`` is the service's own, made when missing.
    """

    venv: Path
    state: Path
    postgres_url: str
    database: str
    host: str = "127.0.0.1"
    port: int
    threads: int = 8

    @property
    def url(self) -> str:
        """Where the service answers, without a trailing slash."""
        return f"http://{self.host}:{self.port}"


def find_venv(explicit: Path | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """The services' environment: as given, MOORAGE_SERVICES_VENV, or ``services`` in our own (made by `make setup`).

    Raises ``ServicesMissing``.
    """
    named = explicit or environ.get("MOORAGE_SERVICES_VENV")
    venv = Path(named) if named else Path(sys.prefix) / "services"
    if not (venv / "bin" / "python").exists():
        raise ServicesMissing(
            f"Keystone and Glance are not installed at {venv}; run `make setup`, or name their virtual environment in "
            "MOORAGE_SERVICES_VENV"
        )
    return venv


def release(venv: Path, package: str) -> str:
    """What is installed, like "keystone 30.0.0". Raises ``ServicesMissing``."""
    for found in venv.glob(f"lib/python3*/site-packages/{package}-*.dist-info"):
        return found.name.removesuffix(".dist-info").replace("-", " ", 1)
    raise ServicesMissing(f"{package} is not installed in {venv}; run `make setup`")


def serve_argv(
    service: str, settings: ServiceSettings, config: Path, steps: Sequence[str] = ()
) -> tuple[str, ...]:
    """The command line that does ``steps`` and then serves; see serve_upstream.py."""
    where = ("--config", str(config), "--host", settings.host, "--port", str(settings.port))
    todo = (word for step in steps for word in ("--do", step))
    python = str(settings.venv / "bin" / "python")
    return (python, "-I", str(SERVE), service, *where, "--threads", str(settings.threads), *todo)


def write_config(path: Path, sections: Mapping[str, Mapping[str, object]]) -> None:
    """Write an oslo.config file, mode 0600: it holds passwords."""
    lines = []
    for section, options in sections.items():
        lines.append(f"[{section}]")
        # A dollar sign would start a reference to another option.
        lines.extend(f"{key} = {str(value).replace('$', '$$')}" for key, value in options.items())
        lines.append("")
    write_private(path, "\n".join(lines))


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step; only its owner may read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    new.replace(path)


def database_url(server_url: str, database: str, driver: str = "") -> str:
    """The URL of another database of the same server, for SQLAlchemy's ``driver`` if one is named."""
    parts = urlsplit(server_url)
    scheme = f"postgresql+{driver}" if driver else "postgresql"
    netloc = parts.netloc
    # urlunsplit leaves out an empty authority, without which the path would be read as one.
    text = urlunsplit((scheme, netloc or "@", f"/{quote(database)}", parts.query, ""))
    return text if netloc else text.replace("//@/", "///", 1)


async def ensure_database(settings: ServiceSettings) -> bool:
    """Create the service's database if it is missing; True when it was."""
    connection = await asyncpg.connect(settings.postgres_url)
    try:
        found = await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", settings.database)
        if found is None:
            await connection.execute(f"CREATE DATABASE {_identifier(settings.database)}")
        return found is None
    finally:
        await connection.close()


async def recorded(settings: ServiceSettings) -> str | None:
    """What was recorded of the service's database; None when nothing was."""
    connection = await asyncpg.connect(settings.postgres_url)
    try:
        text: str | None = await connection.fetchval(
            "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = $1",
            settings.database,
        )
        return text
    finally:
        await connection.close()


async def record(settings: ServiceSettings, text: str) -> None:
    """Record what the service's database holds."""
    literal = text.replace("'", "''")
    connection = await asyncpg.connect(settings.postgres_url)
    try:
        await connection.execute(f"COMMENT ON DATABASE {_identifier(settings.database)} IS '{literal}'")
    finally:
        await connection.close()


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
