"""What bounds the callers of a whole cloud."""

from moorage.store.database import Database
from tests.support.cloud import running_cloud
from tests.support.identity import Identity


async def test_a_noisy_project_is_slowed_down_and_the_others_are_served(
    database: Database, identity: Identity
) -> None:
    async with running_cloud(database, identity, hosts=0, rate__requests=0.001, rate__burst=5) as cloud:
        demo, other, admin = [await cloud.client(user) for user in ("demo", "other", "admin")]
        paths = {"compute": "/servers", "network": "/networks", "placement": "/"}
        statuses = [(await demo.request("compute", "GET", "/servers"))[0] for _ in range(7)]
        assert statuses == [200] * 5 + [429] * 2
        assert (await demo.request("network", "GET", "/networks"))[0] == 429
        for api, path in paths.items():
            assert (await other.request(api, "GET", path))[0] == 200
        for _ in range(10):
            assert (await admin.request("compute", "GET", "/servers"))[0] == 200
