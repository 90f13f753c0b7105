"""What Keystone and Glance have in common as children: prepare once, serve, stop."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

import msgspec

from moorage.children import services
from moorage.children.process import Child, ChildSpec
from moorage.children.readiness import http_ready, require_free
from moorage.children.services import ServiceSettings
from moorage.children.templates import Template


class Upstream(ABC):
    """One upstream service. ``await prepare()``, then ``await start()``; both again after ``await stop()`` if wanted."""

    package: str
    sync_command: str
    ready_path: str

    def __init__(self, settings: ServiceSettings) -> None:
        self.base = settings
        self.child: Child | None = None
        self.release = services.release(settings.venv, self.package)
        self._template = Template(settings, self.release)
        self._steps: tuple[str, ...] = ()
        self.renewed = False
        """Whether the last ``prepare`` found a database that was not ours yet."""

    @property
    def folder(self) -> Path:
        """The service's own folder below the state folder."""
        return self.base.state / self.package

    @property
    def mark(self) -> str:
        """What is recorded of the database once all steps are done."""
        return self.release

    @abstractmethod
    def write_config(self) -> Path:
        """Write the configuration; returns the file."""

    def key_steps(self) -> tuple[str, ...]:
        """Steps that make what must exist outside the database."""
        return ()

    def first_steps(self) -> tuple[str, ...]:
        """Steps for a database whose schema is there and whose rows are not."""
        return ()

    def step_env(self) -> Mapping[str, str]:
        """Environment for the steps alone."""
        return {}

    async def prepare(self) -> None:
        """Write the configuration and find out what is to be done; idempotent, and quick when all is done."""
        self.write_config()
        steps = self.key_steps()
        self.renewed = await services.recorded(self.base) != self.mark
        if self.renewed:
            new = await services.ensure_database(self.base)
            if not (new and await self._template.load()):
                dump = self._template.dump_steps() if new else ()
                steps += (f"manage {self.sync_command}", *dump)
            steps += self.first_steps()
        self._steps = steps

    async def start(self) -> None:
        """Do what ``prepare`` found to be done, and serve.

        Raises ``PortTaken`` when another program listens there, ``ChildFailed`` when the service does not start.
        """
        base = self.base
        require_free(self.package.capitalize(), base.host, base.port)
        config = self.write_config()
        usual = ChildSpec(
            name=self.package,
            argv=services.serve_argv(self.package, base, config),
            run_folder=base.state / "run",
            log_file=base.state / "logs" / f"{self.package}.log",
            env=services.CLEAN_ENV,
            ready=http_ready(base.url + self.ready_path),
        )
        first = msgspec.structs.replace(
            usual,
            argv=services.serve_argv(self.package, base, config, self._steps),
            env={**services.CLEAN_ENV, **self.step_env()},
            ready_within=180.0,
        )
        child = Child(first)
        await child.start()
        self.child = child
        child.spec = usual  # a restart has nothing left to prepare
        self._template.keep()
        await services.record(base, self.mark)
        self._steps = ()

    async def stop(self) -> None:
        """End it and all it started."""
        child, self.child = self.child, None
        if child is not None:
            await child.stop()
