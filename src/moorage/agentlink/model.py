"""Rows of the registry and the queue, frozen."""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from moorage.core.clock import utcnow
from moorage.wire.messages import Command, HostReport


class Host(msgspec.Struct, frozen=True):
    """A host as the registry knows it.

    ``facts`` is the last report without its guests, as plain JSON (keys as in wire.HostReport), None until the
    host has reported; ``guests`` are [{server_id, power_state}].
    """

    id: str
    name: str
    disabled: bool
    disabled_reason: str | None
    protocol: int
    agent_version: str
    hypervisor_type: str | None
    facts: dict[str, Any] | None
    guests: list[dict[str, Any]]
    last_seen: datetime | None
    created_at: datetime
    updated_at: datetime | None

    def up(self, down_time: float, now: datetime | None = None) -> bool:
        """Whether it was heard of within ``down_time`` seconds."""
        if self.last_seen is None:
            return False
        return (now or utcnow()) - self.last_seen <= timedelta(seconds=down_time)

    def report(self) -> HostReport | None:
        """The facts, typed, with the guests; None until the host has reported."""
        if self.facts is None:
            return None
        return msgspec.convert({**self.facts, "guests": self.guests}, HostReport)


class Reported(msgspec.Struct, frozen=True):
    """A report as it was written: ``at`` names this state of the row; what it differs in from the one before."""

    at: datetime
    new_facts: bool
    guests_before: list[dict[str, Any]]

    def lost(self, report: HostReport) -> set[str]:
        """Guests that ran by the report before and do not by this one, or came and went off between the two."""
        running = {g.server_id for g in report.guests if g.power_state == "running"}
        here = {g.server_id for g in report.guests}
        ran = {g["server_id"] for g in self.guests_before if g["power_state"] == "running"}
        known = {g["server_id"] for g in self.guests_before}
        return (ran - running) | (here - running - known)


class HostCertificate(msgspec.Struct, frozen=True):
    """A certificate that a host may show; ``fingerprint`` is the SHA-256 of its DER form."""

    fingerprint: bytes
    created_at: datetime
    expires_at: datetime


class Known(msgspec.Struct, frozen=True):
    """A certificate that counts: its host, and its end."""

    host: str
    expires_at: datetime

    def lasts(self, beyond: timedelta = timedelta()) -> bool:
        """Whether it counts now, and will for so long."""
        return utcnow() + beyond < self.expires_at


class QueuedCommand(msgspec.Struct, frozen=True):
    """A command row as it is delivered."""

    id: str
    seq: int
    host: str
    operation: str
    step: str
    kind: str
    fence: int
    payload: dict[str, Any]
    deadline: datetime | None
    request_id: str | None

    def to_wire(self) -> Command:
        """The form that agents read."""
        return Command(
            id=self.id,
            seq=self.seq,
            operation=self.operation,
            step=self.step,
            fence=self.fence,
            kind=self.kind,
            payload=msgspec.Raw(msgspec.json.encode(self.payload)),
            seconds_left=seconds_left(self.deadline),
            request_id=self.request_id,
        )


class EndedCommand(msgspec.Struct, frozen=True):
    """What a recorded result belongs to."""

    id: str
    operation: str
    step: str
    kind: str
    fence: int


def seconds_left(deadline: datetime | None) -> float | None:
    """What a host is told of a deadline: how long from now, by our clock, whatever the host's says."""
    return None if deadline is None else (deadline - utcnow()).total_seconds()
