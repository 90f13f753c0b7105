"""The OpenAPI documents: what is committed follows from the tables, is valid, and leaves nothing out."""

import json
from pathlib import Path

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from moorage.server.documents import FACES, openapi
from tests.support.generated import compare

FOLDER = Path(__file__).parents[2] / "docs" / "openapi"


@pytest.mark.parametrize("name", FACES)
def test_the_committed_document_is_what_the_tables_say(name: str, request: pytest.FixtureRequest) -> None:
    text = json.dumps(openapi(name), indent=1) + "\n"
    compare(FOLDER / f"{name}.json", text, write=request.config.getoption("--write"))


@pytest.mark.parametrize("name", FACES)
def test_a_document_is_valid_openapi(name: str) -> None:
    OpenAPIV31SpecValidator(openapi(name)).validate()


@pytest.mark.parametrize("name", FACES)
def test_a_document_has_every_row_of_its_table(name: str) -> None:
    face, paths = FACES[name], openapi(name)["paths"]
    for path, row in face.rows:
        operation = paths[path][row.method.lower()]
        assert str(row.status) in operation["responses"], path
        policies = operation["x-policy"]
        assert row.policy in (policies.values() if isinstance(policies, dict) else [policies]), path
        if row.action is not None:
            assert row.action in json.dumps(operation["requestBody"])
    assert {f"{m.upper()} {p}" for p, found in paths.items() for m in found} == {
        f"{row.method} {path}" for path, row in face.rows
    }
