"""``kill -9`` of the whole control plane, again and again, while a user boots and deletes."""

import random
import shutil
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from keystoneauth1.exceptions import ClientException

from support.program import MoorageUp, end_processes_of, processes_of
from tests.support.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK50Warning"),
    pytest.mark.filterwarnings("ignore::openstack.warnings.RemovedInSDK60Warning"),
]
KILLS, USERS = 3, 6


@pytest.fixture
def cloud() -> Iterator[MoorageUp]:
    state = Path(tempfile.mkdtemp(prefix="mk-"))
    unlimited = {f"quota_{name}": -1 for name in ("instances", "cores", "ram")}
    made = MoorageUp(state, hosts="simulated", simulated_hosts=5, conductor_lease=2, **unlimited)
    try:
        yield made
    finally:
        made.stop()
        left = end_processes_of(state)
    assert left == {}
    shutil.rmtree(state)


class Asked:
    """What the users have asked for: what was accepted, and what may have been, as the answer did not come."""

    def __init__(self) -> None:
        self.booted: list[str] = []
        self.deleted: set[str] = set()
        self.unsure_boots = 0
        self.unsure_deletes: set[str] = set()
        self._alive: list[str] = []
        self._lock = threading.Lock()

    @property
    def accepted(self) -> int:
        """Requests."""
        return len(self.booted) + len(self.deleted)

    def boot(self, server_id: str) -> None:
        """A boot was accepted."""
        with self._lock:
            self.booted.append(server_id)
            self._alive.append(server_id)

    def to_delete(self, chance: random.Random) -> str | None:
        """A server that nobody deletes yet, once there are some."""
        with self._lock:
            if len(self._alive) < 6:
                return None
            return self._alive.pop(chance.randrange(len(self._alive)))


def test_a_control_plane_that_is_killed_again_and_again_loses_nothing(cloud: MoorageUp) -> None:
    chance = random.Random(20)
    cloud.start()
    body, asked = prepare(cloud), Asked()
    in_the_middle = kills = 0
    while in_the_middle < KILLS:
        assert kills < 4 * KILLS, "it is never killed while something is under way"
        assert upstreams(cloud)
        database = postmaster(cloud)
        work(cloud, body, asked, chance, enough=chance.randint(15, 40))
        kills += 1
        in_the_middle += under_way(cloud) > 0
        # Keystone and Glance go with it; PostgreSQL, its data whole, is taken over by the next one.
        until(lambda: not upstreams(cloud), "Keystone and Glance end")
        cloud.start()
        assert postmaster(cloud) == database
    work(cloud, body, asked, chance, enough=None)

    assert asked.booted
    assert asked.deleted
    until(lambda: not operations(cloud, "open"), "every operation ends")
    assert {o["state"] for o in operations(cloud, "all")} <= {"done", "failed", "cancelled"}
    check_servers(cloud, asked)
    # What hosts report is held against the cloud once it is as old as a heartbeat.
    until(lambda: cloud.command("audit").returncode == 0, "the audit is clean")


def prepare(cloud: MoorageUp) -> dict[str, Any]:
    """An image, a flavor, a network; what a boot asks for."""
    user, admin = cloud.connect(), cloud.connect("moorage-admin")
    image = admin.image.create_image(
        "tiny", data=bytes(1024), disk_format="raw", container_format="bare", visibility="public"
    )
    flavor = admin.compute.create_flavor(name="tiny", vcpus=1, ram=64, disk=1)
    net = user.network.create_network(name="net")
    user.network.create_subnet(network_id=net.id, ip_version=4, cidr="10.66.0.0/22")
    until(
        lambda: len([h for h in admin.compute.hypervisors() if h.state == "up"]) == 5,
        "the simulated hosts are up",
    )
    networks = [{"uuid": net.id}]
    return {"server": {"name": "s", "imageRef": image.id, "flavorRef": flavor.id, "networks": networks}}


def work(
    cloud: MoorageUp, body: dict[str, Any], asked: Asked, chance: random.Random, enough: int | None
) -> None:
    """Boots and deletes by several users at once, until the cloud is killed as it has accepted ``enough``; else a dozen."""
    connection = cloud.connect()
    connection.authorize()
    compute = connection.compute
    compute.get("/servers")
    chances = [random.Random(chance.random()) for _ in range(USERS)]

    def user(own: random.Random) -> None:
        requests = 0
        while enough is not None or requests < 12 // USERS:
            requests += 1
            mine = asked.to_delete(own) if own.random() < 0.4 else None
            if not (delete(compute, asked, mine) if mine else boot(compute, asked, body)):
                return

    with ThreadPoolExecutor(USERS) as pool:
        users = [pool.submit(user, own) for own in chances]
        if enough is not None:
            before = asked.accepted
            until(lambda: asked.accepted >= before + enough or any(u.done() for u in users), "requests")
            cloud.kill()
    for each in users:
        each.result()


def boot(compute: Any, asked: Asked, body: dict[str, Any]) -> bool:
    """Whether the cloud still answers."""
    try:
        answer = compute.post("/servers", json=body, connect_retries=0)
    except ClientException:
        asked.unsure_boots += 1
        return False
    assert answer.status_code == 202, answer.text
    asked.boot(answer.json()["server"]["id"])
    return True


def delete(compute: Any, asked: Asked, server: str) -> bool:
    """Ask for a server's end. Whether the cloud still answers."""
    try:
        answer = compute.delete(f"/servers/{server}", connect_retries=0)
    except ClientException:
        asked.unsure_deletes.add(server)
        return False
    assert answer.status_code == 204, answer.text
    asked.deleted.add(server)
    return True


def check_servers(cloud: MoorageUp, asked: Asked) -> None:
    """Every accepted boot has its server, in a state that says how it ended; every accepted delete has none."""
    compute = cloud.connect().compute
    found = {server.id: server for server in compute.servers()}
    assert set(asked.booted) - asked.deleted - asked.unsure_deletes <= set(found)
    assert not asked.deleted & set(found)
    # A boot whose answer was lost with the connection may have been accepted; nothing else may be there.
    assert len(set(found) - set(asked.booted)) <= asked.unsure_boots
    for server in found.values():
        assert server.status == "ACTIVE" or (server.status == "ERROR" and server.fault["message"]), server
    assert any(server.status == "ACTIVE" for server in found.values())


def operations(cloud: MoorageUp, state: str) -> list[dict[str, Any]]:
    admin = cloud.connect("moorage-admin")
    url = f"{cloud.url('compute')}/moorage/v1/operations?limit=1000&state={state}"
    return list(admin.session.get(url).json()["operations"])


def under_way(cloud: MoorageUp) -> int:
    """Operations that are not ended, as the database has them."""
    url = f"postgresql://postgres@/moorage?host={cloud.state}/postgres"
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM operations WHERE state IN ('ready', 'running', 'waiting')"
        ).fetchone()
    assert row is not None
    return int(row[0])


def upstreams(cloud: MoorageUp) -> list[int]:
    return [pid for pid, line in processes_of(cloud.state).items() if "serve_upstream" in line]


def postmaster(cloud: MoorageUp) -> int:
    """PostgreSQL's process."""
    return int((cloud.state / "postgres" / "postmaster.pid").read_text().split()[0])
