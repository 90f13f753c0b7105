"""Starts the suite's own proxy (check_proxy.py of nova-contract), with one of its checks put right.

``python proxy.py SUITE_FOLDER ARGUMENTS...``, in an environment with jsonschema.  Its "ipv4" and "ipv6" are one
function that takes either, so an address that must be one *or* the other (``oneOf``) is always reported.  Here each
takes its own kind; everything else is the suite's.
"""

import importlib.util
import ipaddress
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def check_of(kind: Callable[[str], Any]) -> Callable[[object], bool]:
    """A format's check: true for anything that is no text, as the suite's own are."""

    def fits(value: object) -> bool:
        if isinstance(value, str):
            kind(value)  # raises ValueError for another kind
        return True

    return fits


def main(suite: str, *arguments: str) -> int:
    """Run the proxy until it is told to end; its exit status."""
    spec = importlib.util.spec_from_file_location("check_proxy", Path(suite) / "check_proxy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, kind in (("ipv4", ipaddress.IPv4Address), ("ipv6", ipaddress.IPv6Address)):
        module.CHECKER.checks(name, raises=ValueError)(check_of(kind))
    sys.argv = ["check_proxy.py", *arguments]
    return int(module.main())


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
