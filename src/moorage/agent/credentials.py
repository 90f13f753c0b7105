"""The host's credential in its state folder: readable by the agent's user alone, replaced in one step."""

import os
import secrets
from pathlib import Path

import msgspec


class Credential(msgspec.Struct, frozen=True):
    """Who this host is to the control plane."""

    host_id: str
    secret: str


def load(folder: Path) -> Credential | None:
    """The stored credential, None before enrolment."""
    try:
        content = (folder / "credential.json").read_bytes()
    except FileNotFoundError:
        return None
    return msgspec.json.decode(content, type=Credential)


def propose(folder: Path) -> str:
    """The secret to enrol with: the one of an earlier attempt, which the control plane may know already, or new."""
    try:
        return (folder / "credential.proposed").read_text(encoding="ascii")
    except FileNotFoundError:
        secret = secrets.token_urlsafe(32)
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "credential.proposed", secret.encode())
        return secret


def save(folder: Path, credential: Credential) -> None:
    """Store it once the control plane has accepted it."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "credential.json", msgspec.json.encode(credential))
    (folder / "credential.proposed").unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    # A crash leaves the old file or the new one, never half of one.
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    new.rename(path)
