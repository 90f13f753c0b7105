"""Time: aware UTC datetimes for records, a monotonic clock for intervals."""

from datetime import UTC, datetime


def utcnow() -> datetime:
    """The present time, aware, in UTC."""
    return datetime.now(UTC)


def iso(moment: datetime) -> str:
    """``2026-01-31T12:00:00Z``, as the compute API writes times."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
