"""What an administrator asks about placement: why there is no candidate, and how many more would fit."""

import io

from rich.console import Console

from moorage.cli.placement import show_capacity, show_explanation
from moorage.store.database import Database
from tests.support.cloud import running_cloud
from tests.support.identity import Identity


def printed(show: object, answer: object) -> str:
    console = Console(width=160, file=io.StringIO())
    show(answer, console)  # type: ignore[operator]
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


async def test_explain_and_capacity_of_a_cloud(database: Database, identity: Identity) -> None:
    async with running_cloud(database, identity, hosts=3) as cloud:
        admin, demo = await cloud.client("admin"), await cloud.client()
        base = "/moorage/v1/placement"
        query = "resources=VCPU:1,MEMORY_MB:512&resources_p=SRIOV_NET_VF:1&required_p=CUSTOM_PHYSNET_X"
        status, _ = await demo.request("compute", "GET", f"{base}/explain?resources=VCPU:1")
        assert status == 403
        status, body = await admin.request("compute", "GET", f"{base}/explain?{query}")
        assert (status, body["error"]["message"].split(":")[0]) == (400, "Unknown trait in the request")
        query = query.replace("CUSTOM_PHYSNET_X", "HW_NIC_SRIOV")
        found = await admin.get("compute", f"{base}/explain?{query}&limit=2")
        assert (found["considered"], found["serving"], len(found["roots"])) == (3, 0, 2)
        assert found["summary"] == "3 roots: 3 short of SRIOV_NET_VF for group _p"
        failure = found["roots"][0]["failures"][0]
        assert (failure["reason"], failure["needed"], failure["available"]) == ("absent", 1, 0)
        text = printed(show_explanation, found)
        assert "3  resources SRIOV_NET_VF (group _p)" in text

        counted = await admin.get("compute", f"{base}/capacity?resources=VCPU:1,MEMORY_MB:512")
        cells = (await admin.get("compute", f"{base}/dump"))["providers"]
        expected = 0
        for cell in cells:
            stock = cell.get("inventories", {})
            if "MEMORY_MB" in stock:
                free = {
                    rc: int((s["total"] - s.get("reserved", 0)) * s.get("allocation_ratio", 1.0))
                    for rc, s in stock.items()
                }
                expected += min(free["VCPU"], free["MEMORY_MB"] // 512)
        assert counted["everywhere"] == {"total": expected, "exact": True, "roots": 3}
        assert f"{expected}" in printed(show_capacity, counted)
