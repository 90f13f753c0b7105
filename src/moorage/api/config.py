"""Options of what every API shares: [limits]."""

from oslo_config import cfg

from moorage.api.limits import Limits
from moorage.core.config import Group


def options() -> list[Group]:
    """The groups of the API kit."""
    return [("limits", _limits())]


def limits(conf: cfg.ConfigOpts) -> Limits:
    """The limits of a loaded configuration."""
    return Limits(**{name: conf.limits[name] for name in Limits.__struct_fields__})


def _limits() -> list[cfg.Opt]:
    usual = Limits()
    size, count, seconds = cfg.IntOpt, cfg.IntOpt, cfg.FloatOpt
    return [
        size("body", default=usual.body, min=1024, help="Bytes of a request's body; more is answered with 413. Hosts' results may be 16 MiB."),
        size("url", default=usual.url, min=256, help="Bytes of a request's URL; more is answered with 414."),
        size("headers", default=usual.headers, min=1024, help="Bytes of a request's headers together; more is answered with 431."),
        count("header_count", default=usual.header_count, min=10, help="How many headers a request may have; more is answered with 431."),
        count("query_parameters", default=usual.query_parameters, min=1, help="How many parameters a query may have; more is answered with 400."),
        count("json_depth", default=usual.json_depth, min=8, help="How deep lists and objects of a body may be nested; more is answered with 400."),
        seconds("head_seconds", default=usual.head_seconds, min=0.05, help="Seconds from a request's first byte, or from the connection's beginning, to the end of its headers; then 408, or the connection is closed."),
        seconds("body_seconds", default=usual.body_seconds, min=0.05, help="Seconds that a request's body may take to arrive; then 408."),
        seconds("idle_seconds", default=usual.idle_seconds, min=0.05, help="Seconds that a connection may stay open without a request."),
        seconds("answer_seconds", default=usual.answer_seconds, min=0.05, help="A client that takes less than 64 KiB of a waiting answer in so many seconds is cut off."),
        count("connections", default=usual.connections, min=1, help="Connections to one port; requests on those above it are answered with 503."),
    ]  # fmt: skip
