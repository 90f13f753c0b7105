"""A TCP echo client: ``python -m moorage.lab.echo ADDRESS PORT WAIT`` prints what came back for a line it sent.

A program of its own because it has to run inside a probe's network namespace.
"""

from __future__ import annotations

import socket
import sys

SENT = b"ahoy from a probe\n"


def main(address: str, port: str, wait: str) -> int:
    """Send one line, write the answer to standard output; 1 with the reason on standard error when none came."""
    try:
        with socket.create_connection((address, int(port)), timeout=float(wait)) as link:
            link.sendall(SENT)
            answer = link.recv(len(SENT))
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(answer.decode(errors="replace"))
    return 0 if answer == SENT else 1


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:4]))
