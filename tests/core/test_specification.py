"""SPECIFICATION.md names the tests that prove each promise: they are there, and no row is without one."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROWS = [
    line
    for line in (TESTS.parent / "SPECIFICATION.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| promise |")
]
PROOF = re.compile(r"`([a-z_/]+\.(?:py|txt))?(?:::(test_\w+))?`")


def _tests_of(file: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_promise_names_tests_that_are_there() -> None:
    wrong = []
    for row in ROWS:
        promise, proofs = (cell.strip() for cell in row.strip("| ").rsplit(" | ", 1))
        found = [match.groups() for match in PROOF.finditer(proofs) if any(match.groups())]
        # Some are proved by a command whose run is long, or reads the code.
        if "`make " not in proofs and (not found or found[0][0] is None):
            wrong.append(f"{promise}: no file of tests")
        file = TESTS
        for name, test in found:
            if name is not None:
                file = TESTS / name  # a test without a file is of the file before it
            if not file.is_file():
                wrong.append(f"{promise}: no {name}")
            elif test is not None and test not in _tests_of(file):
                wrong.append(f"{promise}: no {test} in {file.relative_to(TESTS)}")
    assert ROWS
    assert not wrong, "\n".join(wrong)
