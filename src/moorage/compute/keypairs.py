"""Keypairs: public keys of users. Private keys are made on request below 2.92, shown once and never kept."""

import base64
import binascii
import hashlib

import msgspec
import sqlalchemy as sa
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from moorage.compute import quotas
from moorage.compute.errors import InvalidKeypair, KeypairExists, KeypairNotFound, QuotaExceeded
from moorage.compute.model import Keypair
from moorage.compute.tables import keypairs
from moorage.core.errors import BadRequest
from moorage.store.database import Tx
from moorage.store.errors import UniqueViolation
from moorage.store.statement import Statement, query, text_param

_one = sa.and_(keypairs.c.user_id == text_param("user_id"), keypairs.c.name == text_param("name"))
_GET = Statement(sa.select(keypairs).where(_one), row=Keypair)
_DELETE = Statement(sa.delete(keypairs).where(_one))
_ADD = Statement(
    sa.insert(keypairs)
    .values({n: text_param(n) for n in ("user_id", "name", "type", "fingerprint", "public_key")})
    .returning(keypairs),
    row=Keypair,
)
# One at a time for a user: the count that follows is then the truth.
_LOCK = Statement(
    sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(text_param("user_id"), 7)))
)


class Generated(msgspec.Struct, frozen=True):
    """A new key; ``private_key`` is a PEM that nobody else has."""

    public_key: str
    private_key: str


async def get(tx: Tx, user_id: str, name: str) -> Keypair:
    """Raises KeypairNotFound."""
    found = await _GET.first(tx, user_id=user_id, name=name)
    if found is None:
        raise KeypairNotFound(f"Keypair {name} not found for user {user_id}")
    return found


async def list_(
    tx: Tx, user_id: str, *, limit: int | None = None, marker: str | None = None
) -> list[Keypair]:
    """A user's keypairs by name; raises BadRequest for a marker that does not exist."""
    select = sa.select(keypairs).where(keypairs.c.user_id == user_id).order_by(keypairs.c.name)
    if marker is not None:
        if await _GET.first(tx, user_id=user_id, name=marker) is None:
            raise BadRequest(f"marker [{marker}] not found", field="marker")
        select = select.where(keypairs.c.name > marker)
    return await query(tx, select if limit is None else select.limit(limit), Keypair)


async def create(tx: Tx, user_id: str, name: str, kind: str, public_key: str, *, limit: int) -> Keypair:
    """Keep a public key; raises InvalidKeypair, KeypairExists, QuotaExceeded."""
    fingerprint = fingerprint_of(kind, public_key)
    await _LOCK.run(tx, user_id=user_id)
    if 0 <= limit <= await quotas.keypairs_of(tx, user_id):
        raise QuotaExceeded(
            "Quota exceeded, too many key pairs.", resources=["key_pairs"], limits={"key_pairs": limit}
        )
    try:
        return await _ADD.one(
            tx, user_id=user_id, name=name, type=kind, fingerprint=fingerprint, public_key=public_key
        )
    except UniqueViolation as error:
        raise KeypairExists(f"Key pair '{name}' already exists.") from error


async def delete(tx: Tx, user_id: str, name: str) -> None:
    """Raises KeypairNotFound."""
    if not await _DELETE.run(tx, user_id=user_id, name=name):
        raise KeypairNotFound(f"Keypair {name} not found for user {user_id}")


def fingerprint_of(kind: str, public_key: str) -> str:
    """MD5 of an SSH key's blob, SHA-1 of a certificate, as colon-separated hex; raises InvalidKeypair."""
    if kind == "x509":
        try:
            certificate = x509.load_pem_x509_certificate(public_key.encode())
        except ValueError as error:
            raise InvalidKeypair(f"Keypair data is invalid: {error}", field="public_key") from error
        return _colons(certificate.fingerprint(hashes.SHA1()))  # noqa: S303  a name, not a proof
    try:
        serialization.load_ssh_public_key(public_key.strip().encode())
        blob = base64.b64decode(public_key.split()[1], validate=True)
    except (ValueError, IndexError, binascii.Error, UnsupportedAlgorithm) as error:
        raise InvalidKeypair(
            "Keypair data is invalid: failed to generate fingerprint", field="public_key"
        ) from error
    return _colons(hashlib.md5(blob, usedforsecurity=False).digest())


def generate(name: str) -> Generated:
    """A new 2048-bit RSA key for SSH. Takes about 100 ms of CPU: call it in a thread."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    return Generated(f"{public.decode()} Generated-by-Moorage {name}", private.decode())


def _colons(digest: bytes) -> str:
    return digest.hex(":")
