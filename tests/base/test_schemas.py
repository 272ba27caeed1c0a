"""The schemas of our formats. Two validators agree: the fast one and the one that explains."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from harness.base import schemas, strictjson
from tests.evidence.factory import sealed

FILES = {
    "record": "record.json",
    "contract": "contract.json",
    "observation": "observation.json",
    "environment": "environment.json",
    "mutant": "mutants.jsonl",
}


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A valid document of each of these formats."""
    bundle = sealed(tmp_path_factory.mktemp("schemas"), rows=3)
    return {
        name: json.loads(
            (bundle / file).read_text().splitlines()[0] if file.endswith(".jsonl") else (bundle / file).read_text()
        )
        for name, file in FILES.items()
    }


def places(document: Any, steps: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places where a value can be put into a document."""
    inside = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [place for key, value in inside for place in [(*steps, key), *places(value, (*steps, key))]]


nonsense = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**63, 2**64, 10**400, -(10**400), 1.0, 5e-324, float("nan"), float("inf"), ""]),
    st.floats(),
    st.text(),
    st.sampled_from(["F-DEMO-SORT-001\n", "a" * 64 + "\n", "A" * 64, "\ud800", "sha256", "cuda", "PASS"]),
    st.sampled_from(["\u017f", "\u0663"]),
    st.just([]),
    st.just({}),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=3),
)


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
def test_what_the_quick_validator_accepts_the_other_accepts(name: str, documents: dict[str, Any], data: Any) -> None:
    """A document that the fast validator refuses is refused by the other one with a reason, or is valid there too."""
    document = copy.deepcopy(documents[name])
    for _ in range(data.draw(st.integers(1, 2))):
        *steps, last = data.draw(st.sampled_from(places(document)))
        inside = document
        for step in steps:
            inside = inside[step]
        if data.draw(st.booleans()) or not isinstance(inside, dict):
            inside[last] = data.draw(nonsense)
        else:
            inside[data.draw(st.text(max_size=5))] = inside.pop(last)
        if not places(document):
            break
    schema = strictjson.load(Path(schemas.schema_folder(), f"{name}.schema.json"))
    valid = Draft202012Validator(schema).is_valid(document)
    found = schemas.problems(name, document)
    # Ours is the stricter one in one thing: in a pattern `$` is the end, and not a newline at the end.
    assert (found == []) == valid or (valid and all("is not of the form" in finding.message for finding in found))


@pytest.mark.parametrize("name", schemas.NAMES)
def test_schemas_are_schemas(name: str) -> None:
    """Validation does not check them, because that takes longer than to check a bundle."""
    Draft202012Validator.check_schema(strictjson.load(schemas.schema_folder() / f"{name}.schema.json"))


@pytest.mark.parametrize("name", FILES)
def test_a_valid_document_has_no_problems(name: str, documents: dict[str, Any]) -> None:
    """Texts that are not UTF-8 are valid, although the fast validator cannot read them."""
    assert schemas.problems(name, documents[name]) == []
    if name == "record":
        assert schemas.problems(name, {**documents[name], "title": "half \ud800"}) == []
