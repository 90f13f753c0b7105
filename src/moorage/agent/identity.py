"""Who this host is to the control plane: a key that never leaves it, a certificate, and the authority it trusts.

One file in the state folder holds all of it, readable by the agent's user alone and replaced in one step, so that key
and certificate always belong together. Before the certificate exists the key is kept as a proposal: a request for it
whose answer was lost is repeated with the same key.
"""

import hashlib
import os
import ssl
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from moorage.core.files import write_secret
from moorage.wire.tickets import Ticket

_FILE = "identity.json"
_PROPOSAL = "identity.proposed"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """All but the id are PEM; ``ticket`` is the hash of the ticket it came by."""

    host_id: str
    key: str
    certificate: str
    authority: str
    ticket: str


def load(folder: Path) -> Identity | None:
    """The stored identity, None before enrolment."""
    try:
        content = (folder / _FILE).read_bytes()
    except FileNotFoundError:
        return None
    return msgspec.json.decode(content, type=Identity)


def save(folder: Path, identity: Identity) -> None:
    """Store it, once the control plane has issued it."""
    write_secret(folder / _FILE, msgspec.json.encode(identity))
    (folder / _PROPOSAL).unlink(missing_ok=True)


def propose(folder: Path) -> str:
    """The key to ask a certificate for: the one of an earlier attempt, or a new one."""
    try:
        return (folder / _PROPOSAL).read_text(encoding="ascii")
    except FileNotFoundError:
        made = new_key()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_secret(folder / _PROPOSAL, made.encode("ascii"))
        return made


def new_key() -> str:
    """A key of this host's own, PEM."""
    made = ec.generate_private_key(ec.SECP256R1())
    return made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode("ascii")


def request_for(key: str) -> str:
    """A signing request of a key. It names nobody: the control plane says who we are."""
    private = serialization.load_pem_private_key(key.encode("ascii"), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return request.sign(private, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode("ascii")


def hash_of(ticket: str) -> str:
    """What is kept of a ticket, to know it again."""
    return hashlib.sha256(ticket.strip().encode()).hexdigest()


def trusting(ticket: Ticket) -> ssl.SSLContext:
    """For the first contact: we trust the ticket's authority and show nothing."""
    return _context(ticket.authority)


def context_of(identity: Identity) -> ssl.SSLContext:
    """For every later one: we show our certificate."""
    context = _context(identity.authority)
    # The ssl module reads files only; this one is memory.
    descriptor = os.memfd_create("moorage-agent", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, (identity.key + identity.certificate).encode("ascii"))
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return context


def _context(authority: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=authority)
    return context
