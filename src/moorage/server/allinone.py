"""The whole cloud in one process and its children: what ``moorage up`` runs.

PostgreSQL   embedded in the state folder, or the operator's by URL
Keystone, Glance   children, or the operator's by URL
OVN central  daemons, where the lab can run; they and the lab's hosts outlive this process on purpose
hosts        the lab, or simulated hosts in this process
"""

import asyncio
import contextlib
import fcntl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from oslo_config import cfg

from moorage.agent.fleet import Fleet
from moorage.agent.fleet import hosts as simulated_hosts
from moorage.agent.hypervisors.simulated import Behaviour
from moorage.children.bootstrap import Addresses
from moorage.children.services import find_venv
from moorage.children.upstreams import Upstreams, UpstreamsSettings
from moorage.core.log import get_logger
from moorage.lab import model as lab_model
from moorage.lab import up as lab
from moorage.lab.ovn import OvnCentral
from moorage.server import migrations
from moorage.server.cloud import Cloud, Identity, database_of, operators_identity
from moorage.server.state import StateFolder, StateUnusable
from moorage.server.threads import abandonable, ended
from moorage.server.tls import base_url
from moorage.store.embedded import EmbeddedPostgres

log = get_logger(__name__)
Say = Callable[[str], None]


class AllInOne:
    """Starts the parts in the order they need each other, and stops them in reverse.

    ``say`` gets a line for people at each stage.
    """

    def __init__(self, conf: cfg.ConfigOpts, say: Say = lambda _line: None) -> None:
        self.conf = conf
        self.state = StateFolder(Path(conf.state))
        self.say = say

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Cloud]:
        """The cloud, up while the block runs."""
        self.state.prepare()
        async with AsyncExitStack() as stack:
            stack.enter_context(self._lock())
            url = await self._postgres(stack)
            hosts = self._hosts_kind()
            if hosts == "lab":
                await self._ovn()
            identity = await self._identity(stack, url)
            cloud = await self._cloud(stack, url, identity)
            await self._bring_hosts(stack, cloud, hosts)
            yield cloud

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        with self.state.lock.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StateUnusable(f"another cloud runs in {self.state.root}") from error
            yield

    async def _postgres(self, stack: AsyncExitStack) -> str:
        conf = self.conf
        if conf.database_url:
            await abandonable(partial(migrations.upgrade, conf.database_url))
            return str(conf.database_url)
        self.say("PostgreSQL (embedded)")
        server = EmbeddedPostgres(self.state.postgres)
        stack.push_async_callback(asyncio.to_thread, server.stop)
        await ended(server.start, give_up=server.give_up)
        # Threads that ask it something end with it.
        await abandonable(partial(server.create, "moorage"))
        url = server.url("moorage")
        await abandonable(partial(migrations.upgrade, url))
        return url

    def _hosts_kind(self) -> str:
        wanted = str(self.conf.hosts)
        problems = lab.problems() if wanted in ("auto", "lab") else []
        if problems and wanted == "lab":
            raise StateUnusable(f"the lab cannot run here: {', '.join(problems)}")
        if problems:
            self.say(f"hosts are simulated, for real ones there is: {', '.join(problems)}")
        return "lab" if wanted in ("auto", "lab") and not problems else wanted.replace("auto", "simulated")

    async def _ovn(self) -> None:
        self.say("OVN central")
        central = OvnCentral(self.state.ovn)
        await ended(central.start_now, give_up=lambda: False)
        for option, value in (("ovn_nb", central.nb_socket), ("ovn_sb", central.sb_socket)):
            if not self.conf.network[option]:
                self.conf.set_override(option, value, "network")

    async def _identity(self, stack: AsyncExitStack, postgres: str) -> Identity:
        conf = self.conf
        if conf.identity_url:
            return operators_identity(conf)
        self.say("Keystone and Glance")
        upstreams = Upstreams(
            UpstreamsSettings(
                venv=find_venv(),
                state=self.state.root,
                postgres_url=postgres,
                host=conf.listen,
                identity_port=conf.identity_port,
                image_port=conf.image_port,
                addresses=addresses(conf),
                ca_file=conf.tls.ca_file,
            )
        )
        await upstreams.start()
        stack.push_async_callback(upstreams.stop)
        return Identity(
            auth_url=upstreams.auth_url,
            image_url=upstreams.addresses.image,
            username="moorage",
            password=upstreams.credentials["moorage"],
        )

    async def _cloud(self, stack: AsyncExitStack, url: str, identity: Identity) -> Cloud:
        self.say("APIs and conductor")
        database = database_of(self.conf, url)
        await database.open()
        stack.push_async_callback(database.close)
        cloud = Cloud(self.conf, database, identity, agent_socket=self.state.agent_socket)
        stack.push_async_callback(cloud.stop)
        await cloud.start()
        return cloud

    async def _bring_hosts(self, stack: AsyncExitStack, cloud: Cloud, kind: str) -> None:
        if kind == "lab":
            await self._lab(cloud)
        elif kind == "simulated" and self.conf.simulated_hosts:
            self.say(f"{self.conf.simulated_hosts} simulated hosts")
            fleet = Fleet(
                f"https+unix://{self.state.agent_socket}",
                simulated_hosts(self.conf.simulated_hosts),
                ticket=lambda host: _ticket(cloud, host),
                state_dir=self.state.simulated,
                behaviour=Behaviour.of(self.conf.simulated_latency, self.conf.simulated_fault_rate),
            )
            await fleet.start()
            stack.push_async_callback(fleet.stop)

    async def _lab(self, cloud: Cloud) -> None:
        self.say("the lab's hosts")
        loop = asyncio.get_running_loop()

        def enroll(host: str) -> str:
            return asyncio.run_coroutine_threadsafe(_ticket(cloud, host), loop).result(30)

        file = Path(self.conf.lab_file) if self.conf.lab_file else lab_model.default_file()
        given_up = threading.Event()

        def give_up() -> bool:
            given_up.set()
            return False

        build = partial(
            lab.up,
            file,
            self.state.lab,
            southbound=self.conf.network.ovn_sb,
            control_url=f"https+unix://{self.state.agent_socket}",
            enroll=enroll,
            progress=self.say,
            given_up=given_up,
        )
        await ended(build, give_up=give_up)


def addresses(conf: cfg.ConfigOpts) -> Addresses:
    """The catalogue's entries of our own APIs."""
    return Addresses(
        compute=f"{base_url(conf, conf.compute_port)}/v2.1",
        placement=base_url(conf, conf.placement_port),
        network=base_url(conf, conf.network_port),
    )


async def _ticket(cloud: Cloud, host: str) -> str:
    """A one-time enrolment ticket for a host."""
    async with cloud.database.transaction() as tx:
        return await cloud.link.enrolment.create_ticket(tx, host=host)
