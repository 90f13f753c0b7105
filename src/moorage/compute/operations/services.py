"""What the steps of compute's operations find as ``step.app``."""

import msgspec

from moorage.agentlink.calls import Calls
from moorage.agentlink.service import AgentLink
from moorage.compute.operations.directory import Directory
from moorage.network.service import NetworkService
from moorage.placement.service import PlacementService


class OperationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``vif_plugging_timeout``: seconds a server's ports have to be plugged; ``image_path``: where hosts get images."""

    vif_plugging_timeout: float = 300.0
    command_timeout: float = 600.0
    image_path: str = "/agent/v1/images"


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """The domains that a server's operations call, each through its service."""

    network: NetworkService
    placement: PlacementService
    link: AgentLink
    calls: Calls
    directory: Directory
    settings: OperationSettings = OperationSettings()
