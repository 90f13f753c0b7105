"""One control plane: every service and role of a process, wired to each other, and nothing global.

    cloud = Cloud(conf, database, identity=..., ...)
    await cloud.start()      # conductor, keepers, followers, HTTP
    await cloud.stop()

Two of them can live in one process, as they do in the tests. What runs in which role:

    both        signals, placement index, host directory: copies in memory that each process needs
    API         compute, placement, network, agents' and control APIs; the agents' polls; heartbeats
    CONDUCTOR   operations (leases), OVN's keeper and housekeeping (advisory locks), OVN's plug events
"""

import asyncio
import contextlib
import enum
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from oslo_config import cfg

from moorage.agentlink.authority import Authority
from moorage.agentlink.calls import Calls
from moorage.agentlink.http.auth import HostAuthenticator
from moorage.agentlink.service import AgentLink
from moorage.api import config as api_config
from moorage.api.auth import KeystoneAuthenticator, ServiceToken
from moorage.compute import guests
from moorage.compute.http.routes import compute_api
from moorage.compute.images import GlanceImages
from moorage.compute.operations import DEFINITIONS
from moorage.compute.operations.directory import Directory
from moorage.compute.operations.lifecycle import OperationLifecycle
from moorage.compute.operations.services import OperationSettings, Services
from moorage.compute.power_sync import PowerSync
from moorage.compute.service import ComputeService
from moorage.core.log import get_logger
from moorage.core.trust import trust
from moorage.keepers import Keeper
from moorage.network.config import settings as network_settings
from moorage.network.http.routes import network_api
from moorage.network.service import NetworkService
from moorage.operations import OperationsService, Runner
from moorage.operations.faults import Faults
from moorage.placement.config import Settings as PlacementSettings
from moorage.placement.http.routes import build_api as placement_api
from moorage.placement.service import PlacementService
from moorage.server.agents import AgentsTls, agent_app, authority_of
from moorage.server.control import Control, control_api
from moorage.server.documents import openapi
from moorage.server.front import Front
from moorage.server.health import Health, checks_of
from moorage.server.host_control import HostControl
from moorage.server.hosts import HostEvents, Ratios
from moorage.server.housekeeping import Housekeeping
from moorage.server.images import ImageProxy
from moorage.server.listeners import Listeners
from moorage.server.metrics import CloudMetrics, MetricsApp
from moorage.server.options import metrics_address
from moorage.server.ovn import OvnKeepers
from moorage.server.tls import api_tls, base_url
from moorage.simulate import dump
from moorage.store.database import Database
from moorage.store.signals import Signals

log = get_logger(__name__)


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Where Keystone and Glance are, and our own user there."""

    auth_url: str
    image_url: str
    username: str
    password: str


class Role(enum.StrEnum):
    """What a process does; see the module's text."""

    API = "api"
    CONDUCTOR = "conductor"


class Cloud:
    """See the module's text. ``apps`` are what it serves and ``ports`` where, known after ``start``, by API.

    ``authority`` signs hosts' certificates; the configuration's by default. Agents are served on ``agent_socket`` too.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        database: Database,
        identity: Identity,
        *,
        roles: frozenset[Role] = frozenset(Role),
        authority: Authority | None = None,
        agent_socket: Path | None = None,
        faults: Faults | None = None,
        fuse: bool = True,
    ) -> None:
        self.conf = conf
        self.roles = roles
        self._agent_socket = agent_socket
        self.database = database
        self.signals = Signals(database)
        self.ports: dict[str, int] = {}
        self.listeners = Listeners(api_config.limits(conf), self.front)
        self._tasks: list[asyncio.Task[None]] = []
        self.tls = api_tls(conf)
        believed = trust(conf.tls.ca_file)
        self._token = ServiceToken(
            identity.auth_url, username=identity.username, password=identity.password, trust=believed
        )
        self.authenticate = api_config.with_rate(conf, KeystoneAuthenticator(self._token))
        self._images = GlanceImages(
            identity.image_url, cache_seconds=conf.compute.image_cache_seconds, trust=believed
        )

        self._authority = authority
        if authority is None and Role.API in roles:
            self._authority = authority_of(conf)
        self.link = AgentLink(
            database, self.signals, authority=self._authority, service_down_time=conf.service_down_time
        )
        self.link.judge = guests.verdicts
        self.calls = Calls(database, self.signals, self.link)
        ratios = Ratios(
            cpu=conf.scheduler.cpu_allocation_ratio,
            ram=conf.scheduler.ram_allocation_ratio,
            disk=conf.scheduler.disk_allocation_ratio,
        )
        self.events = HostEvents(self.signals, self.link, self.calls, ratios)
        zone = conf.compute.default_availability_zone
        self.directory = Directory(database, self.signals, self.link, default_zone=zone)
        self.ovn = OvnKeepers.of(conf, database, self.signals)
        self.placement = PlacementService(database, self.signals, settings=PlacementSettings.of(conf))
        self.network = NetworkService(
            network_settings(conf),
            hosts=self.directory.networking,
            mechanisms=self.ovn.mechanisms,
            on_plugged=self.events.on_plugged,
        )
        self.events.attach(self.network, self.placement)
        self.services = Services(
            network=self.network,
            placement=self.placement,
            link=self.link,
            calls=self.calls,
            directory=self.directory,
            settings=OperationSettings(
                vif_plugging_timeout=conf.conductor.vif_plugging_timeout,
                command_timeout=conf.conductor.command_timeout,
            ),
        )
        self.metrics = CloudMetrics(
            database,
            service_down_time=conf.service_down_time,
            index_age=self._index_age,
            keepers=lambda: (self.housekeeping, self.power_sync, *self.ovn.keepers),
            connections=lambda: self.listeners.connections,
        )
        self.runner = Runner(
            database,
            self.signals,
            DEFINITIONS,
            self.services,
            self.link.enqueue,
            concurrency=conf.conductor.concurrency,
            lease=conf.conductor.lease,
            poll=conf.conductor.poll,
            per_host=conf.conductor.operations_per_host,
            at_hosts=conf.conductor.operations_at_hosts,
            silent=self.directory.silent,
            deadlines={kind: float(seconds) for kind, seconds in conf.conductor.deadlines.items()},
            metrics=self.metrics.operations,
            faults=faults,
            fuse=fuse,
        )
        self.compute = ComputeService(
            database=database,
            networks=self.network,
            images=self._images,
            lifecycle=OperationLifecycle(database, self.services),
            registry=self.link.registry,
            service_down_time=conf.service_down_time,
            default_zone=zone,
            max_limit=conf.compute.max_limit,
            max_servers_per_request=conf.compute.max_servers_per_request,
            limits={name: conf.quota[name] for name in conf.quota},
        )
        keep = timedelta(seconds=conf.placement.change_log_keep)
        self.housekeeping = Keeper(
            database, self.signals, Housekeeping(database, self.link, self.placement, keep_changes=keep)
        )
        sync = PowerSync(
            database, interval=conf.compute.power_sync_interval, grace=conf.compute.power_sync_grace
        )
        self.power_sync = Keeper(database, self.signals, sync)
        self.health = Health(
            checks_of(
                database,
                self.signals,
                self._token,
                index_age=self._index_age,
                oldest_index=conf.health.index_age,
            )
        )
        hosts = HostAuthenticator(self.link.certificates)
        self._proxy = ImageProxy(database, hosts, self._token, identity.image_url, trust=believed)
        self.agent_app = agent_app(self.link, self._proxy, self.services.settings.image_path)
        self.apps: dict[str, Any] = {
            "compute": self._compute_app(),
            "placement": placement_api(self.placement, authenticate=self.authenticate),
            "network": network_api(
                self.network,
                database,
                authenticate=self.authenticate,
                agents=self.events.network_agents,
                policy_file=conf.network.policy_file,
            ),
            "agent": self.agent_app,
            "metrics": MetricsApp(self.metrics, conf.metrics.token),
        }

    def _index_age(self) -> float:
        return self.placement.follower.age

    def front(self, app: Any) -> Any:
        """An application as it is served."""
        return Front(app, self.health, self.metrics.requests)

    def _compute_app(self) -> Any:
        control = control_api(
            Control(
                database=self.database,
                hosts=HostControl(self.database, self.link),
                compute=self.compute,
                operations=OperationsService(
                    self.database, DEFINITIONS, self.services, self.metrics.operations
                ),
                placement=self.placement,
                authenticate=self.authenticate,
                health=self.health,
                dump=lambda: dump.taken(self.database, self.directory.states),
                openapi=openapi,
            )
        )
        return _Prefixes(
            {"/moorage": control},
            compute_api(self.compute, authenticate=self.authenticate),
        )

    async def start(self) -> None:
        """Start every role of this process, and listen."""
        await self.signals.start()
        await self.placement.start()
        await self.directory.start()
        self._tasks.append(asyncio.create_task(self.placement.follower.run(), name="placement-follower"))
        if Role.API in self.roles:
            await self.link.start()
        if Role.CONDUCTOR in self.roles:
            await self.ovn.start(self.network)
            await self.runner.start()
            await self.housekeeping.start()
            await self.power_sync.start()
        if Role.API in self.roles:
            context = self.tls.context if self.tls is not None else None
            for name, app in self.apps.items():
                if name not in ("agent", "metrics"):
                    face = api_config.with_cors(self.conf, app)
                    port = self.conf[f"{name}_port"]
                    self.ports[name] = self.listeners.add(
                        face, self.conf.listen, port, tls=context, proxies=self.conf.trusted_proxies
                    )
            self._serve_agents()
        if self.tls is not None:
            self._tasks.append(asyncio.create_task(self.tls.run(self.conf.tls.reload_interval), name="tls"))
        self._serve_metrics()
        await self.listeners.start()

    def _serve_agents(self) -> None:
        assert self._authority is not None
        conf, tls = self.conf, AgentsTls(self._authority)
        self._tasks.append(asyncio.create_task(tls.run(), name="agents-tls"))
        limits = msgspec.structs.replace(api_config.limits(conf), connections=conf.agent_connections)
        add, add_unix = self.listeners.add, self.listeners.add_unix
        self.ports["agent"] = add(
            self.agent_app, conf.listen, conf.agent_port, tls=tls.context, limits=limits
        )
        if self._agent_socket is not None:
            add_unix(self.agent_app, self._agent_socket, tls=tls.context, limits=limits)

    def _serve_metrics(self) -> None:
        options = self.conf.metrics
        if options.enabled:
            port = options.port if Role.API in self.roles else options.conductor_port
            address = metrics_address(self.conf)
            # A token is not sent over the network in the clear.
            context = self.tls.context if self.tls is not None and options.token else None
            self.ports["metrics"] = self.listeners.add(self.apps["metrics"], address, port, tls=context)

    async def stop(self) -> None:
        """Stop listening, bring operations to their next record, give up the leases."""
        await self._stop_listening()
        if Role.CONDUCTOR in self.roles:
            await self.runner.stop()
        await self._end()

    async def kill(self) -> None:
        """Stop as if killed: nothing is handed over; for tests of take-over."""
        await self.runner.kill()
        await self._stop_listening()
        await self._end()

    async def _stop_listening(self) -> None:
        # Polls are held open for long: they are ended while no new ones are taken.
        closing = asyncio.ensure_future(self.listeners.stop())
        await asyncio.sleep(0)
        await self.link.stop()
        await closing

    async def _end(self) -> None:
        await self.power_sync.stop()
        await self.housekeeping.stop()
        await self.ovn.stop()
        await self.directory.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.signals.stop()
        for part in (self._token, self._images, self._proxy):
            with contextlib.suppress(OSError):
                await part.close()

    def url(self, api: str) -> str:
        """Where an API answers, without a path."""
        if api == "agent":
            return f"https://{self.conf.listen}:{self.ports[api]}"
        if api == "metrics":
            scheme = "https" if self.tls is not None and self.conf.metrics.token else "http"
            return f"{scheme}://{self.conf.metrics.listen}:{self.ports[api]}"
        return base_url(self.conf, self.ports[api])

    def reload(self) -> None:
        """Take what may change while the process runs: the APIs' certificate."""
        if self.tls is not None:
            self.tls.reload()


def operators_identity(conf: cfg.ConfigOpts) -> Identity:
    """Keystone and Glance as the configuration names them."""
    return Identity(
        auth_url=conf.identity_url,
        image_url=conf.image_url or f"http://{conf.listen}:{conf.image_port}",
        username=conf.identity_username,
        password=conf.identity_password or "",
    )


def database_of(conf: cfg.ConfigOpts, url: str) -> Database:
    """The database at a URL as the configuration wants it used; not open yet."""
    return Database(
        url,
        size=conf.database_connections,
        acquire_timeout=conf.database_acquire_timeout,
        statement_timeout=conf.database_statement_timeout,
    )


class _Prefixes:
    """Applications by the beginning of the path; all of them see the whole path."""

    def __init__(self, apps: dict[str, Any], otherwise: Any) -> None:
        self._apps = tuple(apps.items())
        self._otherwise = otherwise

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        for prefix, app in self._apps:
            if path.startswith(prefix):
                await app(scope, receive, send)
                return
        await self._otherwise(scope, receive, send)
