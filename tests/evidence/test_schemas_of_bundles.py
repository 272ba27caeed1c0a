"""The schemas of the documents in a bundle agree with the code that writes them."""

from __future__ import annotations

import json
from dataclasses import fields

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
