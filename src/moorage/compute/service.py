"""The compute service: its collaborators, passed down as one value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from moorage.compute.config import QUOTAS
from moorage.compute.hosts import Registry
from moorage.compute.images import Images
from moorage.compute.lifecycle import Lifecycle
from moorage.network.service import NetworkService
from moorage.store.database import Database


def _default_limits() -> dict[str, int]:
    return {name: default for name, (default, _) in QUOTAS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeService:
    """What compute's handlers and rules need. Holds no state of its own.

    ``registry`` is agentlink's; a host is down after ``service_down_time`` seconds without a report.
    ``limits`` are the configured quotas; ``max_limit`` bounds a page of a list.
    """

    database: Database
    networks: NetworkService
    images: Images
    lifecycle: Lifecycle
    registry: Registry
    service_down_time: float = 60.0
    default_zone: str = "nova"
    max_limit: int = 1000
    max_servers_per_request: int = 1000
    limits: Mapping[str, int] = field(default_factory=_default_limits)
