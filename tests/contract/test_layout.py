"""The layout of a contract as text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.contract.project import Project
from harness.tools.laid_out import WIDTH, laid_out

_TEXTS = st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=50)
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9999, 9999) | st.floats(-1e9, 1e9) | _TEXTS,
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.dictionaries(st.sampled_from(["a", "properties", "rules", "examples", "x-source"]), inner, max_size=5)
    ),
    max_leaves=40,
)


@given(_VALUES)
def test_only_the_layout_changes(value: Any) -> None:
    """Keys keep their order. A second layout changes nothing."""
    text = laid_out(value)
    assert json.dumps(json.loads(text)) == json.dumps(value)
    assert laid_out(json.loads(text)) == text


@given(_VALUES)
def test_only_a_long_text_makes_a_long_line(value: Any) -> None:
    for line in laid_out(value).splitlines():
        beside = re.match(r'\s*(("[^"]*": )?[\[{])*', line)  # brackets that a first member stands beside
        assert beside is not None
        assert len(line[beside.end() :]) <= WIDTH or any(len(part) > 20 for part in line.split('"')), line


def test_blocks(snapshot: Any) -> None:
    """A block that fits on one line has one line. Each measurement, rule and mutant begins a line."""
    number = {"type": "number", "minimum": 0.5, "maximum": 1.5, "x-unit": "nats"}
    long = {**number, "description": "Far too long to stand on the same line as all the rest.", "x-source": "a test"}
    rule = {"id": "falls", "rule": "self.a < self.b", "message": "it does not fall"}
    content = {
        "id": "F-DEMO-SORT-001",
        "claim": "It sorts. " * 14,
        "rules": [rule, rule],
        "observation": {"type": "object", "properties": {"short": number, "long": long}},
        "profiles": {"full": {"parameters": {f"parameter_{index}": index for index in range(12)}, "limits": {}}},
    }
    assert laid_out(content) == snapshot


@pytest.mark.parametrize("path", Project.find(Path(__file__).parent).files(), ids=lambda path: str(path.parent.name))
def test_every_contract_of_this_project_is_laid_out_so(path: Path) -> None:
    """Every contract and every calibration has this layout."""
    for file in (path, path.with_name("calibration.json")):
        if file.exists():
            assert file.read_text(encoding="utf-8") == laid_out(json.loads(file.read_text(encoding="utf-8"))), (
                f"run harness fmt {file}"
            )
