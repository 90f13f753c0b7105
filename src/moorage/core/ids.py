"""Identifiers: UUID version 4 as text, the form that every OpenStack API shows."""

import uuid


def new_id() -> str:
    """A new random id."""
    return str(uuid.uuid4())


def is_uuid(text: str) -> bool:
    """Whether ``text`` is a UUID in canonical or undashed form."""
    try:
        parsed = uuid.UUID(text)
    except (ValueError, AttributeError, TypeError):
        return False
    return text.lower() in {str(parsed), parsed.hex}
