"""The error tree. Every failure a caller may see is one of these, with one stable code.

MoorageError                      500
├── BadRequest                    400  names the field
├── Unauthorized                  401
├── Forbidden                     403
│   └── OverQuota                 403  (the network API answers 409)
├── NotFound                      404
├── MethodNotAllowed              405
├── NotAcceptable                 406
├── RequestTimeout                408
├── Conflict                      409
│   ├── WrongState                409
│   ├── InUse                     409
│   ├── Duplicate                 409
│   └── GenerationConflict        409
├── TooLarge                      413
├── UriTooLong                    414
├── UnsupportedMediaType          415
├── TooManyRequests               429  says when to try again
├── HeadersTooLarge               431
├── InternalError                 500
└── Unavailable                   503  says when to try again
"""

from typing import Any, ClassVar


class MoorageError(Exception):
    """A failure with an HTTP status, a stable code and typed details.

    ``message`` is shown to users: what was attempted, on what, and what to do.
    ``details`` are figures or ids that a program may read; never secrets.
    """

    status: ClassVar[int] = 500
    code: str = "internal"
    retry_after: int | None = None
    """Seconds after which it may go better; answers carry them as Retry-After."""

    def __init__(self, message: str = "", *, code: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        if code is not None:
            self.code = code


class BadRequest(MoorageError):
    """The request is wrong; ``field`` names where."""

    status = 400
    code = "bad_request"

    def __init__(
        self, message: str = "", *, field: str | None = None, code: str | None = None, **details: Any
    ) -> None:
        super().__init__(message, code=code, **details)
        self.field = field


class Unauthorized(MoorageError):
    """No valid credential came with the request."""

    status = 401
    code = "unauthorized"


class Forbidden(MoorageError):
    """The credential is valid and may not do this."""

    status = 403
    code = "forbidden"


class OverQuota(Forbidden):
    """A limit of the project would be exceeded."""

    code = "over_quota"


class NotFound(MoorageError):
    """The thing does not exist, or is another project's."""

    status = 404
    code = "not_found"


class MethodNotAllowed(MoorageError):
    """The path exists, without this method; ``allowed`` lists those it has."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, message: str = "", *, allowed: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.allowed = allowed


class NotAcceptable(MoorageError):
    """The asked microversion or media type is not offered."""

    status = 406
    code = "not_acceptable"


class RequestTimeout(MoorageError):
    """The request did not arrive in time."""

    status = 408
    code = "request_timeout"


class Conflict(MoorageError):
    """The request contradicts the present state."""

    status = 409
    code = "conflict"


class WrongState(Conflict):
    """The thing is in a state in which this is not possible."""

    code = "wrong_state"


class InUse(Conflict):
    """The thing is still used by another."""

    code = "in_use"


class Duplicate(Conflict):
    """A thing of that name or key exists already."""

    code = "duplicate"


class GenerationConflict(Conflict):
    """Somebody else changed it since the caller read it."""

    code = "concurrent_update"


class TooLarge(MoorageError):
    """The request is bigger than the limit."""

    status = 413
    code = "too_large"


class UriTooLong(MoorageError):
    """The request's URL is longer than the limit."""

    status = 414
    code = "uri_too_long"


class UnsupportedMediaType(MoorageError):
    """The body is of a type that is not read here."""

    status = 415
    code = "unsupported_media_type"


class TooManyRequests(MoorageError):
    """The caller asks more often than it may; ``retry_after`` is in seconds."""

    status = 429
    code = "too_many_requests"

    def __init__(self, message: str = "", *, retry_after: int, **details: Any) -> None:
        super().__init__(message, **details)
        self.retry_after = retry_after


class HeadersTooLarge(MoorageError):
    """The request has more headers, or larger ones, than the limit."""

    status = 431
    code = "headers_too_large"


class InternalError(MoorageError):
    """A fault of ours; the log has the cause under the request's id."""


class Unavailable(MoorageError):
    """Something this service needs does not answer; ``retry_after`` is in seconds."""

    status = 503
    code = "unavailable"

    def __init__(
        self, message: str = "", *, retry_after: int = 5, code: str | None = None, **details: Any
    ) -> None:
        super().__init__(message, code=code, **details)
        self.retry_after: int = retry_after
