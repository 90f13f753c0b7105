"""How a command can go wrong on a host.

MoorageError
├── Refused       nothing was done; another host may do it
└── GuestFailure  it was tried and went wrong; the step's undo takes back what is left
    └── DatapathFailure
"""

from moorage.core.errors import Conflict, Forbidden, MoorageError, NotFound, Unavailable


class Refused(Conflict):
    """This host will not do it and has not touched anything."""

    code = "agent.refused"


class GuestFailure(MoorageError):
    """The hypervisor could not do it."""

    code = "agent.guest_failed"


class ImageFailure(GuestFailure):
    """The image could not be had, or is not what its checksum says."""

    code = "agent.image_failed"


class DatapathFailure(GuestFailure):
    """A port could not be plugged or unplugged."""

    code = "agent.datapath_failed"


class UnknownGuest(NotFound):
    """No such guest on this host."""

    code = "agent.guest_unknown"


class LinkDown(Unavailable):
    """The control plane does not answer."""

    code = "agent.link_down"


class CredentialRefused(Forbidden):
    """The control plane does not know this host's credential or token."""

    code = "agent.credential_refused"


class ResultUnknown(NotFound):
    """The control plane has no such command for this host."""

    code = "agent.result_unknown"
