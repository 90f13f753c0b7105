"""docs/architecture.md names files and functions on a server's way from POST to ACTIVE: they are there."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "moorage"
TEXT = re.sub(r"```.*?```", "", (ROOT / "docs" / "architecture.md").read_text(), flags=re.DOTALL)
_, _, _rest = TEXT.partition("\n## One server, from POST to ACTIVE\n")
WAY = re.sub(r"\s+", " ", _rest.partition("\n## ")[0])
CODE = re.compile(r"`([^`]+)`")
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")
# A file, and the name that follows it: that is in this file.
IN_FILE = re.compile(r"`([\w/]+\.py)`\s?\(?,? ?`([A-Za-z_][\w.]*)`")


def _names(body: list[ast.stmt], inside: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield inside + node.name
            if inside:
                yield node.name
        if isinstance(node, ast.ClassDef):
            yield from _names(node.body, f"{node.name}.")
            for each in ast.walk(node):
                if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
                    yield f"{node.name}.{each.attr}"
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        yield from (inside + target.id for target in targets if isinstance(target, ast.Name))


@cache
def defined(file: Path) -> frozenset[str]:
    """What a module defines: its names, ``Class.method`` and ``Class.attribute``, and methods alone."""
    return frozenset(_names(ast.parse(file.read_text()).body))


@cache
def written() -> frozenset[str]:
    """Every text in the code: kinds of events, names of steps and of channels."""
    trees = (ast.walk(ast.parse(file.read_text())) for file in SOURCE.rglob("*.py"))
    return frozenset(
        n.value for t in trees for n in t if isinstance(n, ast.Constant) and isinstance(n.value, str)
    )


def is_there(name: str) -> bool:
    """Whether the code has a name: ``Class.attribute``, ``module.function``, ``package.method``, or one alone."""
    files = list(SOURCE.rglob("*.py"))
    owner, _, last = name.rpartition(".")
    if owner and owner[0].islower():
        files = [f for f in files if owner in (f.stem, f.parent.name)]
        name = last
    return any(name in defined(file) for file in files)


def test_the_way_of_a_server_names_files_and_functions_that_are_there() -> None:
    wrong = []
    tokens = CODE.findall(WAY)
    for token in tokens:
        if "/" in token or token.endswith(".py"):
            if not (SOURCE / token).exists():
                wrong.append(f"no {token} below src/moorage")
        elif NAME.fullmatch(token) and token not in written() and not is_there(token):
            wrong.append(f"no {token}")
    pairs = IN_FILE.findall(WAY)
    wrong += [
        f"no {name} in {file}"
        for file, name in pairs
        if (SOURCE / file).is_file() and name not in defined(SOURCE / file)
    ]
    assert len(tokens) > 50
    assert len(pairs) > 20
    assert not wrong, "\n".join(wrong)


def test_the_document_names_files_that_are_there() -> None:
    files = [f.relative_to(SOURCE).as_posix() for f in SOURCE.rglob("*.py")]
    named = {token for token in CODE.findall(TEXT) if token.endswith(".py")}
    gone = [
        n
        for n in sorted(named)
        if not (ROOT / n).exists() and not any(f"/{f}".endswith(f"/{n}") for f in files)
    ]
    assert len(named) > 50
    assert not gone, gone


def test_a_name_that_is_gone_is_noticed() -> None:
    assert is_there("commands.send")
    assert not is_there("engine._send")
