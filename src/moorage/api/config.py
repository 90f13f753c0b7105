"""Options of what every API shares: [limits], [rate], [cors]."""

from typing import Any

from oslo_config import cfg

from moorage.api.auth import Authenticator
from moorage.api.cors import Cors
from moorage.api.limits import Limits
from moorage.api.rates import ProjectRates, Rate, rated
from moorage.core.config import Group


def options() -> list[Group]:
    """The groups of the API kit."""
    return [("limits", _limits()), ("rate", _rate()), ("cors", _cors())]


def limits(conf: cfg.ConfigOpts) -> Limits:
    """The limits of a loaded configuration."""
    return Limits(**{name: conf.limits[name] for name in Limits.__struct_fields__})


def with_rate(conf: cfg.ConfigOpts, authenticate: Authenticator) -> Authenticator:
    """The authenticator, counting the requests of each project where a rate is configured."""
    if not conf.rate.requests:
        return authenticate
    rate = Rate(
        requests=conf.rate.requests,
        burst=conf.rate.burst,
        exempt_roles=frozenset(role.lower() for role in conf.rate.exempt_roles),
    )
    return rated(authenticate, ProjectRates(rate))


def with_cors(conf: cfg.ConfigOpts, app: Any) -> Any:
    """The ASGI application, with permissions for pages of other origins where any is configured."""
    if not conf.cors.allowed_origin:
        return app
    return Cors(
        app,
        allow_origins=conf.cors.allowed_origin,
        allow_methods=conf.cors.allow_methods,
        allow_headers=conf.cors.allow_headers,
        allow_credentials=conf.cors.allow_credentials,
        expose_headers=conf.cors.expose_headers,
        max_age=conf.cors.max_age,
    )


def _cors() -> list[cfg.Opt]:
    # By the names that upstream's services have for them.
    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
    sent = ["x-auth-token", "openstack-api-version", "x-openstack-nova-api-version"]
    read = ["x-openstack-request-id", "openstack-api-version", "x-openstack-nova-api-version", "location"]
    return [
        cfg.ListOpt("allowed_origin", default=[], help="Origins whose pages may call the APIs, such as https://dashboard.example.com; * for all. Default: none."),
        cfg.ListOpt("allow_methods", default=methods, help="Methods that such a page may use."),
        cfg.ListOpt("allow_headers", default=sent, help="Headers that it may send besides the simple ones."),
        cfg.ListOpt("expose_headers", default=read, help="Headers of an answer that it may read besides the simple ones."),
        cfg.BoolOpt("allow_credentials", default=False, help="Whether it may send the browser's credentials."),
        cfg.IntOpt("max_age", default=3600, min=0, help="Seconds for which a browser may remember the permission."),
    ]  # fmt: skip


def _rate() -> list[cfg.Opt]:
    return [
        cfg.FloatOpt("requests", default=0.0, min=0, help="Requests a second that a project may send to this process; more are answered with 429 and Retry-After. 0: any number."),
        cfg.IntOpt("burst", default=100, min=1, help="How many of them may come at once."),
        cfg.ListOpt("exempt_roles", default=["admin", "service"], help="Callers with one of these roles are not counted."),
    ]  # fmt: skip


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
