"""The kit every HTTP face is made of: endpoint tables, versions, tokens, policy, faults."""

from moorage.api.app import Api
from moorage.api.call import Call, Reply
from moorage.api.context import RequestContext
from moorage.api.endpoint import ALWAYS, NO_QUERY, Endpoint, Query, between, names, since, until
from moorage.api.versions import Version, VersionScheme

__all__ = [
    "ALWAYS",
    "NO_QUERY",
    "Api",
    "Call",
    "Endpoint",
    "Query",
    "Reply",
    "RequestContext",
    "Version",
    "VersionScheme",
    "between",
    "names",
    "since",
    "until",
]
