"""Contracts: any JSON, observation schemas and CEL rules."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from harness.contract import Contract, ContractError, load
from harness.contract.expression import engine
from tests.contracts import document
from tests.fuzz.corpus import cases
from tests.fuzz.damage import altered, damaged, noise
from tests.fuzz.limits import bounded

CONTRACTS = Path(__file__).parents[2] / "contracts"
OURS = sorted(CONTRACTS.glob("*/*/contract.json"), key=lambda path: path.stat().st_size)[:3]
DOCUMENTS = [document(), *(json.loads(path.read_text()) for path in OURS)]
WORDS = [
    "type", "const", "enum", "minimum", "maximum", "exclusiveMinimum", "multipleOf", "minItems", "maxItems",
    "uniqueItems", "items", "properties", "additionalProperties", "pattern", "minLength", "required", "$ref", "$defs",
    "x-source", "array", "object", "number", "integer", "string", "#/$defs/a", "#/observation", "#", "full", "reduced",
    "cuda", "any", "(a+)+$", "\\1", "(?=a)", "[a-z]{1000}", "nothing-lost", "given.const", "..:x", "a:b:c",
    "self", "self.values.all(v, v >= 0.0)", "self.values.map(a, self.values.map(b, a * b)).size() > 0.0",
    "parameters.steps", "device.type == 'cuda'", "has(self.returned)", "!" * 500, "-" * 5000 + "1.0", "(" * 300,
    "[" * 300, "a.b.c.d", "1 < 2 < 3", "falsifiers.demo.sorting:falsify",
]  # fmt: skip

engine().compile("true")  # loads the compilers, for which no contract should pay


def examine(data: bytes, folder: Path) -> None:
    """Load the contract. A refusal has a place in it."""
    path = folder / "F-DEMO-SORT-001" / "contract.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    found = attempt(path)
    if isinstance(found, ContractError):
        assert found.problems
        assert all(problem.pointer == "" or problem.pointer.startswith("/") for problem in found.problems)
        str(found)


def attempt(path: Path) -> Contract | ContractError:
    """The loader's result, or its documented error."""
    try:
        with bounded(seconds=10.0, mebibytes=512):
            return load(path, (path.parent,))
    except ContractError as error:
        return error


texts = st.sampled_from([json.dumps(document).encode() for document in DOCUMENTS])


@given(data=altered(DOCUMENTS, WORDS) | texts.flatmap(lambda text: damaged([text])) | noise(b"{", b"[" * 5000))
def test_any_bytes_are_loaded_or_refused(data: bytes, folder: Path) -> None:
    examine(data, folder)


@cases("contract")
def test_the_corpus(data: bytes, tmp_path: Path) -> None:
    examine(data, tmp_path)
