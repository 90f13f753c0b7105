"""What the database refuses, as types; the constraint's name tells which rule."""

from moorage.core.errors import BadRequest, Conflict, Unavailable


class ConstraintViolation(Conflict):
    """A rule of the schema refused a write."""

    code = "store.constraint"

    def __init__(self, message: str, *, constraint: str) -> None:
        super().__init__(message, constraint=constraint)
        self.constraint = constraint


class UniqueViolation(ConstraintViolation):
    """The key exists already."""


class ForeignKeyViolation(ConstraintViolation):
    """The row refers to one that is not there, or is still referred to."""


class CheckViolation(ConstraintViolation):
    """A value is out of its allowed range."""


class ValueRefused(BadRequest):
    """A value that no column can hold or be compared with: a text with the character NUL, a number beyond 64 bits, a
    regular expression that is none.
    """

    code = "store.value"


class SerializationConflict(Conflict):
    """The transaction met a concurrent one (40001, 40P01) and can be run again."""

    code = "store.serialization"


class StoreUnavailable(Unavailable):
    """PostgreSQL does not answer, or no connection was free in time."""

    code = "store.unavailable"


class StatementTimeout(StoreUnavailable):
    """A statement ran, or waited for a lock, longer than it may."""

    code = "store.timeout"
