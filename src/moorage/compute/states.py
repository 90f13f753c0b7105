"""The states of a server and the status that the API shows for them.

Source: upstream's vm, task and power states; ``status_of`` is its table from (vm_state, task_state) to status.
"""

from enum import IntEnum


class Vm:
    """Stable states."""

    BUILDING = "building"
    ACTIVE = "active"
    PAUSED = "paused"
    SUSPENDED = "suspended"
    STOPPED = "stopped"
    RESCUED = "rescued"
    RESIZED = "resized"
    SOFT_DELETED = "soft-delete"
    DELETED = "deleted"
    ERROR = "error"
    SHELVED = "shelved"
    SHELVED_OFFLOADED = "shelved_offloaded"


class Task:
    """What is being done to a server now; None when nothing is."""

    SCHEDULING = "scheduling"
    NETWORKING = "networking"
    SPAWNING = "spawning"
    DELETING = "deleting"
    POWERING_OFF = "powering-off"
    POWERING_ON = "powering-on"
    REBOOTING = "rebooting"
    REBOOTING_HARD = "rebooting_hard"


class Power(IntEnum):
    """What the hypervisor says."""

    NOSTATE = 0
    RUNNING = 1
    PAUSED = 3
    SHUTDOWN = 4
    CRASHED = 6
    SUSPENDED = 7


_STATUS: dict[str, str] = {
    Vm.BUILDING: "BUILD",
    Vm.ACTIVE: "ACTIVE",
    Vm.PAUSED: "PAUSED",
    Vm.SUSPENDED: "SUSPENDED",
    Vm.STOPPED: "SHUTOFF",
    Vm.RESCUED: "RESCUE",
    Vm.RESIZED: "VERIFY_RESIZE",
    Vm.SOFT_DELETED: "SOFT_DELETED",
    Vm.DELETED: "DELETED",
    Vm.ERROR: "ERROR",
    Vm.SHELVED: "SHELVED",
    Vm.SHELVED_OFFLOADED: "SHELVED_OFFLOADED",
}

_REBOOTS = {
    "rebooting": "REBOOT",
    "reboot_pending": "REBOOT",
    "reboot_started": "REBOOT",
    "rebooting_hard": "HARD_REBOOT",
    "reboot_pending_hard": "HARD_REBOOT",
    "reboot_started_hard": "HARD_REBOOT",
}
_REBUILDS = dict.fromkeys(("rebuilding", "rebuild_block_device_mapping", "rebuild_spawning"), "REBUILD")
_RESIZES = dict.fromkeys(("resize_prep", "resize_migrating", "resize_migrated", "resize_finish"), "RESIZE")

_OVERLAYS: dict[str, dict[str, str]] = {
    Vm.ACTIVE: {
        **_REBOOTS, **_REBUILDS, **_RESIZES, "updating_password": "PASSWORD", "migrating": "MIGRATING",
    },
    Vm.STOPPED: {**_REBUILDS, **_RESIZES},
    Vm.RESIZED: {"resize_reverting": "REVERT_RESIZE"},
    Vm.PAUSED: {"migrating": "MIGRATING"},
    Vm.ERROR: _REBUILDS,
}  # fmt: skip


def status_of(vm_state: str, task_state: str | None) -> str:
    """The API's status, such as ACTIVE or HARD_REBOOT."""
    if task_state is not None:
        overlay = _OVERLAYS.get(vm_state, {}).get(task_state)
        if overlay is not None:
            return overlay
    return _STATUS.get(vm_state, "UNKNOWN")


def states_of(status: str) -> tuple[list[str], dict[str, list[str]]] | None:
    """The inverse for filters: (vm_states shown so when no overlay holds, {vm_state: overlaying tasks}).

    None for a status that does not exist.
    """
    wanted = status.upper()
    plain = [vm for vm, name in _STATUS.items() if name == wanted]
    overlaid: dict[str, list[str]] = {}
    for vm, tasks in _OVERLAYS.items():
        for task, name in tasks.items():
            if name == wanted:
                overlaid.setdefault(vm, []).append(task)
    return (plain, overlaid) if plain or overlaid else None


def overlaying_tasks(vm_state: str) -> list[str]:
    """Tasks during which a server in ``vm_state`` shows another status."""
    return list(_OVERLAYS.get(vm_state, {}))
