"""What the agents' API refuses."""

from moorage.core.errors import BadRequest, Conflict, NotFound, Unauthorized


class HostNotFound(NotFound):
    """No host of that name."""

    code = "agentlink.host_not_found"


class CommandUnknown(NotFound):
    """A result for a command that was never this host's; ``commands`` lists their ids."""

    code = "agentlink.command_unknown"


class TokenInvalid(Unauthorized):
    """An enrolment token that is unknown, used, expired, or made for another host."""

    code = "agentlink.token_invalid"


class CredentialInvalid(Unauthorized):
    """No certificate, or one that was revoked or has expired."""

    code = "agentlink.credential_invalid"


class HostExists(Conflict):
    """The name is taken; only a token made for that very host may enrol it again."""

    code = "agentlink.host_exists"


class ProtocolTooOld(BadRequest):
    """The agent speaks no version that this control plane can use."""

    code = "agentlink.protocol_too_old"
