"""The Placement API as an application, with validation faults in the words that its clients look for.

Clients and test suites of this API read the text of a 400: it names the JSON Schema keyword that failed.
Bodies here are checked by types, so the sentence is made from what the type check says.
"""

from __future__ import annotations

import re

from moorage.api import Api
from moorage.core.errors import BadRequest, MoorageError

_FORMS: tuple[tuple[str, str, str], ...] = (
    # what the type check says, the sentence, the schema keyword
    (r"missing required field `(\w+)`", "'{0}' is a required property", "required"),
    (r"contains unknown field `(.+?)`", "Additional properties are not allowed ('{0}' was unexpected)",
     "additionalProperties"),
    (r"matching regex '\^\[0-9a-fA-F\]\{8\}", "the value is not a 'uuid'", "format"),
    (r"matching regex '(.*)'", "the value does not match '{0}'", "pattern"),
    (r"`(?:int|float)` >=? (\S+?)\.?$", "the value is less than the minimum of {0}", "minimum"),
    (r"`(?:int|float)` <=? (\S+?)\.?$", "the value is greater than the maximum of {0}", "maximum"),
    (r"`str` of length >= (\d+)", "the value is shorter than {0}", "minLength"),
    (r"`str` of length <= (\d+)", "the value is too long, at most {0} characters", "maxLength"),
    (r"`array` of length >= (\d+)", "the list is too short, at least {0}", "minItems"),
    (r"`object` of length >= (\d+)", "the object does not have enough properties, at least {0}", "minProperties"),
    (r"Expected `int", "the value is not of type 'integer'", "type"),
    (r"Expected `float", "the value is not of type 'number'", "type"),
    (r"Expected `array", "the value is not of type 'array'", "type"),
    (r"Expected `str", "the value is not of type 'string'", "type"),
    (r"Expected `object", "the value is not of type 'object'", "type"),
)  # fmt: skip


class PlacementApi(Api):
    """An Api whose validation faults are worded as the Placement API's clients expect."""

    def _fault(self, error: MoorageError, request_id: str) -> tuple[int, bytes, dict[str, str]]:
        return super()._fault(reworded(error), request_id)


def reworded(error: MoorageError) -> MoorageError:
    """Return a failed type check as a failed schema; any other error as it is."""
    if type(error) is not BadRequest or not error.message.startswith("Invalid input for"):
        return error
    if "key in" in error.message or "key` in" in (error.field or ""):
        return BadRequest(
            f"JSON does not validate: a name does not match any of the regexes: {error.message}"
        )
    for pattern, sentence, keyword in _FORMS:
        match = re.search(pattern, error.message)
        if match is not None:
            text = sentence.format(*match.groups())
            where = "".join(
                f"['{part}']" for part in re.findall(r"[\w-]+", error.field or "") if part != "key"
            )
            return BadRequest(
                f"JSON does not validate: {text}: Failed validating '{keyword}' in schema, on{where or ' the body'}",
                field=error.field,
            )
    return BadRequest(f"JSON does not validate: {error.message}", field=error.field)
