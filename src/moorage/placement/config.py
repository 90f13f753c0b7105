"""Options of placement."""

from __future__ import annotations

import msgspec
from oslo_config import cfg

GROUP = "placement"
BREADTH, DEPTH = "breadth-first", "depth-first"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a placement service, as `options` describes them."""

    index_interval: float = 0.25
    index_max_age: float = 0.0
    max_allocation_candidates: int = 10_000
    allocation_candidates_generation_strategy: str = BREADTH
    randomize_allocation_candidates: bool = False

    @classmethod
    def of(cls, conf: cfg.ConfigOpts) -> Settings:
        """Read them."""
        return cls(**{name: conf[GROUP][name] for name in cls.__struct_fields__})

    @property
    def breadth_first(self) -> bool:
        """Every host's first candidate before any host's second."""
        return self.allocation_candidates_generation_strategy == BREADTH


_DEFAULTS = Settings()


def options() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options by group."""
    return [
        (
            GROUP,
            [
                cfg.FloatOpt(
                    "index_interval",
                    default=_DEFAULTS.index_interval,
                    min=0.01,
                    help="Seconds after which a process looks for claims made by others, if nothing woke it before.",
                ),
                cfg.FloatOpt(
                    "index_max_age",
                    default=_DEFAULTS.index_max_age,
                    min=0.0,
                    help="Seconds that the index may be behind when a search is answered from it. With 0 a search knows"
                    " of everything that was committed before it, by whatever process. A request can ask for its own"
                    " by the header X-Moorage-Index-Max-Age.",
                ),
                cfg.IntOpt(
                    "max_allocation_candidates",
                    default=_DEFAULTS.max_allocation_candidates,
                    min=-1,
                    help="The most candidates that a search gives, with or without a limit; -1 for no maximum.",
                ),
                cfg.StrOpt(
                    "allocation_candidates_generation_strategy",
                    default=BREADTH,
                    choices=[
                        (BREADTH, "every host's first candidate before any host's second"),
                        (DEPTH, "all candidates of a host, then those of the next"),
                    ],
                    help="The order in which candidates are found, and so which are cut off by a limit.",
                ),
                cfg.BoolOpt(
                    "randomize_allocation_candidates",
                    default=_DEFAULTS.randomize_allocation_candidates,
                    help="Whether a search takes hosts at random, so that a limit does not always give the same ones."
                    " Otherwise they come in the order in which they were made.",
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
