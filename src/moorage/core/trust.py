"""Which certificates our own clients believe."""

import ssl
from pathlib import Path

from moorage.core.errors import MoorageError


class BundleUnusable(MoorageError):
    """A bundle of CA certificates cannot be read."""

    code = "tls.bundle_unusable"


def trust(ca_file: str | Path | None) -> ssl.SSLContext | bool:
    """What aiohttp takes as ``ssl``: the system's authorities (True), or those in the bundle alone.

    Raises BundleUnusable.
    """
    if ca_file is None:
        return True
    try:
        context = ssl.create_default_context(cafile=str(ca_file))
    except OSError as error:
        raise BundleUnusable(f"{ca_file} is no bundle of CA certificates in PEM form: {error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
