"""What can go wrong with a child process."""

from moorage.core.errors import MoorageError, Unavailable


class ChildFailed(Unavailable):
    """A child ended, or was not ready in time; the message has the end of its log."""

    code = "children.failed"


class PortTaken(MoorageError):
    """Another program listens where a child should."""

    code = "children.port_taken"


class ServicesMissing(MoorageError):
    """The virtual environment of the upstream services is not there."""

    code = "children.services_missing"
