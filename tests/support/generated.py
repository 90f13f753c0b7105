"""Files that are committed and follow from the code: compared, or written by `make generated`."""

from difflib import unified_diff
from pathlib import Path

import pytest


def compare(path: Path, text: str, *, write: bool) -> None:
    """Fail with the difference where the file is not ``text``; with ``write``, write it."""
    if write:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return
    before = path.read_text() if path.exists() else ""
    if before != text:
        difference = unified_diff(
            before.splitlines(), text.splitlines(), "committed", "as it is now", lineterm="", n=0
        )
        pytest.fail(
            f"{path.name} is not what follows from the code. If the change is meant, run `make generated` and "
            "commit it.\n" + "\n".join(difference),
            pytrace=False,
        )
