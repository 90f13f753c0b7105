"""The host's credential in its state folder: readable by the agent's user alone, replaced in one step."""

import os
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


def save(folder: Path, credential: Credential) -> None:
    """Store it so that a crash leaves the old one or the new one, never half of one."""
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / "credential.json.new"
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, msgspec.json.encode(credential))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    new.rename(folder / "credential.json")
