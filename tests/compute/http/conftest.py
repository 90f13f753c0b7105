"""The compute API over a real database, with the services it uses; hosts are enrolled, nothing runs on them.

Operations are submitted as in production and not run: what they lead to is set by the same functions that they call.
"""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from moorage.agent import identity
from moorage.agentlink.calls import Calls
from moorage.agentlink.service import AgentLink
from moorage.api import Api, RequestContext
from moorage.api.policy import Policies
from moorage.compute import server_state
from moorage.compute.errors import ImageNotUsable
from moorage.compute.http.control import CONTROL_ENDPOINTS, CONTROL_POLICIES
from moorage.compute.http.routes import compute_api
from moorage.compute.images import Image
from moorage.compute.operations.directory import Directory
from moorage.compute.operations.lifecycle import OperationLifecycle
from moorage.compute.operations.services import Services
from moorage.compute.service import ComputeService
from moorage.core.errors import Unauthorized
from moorage.network.config import NetworkSettings
from moorage.network.model import RequestedNic
from moorage.network.networks import NetworkSpec
from moorage.network.segmentation import SegmentRules, SegmentSpec
from moorage.network.service import NetworkService
from moorage.network.subnets import SubnetSpec
from moorage.placement.service import PlacementService
from moorage.store.database import Database, Tx
from moorage.store.signals import Signals
from moorage.wire.messages import EnrollRequest, HostReport
from moorage.wire.tickets import Ticket
from tests.support.authority import AUTHORITY

P1 = "11111111111111111111111111111111"
P2 = "22222222222222222222222222222222"
ADMINS = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
IMAGE = "10000000-0000-4000-8000-000000000001"
BIG_IMAGE = "10000000-0000-4000-8000-000000000002"
QUEUED_IMAGE = "10000000-0000-4000-8000-000000000003"
NOWHERE = "00000000-0000-4000-8000-000000000000"


class Shelf:
    """An image service with three images."""

    images: Mapping[str, Image] = {
        IMAGE: Image(
            id=IMAGE, name="small", size=1 << 20, disk_format="raw", os_hash_algo="sha512", os_hash_value="0"
        ),
        BIG_IMAGE: Image(id=BIG_IMAGE, name="big", size=1 << 40),
        QUEUED_IMAGE: Image(id=QUEUED_IMAGE, name="queued", status="queued"),
    }

    async def get(self, image_id: str, _token: str | None) -> Image:
        if image_id not in self.images:
            raise ImageNotUsable(f"Image {image_id} could not be found.", field="server.imageRef")
        return self.images[image_id]


async def check(headers: Mapping[str, str], request_id: str) -> RequestContext:
    """Tokens here say who they are: PROJECT:USER:ROLE+ROLE."""
    token = headers.get("x-auth-token")
    if token is None:
        raise Unauthorized("who?")
    project, user, roles = token.split(":")
    return RequestContext(
        request_id=request_id,
        project_id=project,
        user_id=user,
        roles=frozenset(roles.split("+")),
        token=token,
    )


class Client:
    """One user of the API."""

    def __init__(self, http: httpx.AsyncClient, token: str) -> None:
        self._http, self._token = http, token

    async def raw(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        version: str = "2.96",
        root: str = "/v2.1",
        **more: Any,
    ) -> httpx.Response:
        headers = {"X-Auth-Token": self._token, "OpenStack-API-Version": f"compute {version}"}
        return await self._http.request(
            method, f"http://cloud{root}{path}", json=body, headers=headers, **more
        )

    async def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        status: int = 200,
        *,
        version: str = "2.96",
        **more: Any,
    ) -> Any:
        answer = await self.raw(method, path, body, version=version, **more)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    async def flavor(self, flavor_id: str = "1", **more: Any) -> dict[str, Any]:
        """A new flavor: 1 CPU, 512 MiB, 1 GiB."""
        body = {"name": f"f{flavor_id}", "id": flavor_id, "ram": 512, "vcpus": 1, "disk": 1, **more}
        return (await self("POST", "/flavors", {"flavor": body}))["flavor"]

    async def server(self, name: str = "s", *, version: str = "2.96", **more: Any) -> str:
        """The id of a new server, which is being built."""
        body = {"name": name, "flavorRef": "1", "imageRef": IMAGE, "networks": "none", **more}
        return (await self("POST", "/servers", {"server": body}, 202, version=version))["server"]["id"]


class World:
    """The service and what its surroundings are made of."""

    def __init__(
        self, database: Database, service: ComputeService, link: AgentLink, http: httpx.AsyncClient
    ) -> None:
        self.database = database
        self.service = service
        self.link = link
        self.http = http

    def client(self, project: str, roles: str = "member+reader", user: str = "u1") -> Client:
        return Client(self.http, f"{project}:{user}:{roles}")

    async def network(self, project_id: str = P1, name: str = "net", cidr: str = "10.0.0.0/24") -> str:
        networks = self.service.networks
        async with self.database.transaction() as tx:
            spec = NetworkSpec(name=name, segment=SegmentSpec())
            made = await networks.networks.create(tx, project_id=project_id, spec=spec)
            if cidr:
                subnet = SubnetSpec(cidr=cidr, ip_version=4)
                await networks.subnets.create(tx, project_id=project_id, network=made, spec=subnet)
        return made.id

    async def host(self, name: str, vcpus: int = 8) -> None:
        """Enrol a host and let it report."""
        async with self.database.transaction() as tx:
            ticket = Ticket.parse(await self.link.enrolment.create_ticket(tx, host=name))
        csr = identity.request_for(identity.new_key())
        await self.link.enroll(
            EnrollRequest(token=ticket.token, csr=csr, name=name, protocol=4, agent_version="1")
        )
        report = HostReport(
            vcpus=vcpus,
            memory_mb=16384,
            disk_gb=100,
            hypervisor_type="simulated",
            hypervisor_version=1000,
            cpu_arch="x86_64",
            datapath="simulated",
            protocol=4,
            agent_version="1",
            cpu_info={"model": "none"},
        )
        await self.link.report(name, report)

    async def run(self, server_id: str, host: str, zone: str = "nova") -> None:
        """What a boot does to the server's row, and to its ports."""
        async with self.database.transaction() as tx:
            server = await server_state.get(tx, server_id)
            assert server is not None
            nics = [RequestedNic(**n) for n in server.requested_networks]
            await self.service.networks.prepare_ports(
                tx,
                server_id=server_id,
                project_id=server.project_id,
                requested=nics,
                security_groups=server.security_groups,
            )
            await server_state.placed(tx, server_id, host=host, zone=zone)
            await server_state.running(tx, server_id)

    async def statements(self, call: Any) -> int:
        """How many statements a request runs."""
        counted: list[Tx] = []
        original = Tx.__init__

        def count(tx: Tx, connection: Any) -> None:
            original(tx, connection)
            counted.append(tx)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Tx, "__init__", count)
            await call
        return sum(tx.statements for tx in counted)


async def _no_host(_tx: Any, _name: str) -> None:
    return None


@pytest.fixture
async def world(database: Database) -> Any:
    signals = Signals(database)
    link = AgentLink(database, signals, authority=AUTHORITY)
    networks = NetworkService(
        NetworkSettings(rules=SegmentRules(project_types=("geneve",)), quotas={}), hosts=_no_host, seed=1
    )
    services = Services(
        network=networks,
        placement=PlacementService(database),
        link=link,
        calls=Calls(database, signals, link),
        directory=Directory(database, signals, link),
    )
    service = ComputeService(
        database=database,
        networks=networks,
        images=Shelf(),
        lifecycle=OperationLifecycle(database, services),
        registry=link.registry,
    )
    compute = compute_api(service, authenticate=check)
    control = Api(
        "control",
        service,
        CONTROL_ENDPOINTS,
        "control",
        None,
        policies=Policies(CONTROL_POLICIES),
        authenticate=check,
        prefix="/moorage/v1",
    )

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await (control if scope["path"].startswith("/moorage") else compute)(scope, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app)) as http:
        yield World(database, service, link, http)


@pytest.fixture
def member(world: World) -> Client:
    return world.client(P1)


@pytest.fixture
def reader(world: World) -> Client:
    return world.client(P1, "reader")


@pytest.fixture
def other(world: World) -> Client:
    return world.client(P2, user="u2")


@pytest.fixture
def admin(world: World) -> Client:
    return world.client(ADMINS, "admin+member+reader", "boss")


@pytest.fixture
async def flavor(admin: Client) -> dict[str, Any]:
    return await admin.flavor()
