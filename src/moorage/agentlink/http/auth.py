"""Who asks: the host whose certificate came with the connection."""

from moorage.agentlink.certificates import Certificates
from moorage.agentlink.errors import CredentialInvalid
from moorage.api.auth import Credentials
from moorage.api.context import RequestContext


class HostAuthenticator:
    """An ``api.auth.Authenticator``: the context's ``host`` and ``certificate``, and nothing else, are set."""

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates

    async def __call__(self, credentials: Credentials, request_id: str) -> RequestContext:
        """Raises CredentialInvalid."""
        shown = credentials.peer
        if shown is None:
            message = "a host's certificate is needed: enrol the host"
            raise CredentialInvalid(message)
        host = await self._certificates.host_of(shown)
        return RequestContext(request_id=request_id, host=host, certificate=shown)
