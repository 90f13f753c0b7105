"""What load balancers and Prometheus see of a whole cloud."""

import asyncio
import json
from typing import Any

import aiohttp

from moorage.core.ids import new_id
from moorage.store.database import Database
from tests.cloud.test_boot import flavor, network, server
from tests.server.test_metrics import samples
from tests.support.cloud import TestCloud, running_cloud
from tests.support.identity import Identity


async def ask(
    cloud: TestCloud, api: str, path: str, method: str = "GET", **headers: str
) -> tuple[int, Any, str]:
    """Status, headers and text of a request without a token."""
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request(method, cloud.cloud.url(api) + path) as answer,
    ):
        return answer.status, answer.headers, await answer.text()


async def test_every_port_says_whether_it_is_ready_and_strangers_learn_no_more(
    database: Database, identity: Identity
) -> None:
    async with running_cloud(database, identity, hosts=0) as cloud:
        admin, demo = await cloud.client("admin"), await cloud.client()
        apis = ("compute", "placement", "network", "metrics")
        async with asyncio.timeout(180):
            while not cloud.cloud.signals.connected:  # made beside the start, which does not wait for it
                await asyncio.sleep(0.01)
        for api in apis:
            for path in ("/healthcheck", "/healthcheck/live"):
                status, headers, text = await ask(cloud, api, path)
                assert (status, text) == (200, "OK")
                assert headers["content-type"].startswith("text/plain")
            assert (await ask(cloud, api, "/healthcheck", "HEAD"))[0] == 200
            assert (await ask(cloud, api, "/healthcheck", "POST"))[0] == 405
        report = await admin.get("compute", "/moorage/v1/health")
        assert report["ready"] is True
        assert [c["name"] for c in report["checks"]] == ["database", "schema", "index", "signals", "keystone"]
        assert (await demo.request("compute", "GET", "/moorage/v1/health"))[0] == 403
        assert (await ask(cloud, "compute", "/moorage/v1/health"))[0] == 401

        for task in cloud.cloud._tasks:  # the index stands still from now on, and did so for an hour
            task.cancel()
        await asyncio.wait(cloud.cloud._tasks)
        cloud.cloud.placement.follower._polled_at -= 3600
        async with asyncio.timeout(180):
            while (await ask(cloud, "network", "/healthcheck"))[0] == 200:
                await asyncio.sleep(0.1)
        status, headers, text = await ask(cloud, "compute", "/healthcheck")
        assert (status, headers["retry-after"], text) == (503, "5", "Service Unavailable")
        assert (await ask(cloud, "compute", "/healthcheck/live"))[0] == 200
        report = await admin.get("compute", "/moorage/v1/health")
        (wrong,) = [each for each in report["checks"] if not each["ok"]]
        assert wrong["name"] == "index"
        assert "s old" in wrong["reason"]


async def test_prometheus_reads_what_the_cloud_does(
    database: Database, identity: Identity, image_id: str
) -> None:
    async with running_cloud(database, identity, hosts=3) as cloud:
        demo = await cloud.client()
        net, size = await network(demo), await flavor(cloud)
        made = (await demo.make("compute", "/servers", server(image_id, size, net)))["server"]
        await demo.wait_for(made["id"], "ACTIVE")
        for _ in range(3):
            await demo.request("compute", "GET", f"/servers/{new_id()}")
            await demo.request("compute", "GET", f"/nothing/{new_id()}")
        await ask(cloud, "network", "/v2.0/networks")
        async with asyncio.timeout(180):
            while True:  # what has ended is counted once that is written down; keepers have their own pace
                status, headers, text = await ask(cloud, "metrics", "/metrics")
                assert status == 200
                found = samples(text)
                passes = found.get("moorage_keeper_last_pass_timestamp_seconds", {})
                ended = found["moorage_operation_duration_seconds_count"]
                if ended["server.boot", "done"] and ("housekeeping",) in passes:
                    break
                await asyncio.sleep(0.1)
        assert headers["content-type"].startswith("text/plain")
        assert made["id"] not in text
        requests = found["moorage_requests_total"]
        assert requests["compute", "/servers", "POST", "202"] == 1
        assert requests["compute", "/servers/{server_id}", "GET", "404"] == 3
        assert requests["compute", "", "GET", "404"] == 3
        took = found["moorage_request_duration_seconds_count"]
        assert took["compute", "/servers", "POST"] == 1
        assert found["moorage_hosts"][("up",)] == 3
        assert ended["server.boot", "done"] == 1
        assert ended["server.boot", "failed"] == ended["server.delete", "done"] == 0
        answers = found["moorage_step_answer_seconds_count"]
        assert answers == {("run", "server.boot", "succeeded", "spawn_guest"): 1}
        steps = found["moorage_step_duration_seconds_count"]
        assert min(steps["run", "server.boot", step] for step in ("create_ports", "spawn_guest")) >= 1
        assert steps["undo", "server.boot", "create_ports"] == 0
        assert found["moorage_placement_index_age_seconds"][()] < 60
        assert found["moorage_database_up"][()] == 1
        assert sum(found["moorage_database_connections"].values()) == database.size
        assert "process_open_fds" in found
        _, headers, text = await ask(cloud, "metrics", "/metrics", Accept="application/openmetrics-text")
        assert headers["content-type"].startswith("application/openmetrics-text")
        assert text.endswith("# EOF\n")
        for api in ("compute", "network", "placement"):
            assert (await ask(cloud, api, "/metrics"))[0] in (401, 404)


async def test_metrics_with_a_token_are_read_with_it_only(database: Database, identity: Identity) -> None:
    async with running_cloud(database, identity, hosts=0, metrics__token="secret") as cloud:
        assert (await ask(cloud, "metrics", "/metrics"))[0] == 401
        assert (await ask(cloud, "metrics", "/metrics", Authorization="Bearer other"))[0] == 401
        assert (await ask(cloud, "metrics", "/metrics", Authorization="Bearer secret"))[0] == 200
        assert (await ask(cloud, "metrics", "/else"))[0] == 404
        assert (await ask(cloud, "metrics", "/metrics", "DELETE"))[0] == 405


async def test_links_follow_a_trusted_proxy_and_nobody_else(database: Database, identity: Identity) -> None:
    async def scheme(cloud: TestCloud) -> str:
        _, _, text = await ask(cloud, "compute", "/", **{"X-Forwarded-Proto": "https"})
        return str(json.loads(text)["versions"][0]["links"][0]["href"]).partition(":")[0]

    async with running_cloud(database, identity, hosts=0, trusted_proxies=["127.0.0.1"]) as cloud:
        assert await scheme(cloud) == "https"
    async with running_cloud(database, identity, hosts=0) as cloud:
        assert await scheme(cloud) == "http"
