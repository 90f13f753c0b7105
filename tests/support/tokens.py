"""Tokens that say who they are, for tests of one API: PROJECT:ROLE+ROLE."""

from collections.abc import Mapping

from moorage.api import RequestContext
from moorage.core.errors import Unauthorized


async def check(headers: Mapping[str, str], request_id: str) -> RequestContext:
    token = headers.get("x-auth-token")
    if token is None:
        raise Unauthorized("who?")
    project, _, roles = token.partition(":")
    return RequestContext(
        request_id=request_id, project_id=project, user_id="u", roles=frozenset(roles.split("+"))
    )
