"""Who polls: the credential a host was given at enrolment, as a bearer token."""

from collections.abc import Mapping

from moorage.agentlink.errors import CredentialInvalid
from moorage.agentlink.registry import Registry
from moorage.api.context import RequestContext


class HostAuthenticator:
    """An ``api.auth.Authenticator``: the context's ``host`` is the host's name, and nothing else is set."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def __call__(self, headers: Mapping[str, str], request_id: str) -> RequestContext:
        """Raises CredentialInvalid."""
        scheme, _, credential = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not credential:
            message = "a host's credential is needed: Authorization: Bearer ..."
            raise CredentialInvalid(message)
        return RequestContext(request_id=request_id, host=await self._registry.host_of(credential.strip()))
