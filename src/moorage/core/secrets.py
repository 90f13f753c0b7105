"""Secrets: shown as ``***``, and in files that their owner alone may read."""

import stat
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from moorage.core.errors import MoorageError

MASK = "***"


class TooOpen(MoorageError):
    """A file may be read or written by others than it should."""

    code = "secrets.too_open"


def masked(value: str) -> str:
    """The value without its secret: of a URL its password alone is masked, of anything else all."""
    if "://" not in value:
        return MASK
    parts = urlsplit(value)
    user, at, host = parts.netloc.rpartition("@")
    # A password with a character that ends the authority: where it ends is anybody's guess.
    if any("@" in text for text in (parts.path, parts.query, parts.fragment)):
        return f"{parts.scheme}://{MASK}"
    name, colon, _ = user.partition(":")
    netloc = f"{name}{colon}{MASK if colon else ''}{at}{host}"
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    shown = [(key, MASK if "password" in key.lower() else text) for key, text in pairs]
    query = urlencode(shown, safe="*/", quote_via=quote)
    text = urlunsplit(("x", netloc or "@", parts.path, query, parts.fragment))
    # An empty authority is kept, which the library would drop.
    text = text if netloc else text.replace("//@", "//", 1)
    return parts.scheme + text[1:]


def check_modes(paths: Iterable[Path], forbidden: int) -> None:
    """Raise TooOpen where a path has one of the ``forbidden`` mode bits, with the command that mends it.

    Paths that do not exist are passed over, links are not followed.
    """
    wrong = []
    for path in paths:
        try:
            found = path.lstat()
        except FileNotFoundError:
            continue
        mode = stat.S_IMODE(found.st_mode)
        if mode & forbidden and not stat.S_ISLNK(found.st_mode):
            wrong.append(f"{path} has mode {mode:04o}: chmod {_letters(forbidden)} {path}")
    if wrong:
        raise TooOpen("too open for what is in it: " + "; ".join(wrong))


def _letters(forbidden: int) -> str:
    """The argument of chmod that takes these bits away, such as ``go-rwx``."""
    changes = []
    for who, shift in (("g", 3), ("o", 0)):
        bits = forbidden >> shift & 7
        letters = "".join(letter for letter, bit in (("r", 4), ("w", 2), ("x", 1)) if bits & bit)
        if letters:
            changes.append((who, letters))
    if len(changes) == 2 and changes[0][1] == changes[1][1]:
        return f"go-{changes[0][1]}"
    return ",".join(f"{who}-{letters}" for who, letters in changes)
