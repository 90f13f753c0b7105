"""Options of placement."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "placement"
DEFAULT_INTERVAL = 0.25


def options() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options by group."""
    return [
        (
            GROUP,
            [
                cfg.FloatOpt(
                    "index_interval",
                    default=DEFAULT_INTERVAL,
                    min=0.01,
                    help="Seconds after which a process looks for claims made by others, if nothing woke it before.",
                ),
                cfg.IntOpt(
                    "change_log_keep",
                    default=3600,
                    min=1800,
                    help="Seconds for which rows of the change log are kept. A process that was cut off longer than"
                    " half an hour reads everything again.",
                ),
            ],
        )
    ]
