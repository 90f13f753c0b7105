"""TLS of the public APIs: a certificate and its key from files, taken anew when the files change.

The agents' listener has an authority of its own and is not concerned.
"""

import asyncio
import ssl
from pathlib import Path

from oslo_config import cfg

from moorage.core.config import Group
from moorage.core.errors import MoorageError
from moorage.core.log import get_logger
from moorage.core.secrets import check_modes

log = get_logger(__name__)
_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
Stamp = tuple[tuple[int, int, int], ...]


class TlsUnusable(MoorageError):
    """The APIs' certificate or key cannot be used as it is."""

    code = "server.tls_unusable"


def options() -> list[Group]:
    """The group [tls]."""
    opts = [
        cfg.StrOpt("certificate_file", help="PEM file of the APIs' certificate, with the chain after it. Set, it makes the compute, placement and networking APIs answer by HTTPS only."),
        cfg.StrOpt("key_file", help="PEM file of its key, without a passphrase; nobody else may read it."),
        cfg.StrOpt("minimum_version", default="1.2", choices=sorted(_VERSIONS), help="The oldest version of TLS that clients may use."),
        cfg.FloatOpt("reload_interval", default=10.0, min=0.05, help="Seconds between looks whether the files have changed; SIGHUP looks at once."),
        cfg.StrOpt("ca_file", help="PEM bundle of the authorities that our own clients believe, for Keystone and Glance by HTTPS; also written to clouds.yaml. Default: the system's."),
    ]  # fmt: skip
    return [("tls", opts)]


def api_tls(conf: cfg.ConfigOpts) -> "ApiTls | None":
    """As the configuration says; None for plain HTTP. Raises TlsUnusable, TooOpen."""
    certificate, key = conf.tls.certificate_file, conf.tls.key_file
    if not certificate and not key:
        return None
    if not certificate or not key:
        raise TlsUnusable("[tls] certificate_file and key_file belong together: one of them is not set")
    return ApiTls(Path(certificate), Path(key), minimum=_VERSIONS[conf.tls.minimum_version])


def base_url(conf: cfg.ConfigOpts, port: int) -> str:
    """Where clients find an API of this process, without a path."""
    scheme = "https" if conf.tls.certificate_file else "http"
    host = conf.public_host or conf.listen
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


class ApiTls:
    """``context`` is for listeners. New connections get what the files held when they were last looked at."""

    def __init__(self, certificate: Path, key: Path, *, minimum: ssl.TLSVersion) -> None:
        self._certificate = certificate
        self._key = key
        self.context = _context(minimum)
        self._minimum = minimum
        self._stamp: Stamp = ()
        self._load()

    def reload(self) -> None:
        """Take the files if they have changed; files that cannot be used are logged, and what there was stays."""
        try:
            if self._stamped() != self._stamp:
                self._load()
                log.info("tls.reloaded", certificate=str(self._certificate))
        except MoorageError as error:
            log.warning("tls.not_reloaded", error=error.message)

    async def run(self, interval: float) -> None:
        """Look every ``interval`` seconds until cancelled."""
        while True:
            await asyncio.sleep(interval)
            self.reload()

    def _load(self) -> None:
        stamp = self._stamped()
        check_modes([self._key], 0o027)
        # Into a context that nobody uses first: the live one is left as it is by files that do not fit.
        for context in (_context(self._minimum), self.context):
            try:
                # Without a passphrase here, the library would ask for one on the terminal.
                context.load_cert_chain(self._certificate, self._key, password="")
            except (OSError, ValueError) as error:
                raise TlsUnusable(
                    f"{self._certificate} and {self._key} are no certificate and its key: {error}"
                ) from error
        self._stamp = stamp

    def _stamped(self) -> Stamp:
        try:
            found = [path.stat() for path in (self._certificate, self._key)]
        except OSError as error:
            raise TlsUnusable(f"{error.filename} cannot be read: {error.strerror}") from error
        return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in found)


def _context(minimum: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = minimum
    context.set_alpn_protocols(["http/1.1"])
    return context
