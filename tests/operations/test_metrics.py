"""What conductors count: each end once, by whichever of them, and how long hosts took to answer."""

from prometheus_client import CollectorRegistry

from moorage.core.errors import Conflict
from moorage.operations.metrics import OperationMetrics
from moorage.operations.model import FINISHED
from operations.conftest import Conductor
from operations.world import Fault, World, eventually
from tests.support.points import Point


def count(registries: list[CollectorRegistry], name: str, **labels: str) -> float:
    """Over several processes, as Prometheus adds them up; what is not shown at all is an error."""
    found = [r.get_sample_value(f"{name}_count", labels) for r in registries]
    assert any(value is not None for value in found), (name, labels)
    return sum(value or 0.0 for value in found)


async def test_every_end_is_counted_once_by_kind_and_outcome(world: World, conductor: Conductor) -> None:
    registries = [CollectorRegistry() for _ in range(2)]
    fault = Fault("server:0", Point("finish", "before"), Conflict("injected"), times=100)
    for registry in registries:
        await conductor(metrics=OperationMetrics(registry), faults=fault, concurrency=2)

    def ended(outcome: str) -> float:
        return count(registries, "moorage_operation_duration_seconds", kind="test.boot", outcome=outcome)

    assert ended("done") == ended("failed") == 0, "there from the beginning, so that an increase is seen"
    ids = [await world.begin(f"server:{n}") for n in range(8)]
    assert [await world.ended(each) for each in ids] == ["failed", *["done"] * 7]
    bad = await world.begin("server:bad", bad=["h1"])
    assert await world.ended(bad) == "done"

    async def counted() -> bool:
        return sum(map(ended, FINISHED)) >= 9

    await eventually(counted)  # a moment after the commit
    assert [ended(each) for each in FINISHED] == [8, 1, 0, 0]

    def answered(direction: str, outcome: str) -> float:
        labels = {"kind": "test.boot", "step": "make_guest", "direction": direction, "outcome": outcome}
        return count(registries, "moorage_step_answer_seconds", **labels)

    assert (answered("run", "succeeded"), answered("run", "refused")) == (9, 1)
    assert answered("undo", "succeeded") == 2
