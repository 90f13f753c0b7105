"""``moorage server explain``: why a server is where it is, as its owner and as an administrator read it."""

from moorage.cli.explain import render
from moorage.store.database import Database
from tests.cloud.test_boot import flavor, network, server
from tests.cloud.test_placement_answers import printed
from tests.support.cloud import running_cloud
from tests.support.identity import Identity


async def test_an_owner_sees_ranks_and_an_administrator_scores_too(
    database: Database, identity: Identity, image_id: str
) -> None:
    async with running_cloud(database, identity, hosts=3) as cloud:
        admin, demo = await cloud.client("admin"), await cloud.client()
        net, size = await network(demo), await flavor(cloud)
        made = (await demo.make("compute", "/servers", server(image_id, size, net)))["server"]
        found = await demo.wait_for(made["id"], "ACTIVE", "ERROR")
        assert found["status"] == "ACTIVE", found
        path = f"/moorage/v1/servers/{made['id']}/placement"
        owners, admins = await demo.get("compute", path), await admin.get("compute", path)
        [seen], [whole] = owners["attempts"], admins["attempts"]
        assert [each["score"] for each in seen["ranking"]] == [None] * 3
        assert all(isinstance(each["score"], float) for each in whole["ranking"])
        assert seen["chosen"] == found["hostId"]
        text = printed(render, owners)
        assert "score" not in text
        assert not [host for host in cloud.fleet.agents if host in text]
        rows = [
            [cell.strip() for cell in line.strip("│").split("│")]
            for line in text.splitlines()
            if "rank" in line
        ]
        assert [row[1:] for row in rows] == [
            ["chosen", "rank 1"],
            ["suitable", "rank 2"],
            ["suitable", "rank 3"],
        ]
        text = printed(render, admins)
        assert f"rank 1, score {whole['ranking'][0]['score']}" in text
        assert whole["chosen"] in text
