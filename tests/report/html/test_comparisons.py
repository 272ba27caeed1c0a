"""The numbers that a clause compares, and their distance in words."""

from __future__ import annotations

from typing import Any

import pytest

from harness.base.vocabulary import Outcome
from harness.contract import parse
from harness.judging.judge import judge
from harness.report.html.clause_rows import Clauses
from harness.report.html.comparisons import Comparison
from tests.contracts import contract_of, document, healthy, observe


def compared(rule: str, **measured: Any) -> list[tuple[float, str, float]]:
    """The numbers that the page shows for a rule."""
    rules = [*document()["rules"], {"id": "it", "rule": rule, "message": "no", "source": "a test"}]
    contract = contract_of(document(rules=rules))
    observation = observe(healthy(**measured))
    (result,) = (one for one in judge(contract, observation).clauses if one.id == "it")
    row = Clauses.of(contract).row(result, observation)
    return [(one.value, one.operator, one.bound) for one in row.comparisons]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("self.returned == self.given", [(3, "==", 3)]),
        ("self.smallest < 0.5 * self.largest", [(1, "<", 1.5)]),
        ("2.0 * self.given > self.largest", [(6, ">", 3)]),
        ("4.0 >= self.returned", [(3, "<=", 4)]),
        ("parameters.steps <= self.returned", [(3, ">=", 3)]),
        ("self.returned > 1.0 && self.returned < 4.0", [(3, ">", 1), (3, "<", 4)]),
        ("(self.smallest + self.largest) / 2.0 < 9.0", [(2, "<", 9)]),
        ("self.values.all(value, value > 0.0)", []),
        ("self.returned < 4.0 || self.given < 4.0", []),
        ("self.values[0] < 2.0", [(1, "<", 2)]),
        ("self.smallest < {'it < that': 0.5}['it < that'] * self.largest", [(1, "<", 1.5)]),
        ("self.returned != 4.0", []),
        ("size(self.values) == 3", [(3, "==", 3)]),
    ],
)
def test_the_sides_of_a_rule(rule: str, expected: list[tuple[float, str, float]]) -> None:
    """The measured side comes first. A rule that does not compare numbers has no sides."""
    assert compared(rule) == expected


def test_what_does_not_explain_the_outcome_is_not_drawn() -> None:
    """If a NaN fails a rule, other values that the rule compares are not drawn."""
    assert compared("self.smallest <= self.largest", smallest=float("nan")) == []


@pytest.mark.parametrize(
    ("clause", "measured", "expected"),
    [
        ("given.const", {"given": 4}, [(4, "==", 3)]),
        ("returned.minimum", {"returned": -1}, [(-1, ">=", 0)]),
        ("values.minItems", {"values": []}, [(0, ">=", 1)]),
        ("values.minItems", {"values": [1.0] * 9}, [(9, ">=", 1)]),
        ("returned.type", {}, []),
    ],
)
def test_the_sides_of_a_bound(clause: str, measured: dict[str, Any], expected: list[tuple[float, str, float]]) -> None:
    """A list counts with its length."""
    contract = contract_of(document())
    observation = observe(healthy(**measured))
    (result,) = (one for one in judge(contract, observation).clauses if one.id == clause)
    row = Clauses.of(contract).row(result, observation)
    assert [(one.value, one.operator, one.bound) for one in row.comparisons] == expected


@pytest.mark.parametrize(
    ("value", "operator", "bound", "margin"),
    [
        (3.0, "==", 3.0, "equal"), (3.0, "<", 3.0, "on the bound"), (0.5, "<", 1.0, "50 % below"),
        (1.062, "<", 1.0, "6.2 % above"), (4280.0, "<", 1.0, "4,280 times the bound"), (5.0, ">", 0.0, "above"),
        (-1.0, ">", 2.0, "below"), (1e30, "<", 1.0, "1e+30 times the bound"), (1e308, "<", 1e-300, "above"),
        (7.45e-8, "<", 1e-4, "0.074 % of the bound"), (0.0, "<", 1.0, "100 % below"),
    ],
)  # fmt: skip
def test_margins_in_words(value: float, operator: str, bound: float, margin: str) -> None:
    """Near margins are in percent, far ones are factors."""
    assert Comparison(value, operator, bound).margin == margin


def test_a_row_without_a_contract_shows_what_the_record_says() -> None:
    """For example, the contract of a bundle may be unreadable. The row then has the record's values."""
    contract = contract_of(document())
    result = judge(contract, observe(healthy(returned=2))).with_outcome(Outcome.FAIL)[0]
    row = Clauses.of(None).row(result, None)
    assert (row.id, row.bound, row.comparisons) == ("nothing-lost", "self.returned == self.given", ())
    assert [(one.name, one.number) for one in row.quantities] == [("returned", "2"), ("given", "3")]


def test_parse_is_what_the_page_uses(tmp_path: Any) -> None:
    """The rows show the names of the sources in the bundle's contract."""
    content = document()
    contract = parse(content, tmp_path / "contract.json", b"{}")
    result = next(one for one in judge(contract, observe(healthy())).clauses if one.id == "given.const")
    assert Clauses.of(contract).row(result, None).source == "the falsifier gives three items"


@pytest.mark.parametrize(
    ("clause", "measured", "written"),
    [("values.minItems", [1.0], "1 item"), ("values.minItems", [1.0, 2.0], "2 items")],
)
def test_one_item_is_one(clause: str, measured: list[float], written: str) -> None:
    contract = contract_of(document())
    observation = observe(healthy(values=measured))
    (result,) = (one for one in judge(contract, observation).clauses if one.id == clause)
    row = Clauses.of(contract).row(result, observation)
    assert (row.bound, [one.number for one in row.quantities]) == ("≥ 1 item", [written])
