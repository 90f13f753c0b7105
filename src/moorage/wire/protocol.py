"""Protocol versions: a ladder. A fleet may be mixed; the control plane uses what every host concerned can do.

====  ============================================================================================
1     the agent asks for its network allocation itself
2     ports exist before the host is chosen
3     the control plane binds the ports; the agent gets finished VIFs with the spawn command
4     moves carry the mapping from ports to the resource providers that hold their guarantees
====  ============================================================================================
"""

AGENT_NETWORKING = 1
PORTS_FIRST = 2
FINISHED_VIFS = 3
MOVE_MAPPINGS = 4

PROTOCOL = MOVE_MAPPINGS
"""What this build speaks: every version from 1 up to this one."""

OLDEST = FINISHED_VIFS
"""The oldest agent that this control plane accepts: it hands out finished VIFs only."""
