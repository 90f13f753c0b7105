"""Microversions: which one a request asks for, and which header tells the answer's.

Source: the API working group's microversion guideline; compute also reads its older header.
"""

import re
from collections.abc import Mapping

import msgspec

from moorage.core.errors import BadRequest, NotAcceptable

Version = tuple[int, int]
_FORM = re.compile(r"^([1-9]\d*)\.([1-9]\d*|0)$")


def parse(text: str) -> Version:
    """``"2.79"`` as (2, 79); raises BadRequest naming the header for any other form."""
    match = _FORM.match(text)
    if match is None:
        raise BadRequest(
            f"The version {text!r} is not of the form N.M.",
            field="OpenStack-API-Version",
            code="version.malformed",
        )
    return int(match[1]), int(match[2])


def text(version: Version) -> str:
    """(2, 79) as ``"2.79"``."""
    return f"{version[0]}.{version[1]}"


class VersionScheme(msgspec.Struct, frozen=True):
    """The range of microversions that an API offers.

    ``service`` is its name in ``OpenStack-API-Version``; ``legacy`` an older header of its own.
    """

    service: str
    minimum: Version
    maximum: Version
    legacy: str | None = None

    def negotiate(self, headers: Mapping[str, str]) -> Version:
        """The version to answer in; raises BadRequest (malformed) or NotAcceptable (out of range)."""
        asked = self.asked(headers)
        if asked is None:
            return self.minimum
        if asked.lower() == "latest":
            return self.maximum
        version = parse(asked)
        if not self.minimum <= version <= self.maximum:
            raise self.refuse(
                f"Version {text(version)} is not supported by the API. Minimum is {text(self.minimum)}"
                f" and maximum is {text(self.maximum)}."
            )
        return version

    def asked(self, headers: Mapping[str, str]) -> str | None:
        """What a request asks for, as it says it."""
        asked: str | None = None
        for item in headers.get("openstack-api-version", "").split(","):
            words = item.split()
            if len(words) == 2 and words[0].lower() == self.service:
                asked = words[1]
        if asked is None and self.legacy is not None:
            asked = headers.get(self.legacy.lower())
        return asked

    def refuse(self, message: str) -> NotAcceptable:
        """The error for a version out of range, with the range as its details."""
        return NotAcceptable(
            message,
            code="version.unsupported",
            max_version=text(self.maximum),
            min_version=text(self.minimum),
        )

    def headers(self, version: Version) -> dict[str, str]:
        """The headers that tell which version an answer is in."""
        found = {"OpenStack-API-Version": f"{self.service} {text(version)}", "Vary": "OpenStack-API-Version"}
        if self.legacy is not None:
            found[self.legacy] = text(version)
            found["Vary"] += f", {self.legacy}"
        return found
