"""The ``openstack`` command, its modules imported once: a list of words a line in, what came of it a line out (JSON).

A program of its own, as the command sets up logging and warnings of the whole process.
"""

import contextlib
import io
import json
import sys

from openstackclient.shell import OpenStackShell


def perform(words: list[str]) -> dict[str, object]:
    """Run one command as ``openstack WORDS``."""
    out, err = io.StringIO(), io.StringIO()
    lines, sys.stdin = sys.stdin, io.StringIO()  # a command that asks back finds nobody
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = OpenStackShell().run(words)
    except SystemExit as ended:  # of its argument parser
        status = ended.code
    except Exception as error:  # noqa: BLE001  what the command lets through is told like what it says itself
        status = f"{type(error).__name__}: {error}"
    finally:
        sys.stdin = lines
    return {"status": status, "out": out.getvalue(), "err": err.getvalue()}


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(perform(json.loads(line))) + "\n")
        sys.stdout.flush()
