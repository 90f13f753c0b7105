"""Options of compute."""

from oslo_config import cfg

from moorage.core.config import Group

QUOTAS = {
    "instances": (10, "servers a project may have"),
    "cores": (20, "virtual CPUs of a project's servers together"),
    "ram": (50 * 1024, "MiB of memory of a project's servers together"),
    "metadata_items": (128, "metadata items a server may have"),
    "key_pairs": (100, "keypairs a user may have"),
    "server_groups": (10, "server groups a project may have"),
    "server_group_members": (10, "servers a server group may have"),
}


def options() -> list[Group]:
    """[compute] and [quota]; a limit of -1 is no limit."""
    compute: list[cfg.Opt] = [
        cfg.StrOpt(
            "default_availability_zone",
            default="nova",
            help="Zone of hosts that are in no aggregate with a zone.",
        ),
        cfg.IntOpt("max_limit", default=1000, min=1, help="Most items that one page of a list holds."),
        cfg.IntOpt(
            "image_cache_seconds", default=30, min=0, help="How long what the image service said is believed."
        ),
        cfg.IntOpt(
            "max_servers_per_request", default=1000, min=1, help="Most servers that one request may create."
        ),
        cfg.FloatOpt(
            "power_sync_interval",
            default=60.0,
            min=0.1,
            help="Seconds between comparisons of ACTIVE servers with the guests that hosts report, without a signal.",
        ),
        cfg.FloatOpt(
            "power_sync_grace",
            default=60.0,
            min=0.0,
            help="Seconds that a server must have been ACTIVE before its host's report counts against it. More than "
            "a report can be on its way.",
        ),
    ]
    quota: list[cfg.Opt] = [
        cfg.IntOpt(name, default=default, min=-1, help=f"Default limit: {text}.")
        for name, (default, text) in QUOTAS.items()
    ]
    return [("compute", compute), ("quota", quota)]
