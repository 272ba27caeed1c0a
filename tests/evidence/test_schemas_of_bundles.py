"""The schemas of the documents in a bundle agree with the code that writes them."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from harness.base.schemas import schema_folder
from harness.contract.clauses import ClauseResult
from harness.judging.record import MutantRecord, Record


def test_the_schema_of_a_record_has_its_fields_and_no_others() -> None:
    """`to_json` and the schema have the same fields."""
    schema = json.loads((schema_folder() / "record.schema.json").read_text())
    parts = {Record: schema, MutantRecord: schema["$defs"]["mutant"], ClauseResult: schema["$defs"]["clause"]}
    for kind, part in parts.items():
        names = {field.name for field in fields(kind)} | ({"format"} if kind is Record else set())
        late = {
            Record: {
                *("isolated", "limit_seconds", "pace", "predicted", "subject_parameters", "unjudged", "waited_seconds"),
                "withdrawn",
            },
            MutantRecord: {"values"},
        }  # not in older bundles
        assert set(part["properties"]) == set(part["required"]) | late.get(kind, set()) == names
        assert part["additionalProperties"] is False


@pytest.mark.parametrize("name", ["record", "environment", "mutant", "artifacts"])
def test_schemas_are_schemas(name: str) -> None:
    """Each schema uses draft 2020-12, is closed at the top, and has an identifier."""
    schema = json.loads((schema_folder() / f"{name}.schema.json").read_text())
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"urn:falsifier-harness:{name}:{2 if name == 'record' else 1}"
    assert schema["additionalProperties"] is False
