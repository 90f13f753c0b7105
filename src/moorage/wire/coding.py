"""Coding: JSON by msgspec, and which payload type belongs to which kind of command."""

from typing import Any

import msgspec

from moorage.wire.messages import (
    Command,
    Commands,
    ConsoleOutput,
    DestroyGuest,
    GuestPayload,
    RebootGuest,
    SpawnGuest,
    StartGuest,
    StopGuest,
    Uplink,
)

PAYLOADS: dict[str, type[GuestPayload]] = {
    "guest.spawn": SpawnGuest,
    "guest.destroy": DestroyGuest,
    "guest.start": StartGuest,
    "guest.stop": StopGuest,
    "guest.reboot": RebootGuest,
    "guest.console": ConsoleOutput,
}
KINDS = {payload: kind for kind, payload in PAYLOADS.items()}
QUESTIONS = frozenset({KINDS[ConsoleOutput]})
"""Kinds that change nothing of a guest: their place among its other commands does not matter."""

_decoders: dict[str, msgspec.json.Decoder[GuestPayload]] = {
    kind: msgspec.json.Decoder(payload) for kind, payload in PAYLOADS.items()
}
encode = msgspec.json.Encoder().encode
decode_commands = msgspec.json.Decoder(Commands).decode
decode_uplink = msgspec.json.Decoder(Uplink).decode


class UnknownKindError(ValueError):
    """The kind of a command is not one of this build's."""


def payload_of(command: Command) -> GuestPayload:
    """The typed payload; raises UnknownKindError, or msgspec.ValidationError naming the field that is wrong."""
    decoder = _decoders.get(command.kind)
    if decoder is None:
        msg = f"this agent does not know commands of the kind {command.kind!r}"
        raise UnknownKindError(msg)
    return decoder.decode(command.payload)


def plain(message: msgspec.Struct | dict[str, Any]) -> dict[str, Any]:
    """The message as plain dicts and lists, for a JSONB column."""
    made: dict[str, Any] = msgspec.to_builtins(message)
    return made
