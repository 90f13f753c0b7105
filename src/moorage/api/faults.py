"""Faults: one error tree, rendered in the shape that each API's clients read."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from moorage.core.errors import BadRequest, MoorageError, OverQuota

Render = Callable[[MoorageError, int, str], dict[str, Any]]

_COMPUTE_NAMES: Mapping[int, str] = {
    400: "badRequest",
    401: "unauthorized",
    403: "forbidden",
    404: "itemNotFound",
    405: "badMethod",
    406: "computeFault",
    409: "conflictingRequest",
    413: "overLimit",
    415: "badMediaType",
    429: "overLimit",
    501: "notImplemented",
    503: "serviceUnavailable",
}


def message_of(error: MoorageError) -> str:
    """The text for the user, with the field where one is known."""
    if isinstance(error, BadRequest) and error.field and error.field not in error.message:
        return f"{error.message} (field {error.field})"
    return error.message or HTTPStatus(error.status).phrase


def compute(error: MoorageError, status: int, _request_id: str) -> dict[str, Any]:
    """Compute: one key named after the status."""
    name = _COMPUTE_NAMES.get(status, "computeFault")
    fault: dict[str, Any] = {"code": status, "message": message_of(error)}
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        fault["retryAfter"] = str(error.retry_after)
    return {name: fault}


def placement(error: MoorageError, status: int, request_id: str) -> dict[str, Any]:
    """Placement: a list of errors; ``code`` from 1.23 on is always given, clients ignore what they don't know."""
    item: dict[str, Any] = {
        "status": status,
        "title": HTTPStatus(status).phrase,
        "detail": message_of(error),
        "request_id": request_id,
        "code": error.code if error.code.startswith("placement.") else "placement.undefined_code",
    }
    for key in ("max_version", "min_version"):
        if key in error.details:
            item[key] = error.details[key]
    return {"errors": [item]}


def network(error: MoorageError, _status: int, _request_id: str) -> dict[str, Any]:
    """Networking: type, message, detail; the type is the error's class name."""
    return {"NeutronError": {"type": type(error).__name__, "message": message_of(error), "detail": ""}}


def baremetal(error: MoorageError, status: int, _request_id: str) -> dict[str, Any]:
    """Bare Metal: ``error_message``."""
    return {
        "error_message": {
            "faultstring": message_of(error),
            "faultcode": "Client" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "Server",
            "debuginfo": None,
        }
    }


def control(error: MoorageError, status: int, request_id: str) -> dict[str, Any]:
    """Our own APIs: code, message, details."""
    return {
        "error": {
            "status": status,
            "code": error.code,
            "message": message_of(error),
            "details": error.details,
            "request_id": request_id,
        }
    }


STYLES: Mapping[str, Render] = {
    "compute": compute,
    "placement": placement,
    "network": network,
    "baremetal": baremetal,
    "control": control,
}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


_TEXT, _NUMBER = {"type": "string"}, {"type": "integer"}
_ITEM = _object(status=_NUMBER, title=_TEXT, detail=_TEXT, request_id=_TEXT, code=_TEXT)

SHAPES: Mapping[str, dict[str, Any]] = {
    "compute": {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "propertyNames": {"enum": sorted(set(_COMPUTE_NAMES.values()))},
        "additionalProperties": _object(code=_NUMBER, message=_TEXT),
    },
    "placement": _object(errors={"type": "array", "minItems": 1, "items": _ITEM}),
    "network": _object(NeutronError=_object(type=_TEXT, message=_TEXT, detail=_TEXT)),
    "baremetal": _object(error_message=_object(faultstring=_TEXT, faultcode=_TEXT)),
    "control": _object(
        error=_object(status=_NUMBER, code=_TEXT, message=_TEXT, details={"type": "object"}, request_id=_TEXT)
    ),
    "text": _TEXT,
}
"""The JSON Schema of each shape, for the documents; ``text`` is what answers without an API."""

MEDIA: Mapping[str, str] = {"text": "text/plain"}
"""Their media types, where they are not JSON."""


def status_of(error: MoorageError, style: str) -> int:
    """The HTTP status; networking answers 409 where a quota is exceeded."""
    return 409 if style == "network" and isinstance(error, OverQuota) else error.status
