"""Passwords of the cloud's own accounts: random, made once, kept in the state folder for its owner alone."""

import secrets
from collections.abc import Iterable
from pathlib import Path

import msgspec

from moorage.children.services import write_private


class Credentials(msgspec.Struct, frozen=True):
    """Passwords by user name. Never logged: the text form shows the names alone."""

    passwords: dict[str, str]

    def __repr__(self) -> str:
        return f"Credentials({', '.join(sorted(self.passwords))})"

    def __getitem__(self, user: str) -> str:
        return self.passwords[user]


def load_or_create(path: Path, users: Iterable[str]) -> Credentials:
    """Read the passwords kept at ``path``, and make and keep those that are missing."""
    kept = msgspec.json.decode(path.read_bytes(), type=dict[str, str]) if path.exists() else {}
    missing = [user for user in users if user not in kept]
    if missing:
        kept |= {user: secrets.token_urlsafe(24) for user in missing}
        write_private(path, msgspec.json.format(msgspec.json.encode(kept), indent=2).decode() + "\n")
    return Credentials(kept)
