"""What was released: every kind of operation, its versions, and the steps of each, in ``released.toml``.

    python -m moorage.compute.operations.released      add what is new, before a release (``make released``)

Operations outlive the release that began them. A line is never changed or taken away: a definition that differs gets a
new version, and a rule for the old one (``earlier``).
"""

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from moorage.compute.operations import DEFINITIONS
from moorage.operations.versions import Release, broken, release_of

FILE = Path(__file__).with_name("released.toml")
_HEAD = "# Kinds of operations, their versions and steps, as released. Written by `make released`; see released.py.\n"


def read(text: str) -> list[Release]:
    """The lines of the file."""
    return [
        Release(kind, int(version), tuple(steps))
        for kind, versions in tomllib.loads(text).items()
        for version, steps in versions.items()
    ]


def written(lines: Sequence[Release]) -> str:
    """The file that has these lines."""
    text = _HEAD
    for kind in sorted({line.kind for line in lines}):
        text += f'\n["{kind}"]\n'
        for line in sorted((x for x in lines if x.kind == kind), key=lambda x: x.version):
            steps = ", ".join(f'"{step}"' for step in line.steps)
            text += f"{line.version} = [{steps}]\n"
    return text


def main() -> int:
    """Add what the file does not have; 1 where something released would be lost."""
    before = read(FILE.read_text()) if FILE.exists() else []
    if sentences := broken(DEFINITIONS, before):
        sys.stderr.write("\n".join(sentences) + "\n")
        return 1
    have = {(line.kind, line.version) for line in before}
    new = [line for line in map(release_of, DEFINITIONS) if (line.kind, line.version) not in have]
    FILE.write_text(written([*before, *new]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
