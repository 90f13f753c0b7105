"""Enrolment tickets: what an operator carries from the control plane to a new host, as one word.

A ticket holds a one-time token and the certificates of the control plane's authority. So the first contact is
authenticated on both sides: the agent talks to nobody whose certificate that authority has not signed, and the
control plane lets in nobody without the token. The ticket is a secret until it has been used.
"""

import base64
import binascii

import msgspec

from moorage.core.errors import BadRequest

CONTROL_NAME = "control.moorage"
"""The name in the control plane's certificate: a role, as agents reach it at many addresses and over sockets."""

_PREFIX = "moorage1."


class Ticket(msgspec.Struct, frozen=True):
    """``token``: the secret; ``authority``: one or more certificates, PEM."""

    token: str
    authority: str

    def __str__(self) -> str:
        """The word."""
        content = base64.urlsafe_b64encode(msgspec.json.encode(self)).decode("ascii").rstrip("=")
        return _PREFIX + content

    @classmethod
    def parse(cls, text: str) -> "Ticket":
        """The ticket of a word; raises BadRequest."""
        content = text.strip().removeprefix(_PREFIX)
        try:
            raw = base64.b64decode(content + "=" * (-len(content) % 4), altchars=b"-_", validate=True)
            return msgspec.json.decode(raw, type=cls)
        except (binascii.Error, ValueError, msgspec.DecodeError) as error:
            message = "this is no enrolment ticket: give the whole word that `moorage host enroll` printed"
            raise BadRequest(message, field="enroll_token") from error
