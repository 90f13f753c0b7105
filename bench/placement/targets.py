"""The servers that are measured: how each is given the world, started and stopped."""

import asyncio
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import asyncpg

from bench.client import Failed
from bench.placement.http import Connection
from bench.placement.world import CUSTOM_TRAITS, World
from bench.usage import Usage, family, family_usage, memory, postmaster
from moorage.placement import tables
from moorage.server import migrations
from moorage.store.embedded import EmbeddedPostgres

# Seconds to wait at most for a server that reads a large world, and for its end.
START, END = 300.0, 20.0


class Target:
    """One server over a database of its own in the given PostgreSQL. Use `start`, then `stop`."""

    name: str

    def __init__(self, postgres: EmbeddedPostgres, world: World, folder: Path) -> None:
        self.postgres = postgres
        self.world = world
        self.folder = folder
        self.database = f"{self.name}_{world.hosts}_{len(world.host)}"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.facts: dict[str, Any] = {}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Make the database, load the world, start the server and wait until it answers."""
        self.postgres.create(self.database)
        self.migrate()
        connection = await asyncpg.connect(self.postgres.url(self.database))
        began = time.perf_counter()
        try:
            async with connection.transaction():
                await self.load(connection)
            await connection.execute("ANALYZE")
        finally:
            await connection.close()
        self.facts["load"] = time.perf_counter() - began
        self._process = await self.launch()
        await self._answers()

    def migrate(self) -> None:
        """Make the tables."""
        raise NotImplementedError

    async def load(self, connection: Any) -> None:
        """Copy the world into the tables."""
        raise NotImplementedError

    async def launch(self) -> asyncio.subprocess.Process:
        """Start the server."""
        raise NotImplementedError

    async def _answers(self) -> None:
        assert self._process is not None
        connection = Connection(self.url)
        end = time.perf_counter() + START
        while time.perf_counter() < end:
            if self._process.returncode is not None:
                raise Failed(f"{self.name} ended before it answered")
            try:
                if (await connection.call("GET", "/")).status == 200:
                    await connection.close()
                    return
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.1)
        raise Failed(f"{self.name} did not answer within {START:.0f} s")

    def memory(self) -> float:
        """Resident MiB of all its processes, at most so far."""
        assert self._process is not None
        return sum(memory(pid)[1] for pid in family(self._process.pid))

    def cpu(self) -> Usage:
        """CPU seconds so far, of all its processes and of PostgreSQL."""
        assert self._process is not None
        return family_usage(self._process.pid, postmaster(self.postgres.data.parent))

    async def stop(self) -> None:
        """End the server."""
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(END):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


class Ours(Target):
    """Moorage's Placement API: one process."""

    name = "moorage"

    def migrate(self) -> None:
        """Make the tables."""
        migrations.upgrade(self.postgres.url(self.database))

    async def load(self, connection: Any) -> None:
        """Copy the world into the tables."""
        world = self.world
        await connection.copy_records_to_table(
            "traits", records=[(name,) for name in CUSTOM_TRAITS], columns=["name"]
        )
        await connection.copy_records_to_table(
            "resource_providers", records=world.providers(), columns=["id", "name", "parent_id", "root_id"]
        )
        await connection.copy_records_to_table(
            "inventories",
            records=world.inventories(),
            columns=["provider_id", "resource_class", "total", "allocation_ratio"],
        )
        traits = (
            (ids[place], trait)
            for number, ids in enumerate(world.ids)
            for place in range(len(world.host))
            for trait in world.traits(number, place)
        )
        await connection.copy_records_to_table(tables.provider_traits.name, records=traits)
        aggregates = (
            (ids[0], name) for number, ids in enumerate(world.ids) for name in world.aggregates(number)
        )
        await connection.copy_records_to_table(tables.provider_aggregates.name, records=aggregates)

    async def launch(self) -> asyncio.subprocess.Process:
        """Start it; its first line says how long the index took."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.placement.serve", self.postgres.url(self.database), str(self.port),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START):
                line = await process.stdout.readline()
        except TimeoutError as error:
            raise Failed(f"moorage had no index within {START:.0f} s") from error
        if not line:
            raise Failed("moorage ended before it was up")
        self.facts |= json.loads(line)
        return process


class Upstream(Target):
    """OpenStack's: its tables made by its own command, two workers of gunicorn."""

    name = "openstack"

    def __init__(self, postgres: EmbeddedPostgres, world: World, folder: Path, venv: Path) -> None:
        super().__init__(postgres, world, folder)
        self.venv = venv

    def _environment(self) -> dict[str, str]:
        # Its commands must not find this environment's libraries.
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        return {**kept, "OS_PLACEMENT_CONFIG_DIR": str(self.folder)}

    def migrate(self) -> None:
        """Write its configuration and make its tables."""
        import subprocess  # noqa: PLC0415

        url = self.postgres.url(self.database).replace("postgresql://", "postgresql+psycopg2://")
        (self.folder / "placement.conf").write_text(
            "[api]\nauth_strategy = noauth2\n[DEFAULT]\ndebug = False\n"
            f"[placement_database]\nconnection = {url.replace('%', '%%')}\n"
        )
        config = str(self.folder / "placement.conf")
        subprocess.run(
            [self.venv / "bin/placement-manage", "--config-file", config, "db", "sync"],
            check=True, env=self._environment(), capture_output=True,
        )  # fmt: skip
        # The server itself writes the standard names into its tables, when it starts first.
        subprocess.run(
            [self.venv / "bin/python", "-c", "from placement.wsgi import api"],
            check=True, env=self._environment(), capture_output=True,
        )  # fmt: skip

    async def load(self, connection: Any) -> None:
        """Copy the world into its tables."""
        world = self.world
        number_of = {row[0]: place for place, row in enumerate(world.providers(), 1)}
        await connection.executemany(
            "INSERT INTO traits (name) VALUES ($1)", [(name,) for name in CUSTOM_TRAITS]
        )
        traits = dict(await connection.fetch("SELECT name, id FROM traits"))
        classes = dict(await connection.fetch("SELECT name, id FROM resource_classes"))
        names = sorted({name for number in range(world.hosts) for name in world.aggregates(number)})
        aggregates = {name: place for place, name in enumerate(names, 1)}
        await connection.copy_records_to_table(
            "resource_providers",
            records=(
                (number_of[row[0]], row[0], row[1], 0, number_of[row[3]], number_of.get(row[2] or ""))
                for row in world.providers()
            ),
            columns=["id", "uuid", "name", "generation", "root_provider_id", "parent_provider_id"],
        )
        await connection.copy_records_to_table(
            "inventories",
            records=(
                (number_of[owner], classes[name], total, 0, 1, 2**31 - 1, 1, ratio)
                for owner, name, total, ratio in world.inventories()
            ),
            columns=[
                "resource_provider_id", "resource_class_id", "total", "reserved", "min_unit", "max_unit",
                "step_size", "allocation_ratio",
            ],
        )  # fmt: skip
        await connection.copy_records_to_table(
            "resource_provider_traits",
            records=(
                (number_of[ids[place]], traits[trait])
                for number, ids in enumerate(world.ids)
                for place in range(len(world.host))
                for trait in world.traits(number, place)
            ),
            columns=["resource_provider_id", "trait_id"],
        )
        await connection.copy_records_to_table(
            "placement_aggregates", records=((place, name) for name, place in aggregates.items()),
            columns=["id", "uuid"],
        )  # fmt: skip
        await connection.copy_records_to_table(
            "resource_provider_aggregates",
            records=(
                (number_of[ids[0]], aggregates[name])
                for number, ids in enumerate(world.ids)
                for name in world.aggregates(number)
            ),
            columns=["resource_provider_id", "aggregate_id"],
        )
        # What was given by number must not be given again.
        for table in ("resource_providers", "placement_aggregates"):
            await connection.execute(
                f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT max(id) FROM {table}))"  # noqa: S608
            )

    async def launch(self) -> asyncio.subprocess.Process:
        """Start it under gunicorn, as its documents suggest a WSGI server: two workers of eight threads."""
        log = (self.folder / "openstack.log").open("wb")
        return await asyncio.create_subprocess_exec(
            self.venv / "bin/gunicorn", "-w", "2", "--threads", "8", "--timeout", "600", "--keep-alive", "60",
            "-b", f"127.0.0.1:{self.port}", "placement.wsgi.api:application",
            env=self._environment(), stdout=log, stderr=log,
        )  # fmt: skip
