"""The control plane's own certificate authority: it signs the certificates of hosts, and our own towards them.

Both sides of every connection of an agent show a certificate of this authority. A host's is for clients alone and
carries the host's id; ours is for servers alone and carries the name of the role (``wire.tickets.CONTROL_NAME``),
so no host can pass for the control plane. What a request for a certificate says besides its key is not read.

Time matters here and nowhere else between hosts: certificates count from a day before they were made, so that a
clock that is hours late takes them all the same.
"""

import hashlib
import os
import ssl
import stat
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import cast

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moorage.core.clock import utcnow
from moorage.core.errors import BadRequest, MoorageError
from moorage.core.files import write_secret
from moorage.wire.tickets import CONTROL_NAME

MARGIN = timedelta(days=1)
HOST_LIFETIME = timedelta(days=30)
SERVER_LIFETIME = timedelta(days=365)
_CA_LIFETIME = timedelta(days=3650)
_PEM = serialization.Encoding.PEM
_DER = serialization.Encoding.DER
_MOST = 8192  # characters of a signing request


class AuthorityUnusable(MoorageError):
    """The authority's files cannot be used as they are."""

    code = "agentlink.authority_unusable"


class Issued(msgspec.Struct, frozen=True):
    """A certificate for a host: PEM, SHA-256 of its DER form, SHA-256 of its key, and its end."""

    pem: str
    fingerprint: bytes
    key: bytes
    expires_at: datetime


class Authority:
    """One key that signs, and the certificates that are trusted: its own, and those of a key before or after it."""

    def __init__(
        self,
        key: ec.EllipticCurvePrivateKey,
        trusted: list[x509.Certificate],
        clock: Callable[[], datetime] = utcnow,
    ) -> None:
        self._key = key
        self._clock = clock
        mine = _key_bytes(key.public_key())
        own = next((c for c in trusted if _key_bytes(c.public_key()) == mine), None)
        if own is None:
            message = "the authority's key fits none of its certificates: give the pair that belongs together"
            raise AuthorityUnusable(message)
        self._own = own
        self.bundle = "".join(c.public_bytes(_PEM).decode("ascii") for c in trusted)
        """Every trusted certificate, PEM."""

    @classmethod
    def create(cls, clock: Callable[[], datetime] = utcnow) -> "Authority":
        """A new key and its certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Moorage {os.urandom(4).hex()}")])
        builder = (
            _dated(clock(), _CA_LIFETIME)
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(sign=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        return cls(key, [builder.sign(key, hashes.SHA256())], clock)

    @classmethod
    def read(cls, key: Path, certificates: Path) -> "Authority":
        """The authority in files. Raises AuthorityUnusable, also for a key that others may read."""
        try:
            mode = stat.S_IMODE(key.stat().st_mode)
            if mode & 0o077:
                raise AuthorityUnusable(f"{key} may be read by others (mode {mode:o}): chmod 600 it")
            private = serialization.load_pem_private_key(key.read_bytes(), None)
            trusted = x509.load_pem_x509_certificates(certificates.read_bytes())
        except OSError as error:
            raise AuthorityUnusable(f"{error.filename} cannot be read: {error.strerror}") from error
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            message = f"{key} and {certificates} must hold an unencrypted key and certificates, PEM: {error}"
            raise AuthorityUnusable(message) from error
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise AuthorityUnusable(f"{key} must be a key on an elliptic curve")
        return cls(private, trusted)

    @classmethod
    def kept(cls, folder: Path) -> "Authority":
        """The authority in ``folder``, made when there is none: ``agents-ca.key`` (0600) and ``agents-ca.crt``."""
        key, certificate = folder / "agents-ca.key", folder / "agents-ca.crt"
        if not key.exists():
            made = cls.create()
            # The key comes last: without it the next start begins again.
            certificate.write_text(made.bundle, encoding="ascii")
            write_secret(key, made.key_pem)
        return cls.read(key, certificate)

    @property
    def key_pem(self) -> bytes:
        """The signing key: a secret."""
        return _private_pem(self._key)

    def sign_host(self, csr: str, host_id: str) -> Issued:
        """A certificate of the key in a signing request, for the host with this id; raises BadRequest."""
        key = requested_key(csr)
        now = self._clock()
        builder = (
            self._end_entity(key, now, HOST_LIFETIME)
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host_id)]))
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=True)
        )
        made = builder.sign(self._key, hashes.SHA256())
        der = made.public_bytes(_DER)
        return Issued(
            pem=made.public_bytes(_PEM).decode("ascii"),
            fingerprint=hashlib.sha256(der).digest(),
            key=fingerprint_of_key(key),
            expires_at=now + HOST_LIFETIME,
        )

    def server_context(self) -> ssl.SSLContext:
        """For our listeners: our certificate, and a host's asked for. Only enrolment goes without one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=self.bundle)
        self.renew_server(context)
        return context

    def renew_server(self, context: ssl.SSLContext) -> None:
        """Give a listener a new certificate of ours; connections that exist keep theirs."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            self._end_entity(key.public_key(), self._clock(), SERVER_LIFETIME)
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, CONTROL_NAME)]))
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(CONTROL_NAME)]), critical=False)
        )
        made = builder.sign(self._key, hashes.SHA256())
        # The ssl module reads files only. This one is memory: our key is never on a disk.
        descriptor = os.memfd_create("moorage-control", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, _private_pem(key) + made.public_bytes(_PEM))
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)

    def _end_entity(
        self, key: ec.EllipticCurvePublicKey, now: datetime, lifetime: timedelta
    ) -> x509.CertificateBuilder:
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            _dated(now, lifetime)
            .issuer_name(self._own.subject)
            .public_key(key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(sign=False), critical=True)
            .add_extension(issuer, critical=False)
        )


def requested_key(csr: str) -> ec.EllipticCurvePublicKey:
    """The key of a signing request whose sender has shown to own it; raises BadRequest."""
    try:
        request = x509.load_pem_x509_csr(csr[:_MOST].encode("ascii"))
        key = request.public_key()
        fine = request.is_signature_valid and isinstance(key, ec.EllipticCurvePublicKey)
    except (ValueError, UnsupportedAlgorithm, InvalidSignature) as error:
        raise BadRequest(f"this is no certificate signing request in PEM: {error}", field="csr") from error
    if not fine:
        raise BadRequest("the request must be signed by its own key, on an elliptic curve", field="csr")
    return cast("ec.EllipticCurvePublicKey", key)


def fingerprint_of_key(key: ec.EllipticCurvePublicKey) -> bytes:
    """SHA-256 of a public key: the same for every certificate of it."""
    return hashlib.sha256(_key_bytes(key)).digest()


def _dated(now: datetime, lifetime: timedelta) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - MARGIN)
        .not_valid_after(now + lifetime)
    )


def _usage(*, sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign,
        key_cert_sign=sign,
        crl_sign=sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_bytes(key: object) -> bytes:
    public = cast("ec.EllipticCurvePublicKey", key)
    return public.public_bytes(_DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
