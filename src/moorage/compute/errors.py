"""What compute refuses, each with one stable code.

MoorageError
├── BadRequest 400: InvalidField, UnsupportedBlockDevice, UnknownZone, ImageNotUsable, InvalidKeypair, KeyGenerationGone,
│                   AggregateInUse
├── OverQuota 403: QuotaExceeded
├── NotFound 404: ServerNotFound, FlavorNotFound, KeypairNotFound, AggregateNotFound,
│                 ServerGroupNotFound, HostNotFound
├── Conflict 409: ServerLocked, ServerWrongState, FlavorExists, FlavorAccessExists, KeypairExists,
│                 AggregateExists, HostInZone, NetworkAmbiguous, NoConsole
└── Unavailable 503: ImageServiceUnavailable
"""

from moorage.core.errors import BadRequest, Conflict, Duplicate, NotFound, OverQuota, Unavailable, WrongState


class InvalidField(BadRequest):
    """A value has the right type and the wrong content."""

    code = "compute.invalid_field"


class UnsupportedBlockDevice(BadRequest):
    """Only one local root disk made from an image is offered."""

    code = "compute.unsupported_block_device"


class UnknownZone(BadRequest):
    """No host is in the availability zone."""

    code = "compute.unknown_zone"


class ImageNotUsable(BadRequest):
    """The image does not exist, is not active, or is too big for the flavor."""

    code = "compute.image_not_usable"


class InvalidKeypair(BadRequest):
    """The public key cannot be read."""

    code = "compute.invalid_keypair"


class QuotaExceeded(OverQuota):
    """A limit of the project or user would be exceeded."""

    code = "compute.quota_exceeded"


class ServerNotFound(NotFound):
    code = "compute.server_not_found"


class FlavorNotFound(NotFound):
    code = "compute.flavor_not_found"


class KeypairNotFound(NotFound):
    code = "compute.keypair_not_found"


class AggregateNotFound(NotFound):
    code = "compute.aggregate_not_found"


class ServerGroupNotFound(NotFound):
    code = "compute.server_group_not_found"


class HostNotFound(NotFound):
    code = "compute.host_not_found"


class FlavorExists(Duplicate):
    code = "compute.flavor_exists"


class FlavorAccessExists(Duplicate):
    code = "compute.flavor_access_exists"


class KeypairExists(Duplicate):
    code = "compute.keypair_exists"


class AggregateExists(Duplicate):
    code = "compute.aggregate_exists"


class HostInZone(Conflict):
    """A host is in one availability zone at most."""

    code = "compute.host_in_zone"


class AggregateInUse(BadRequest):
    """The aggregate still has hosts, or its zone has servers."""

    code = "compute.aggregate_in_use"


class ServerLocked(Conflict):
    """Only an administrator may change a locked server."""

    code = "compute.server_locked"


class ServerWrongState(WrongState):
    """The server's state does not allow the action now."""

    code = "compute.server_wrong_state"


class NetworkAmbiguous(Conflict):
    """The project has several networks and none was named."""

    code = "compute.network_ambiguous"


class NoConsole(Conflict):
    """The server has no host yet, so there is no console to read."""

    code = "compute.no_console"


class KeyGenerationGone(BadRequest):
    """From 2.92 on keys are imported only."""

    code = "compute.key_generation_gone"


class ImageServiceUnavailable(Unavailable):
    """The image service does not answer."""

    code = "compute.image_service_unavailable"


class NoValidHost(Conflict):
    """No host fits; the message sums up why, the details hold the plan."""

    code = "compute.no_valid_host"
