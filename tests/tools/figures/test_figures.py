"""figures.json: what is read of it, and what is refused."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from harness.contract import ContractError
from harness.tools.figures.figures import Relation, figures_of, has_words, is_printed_in
from tests.tools.figures.rates import figures, written


def test_no_file(tmp_path: Path) -> None:
    """Figures are optional."""
    assert figures_of(tmp_path) is None


def test_what_is_read(tmp_path: Path) -> None:
    """Numbers are exact, and a part of a value is a distance in its unit."""
    named = written(tmp_path).named
    liger, iterations = named["liger"], named["iterations"]
    assert (liger.value, liger.unit, liger.relation, liger.within) == (Fraction("0.98"), "x", Relation.EQUAL, 0)
    assert (liger.called, named["loss"].called, iterations.called) == (("liger",), ("loss",), ("steps", "rounds"))
    assert iterations.within == 2000
    assert (liger.document.unchecked, named["memory"].document.unchecked) == ("", "nobody keeps a copy")


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        # One unit in the last place is another number, and so is another digit.
        ({"liger": {"value": 0.9800000000000001}}, "/figures/liger/value"),
        ({"liger": {"printed": "0.97x"}}, "/figures/liger/value"),
        ({"liger": {"unit": "%"}}, "/figures/liger/unit"),
        ({"liger": {"printed": "x"}}, "/figures/liger/printed"),
        # About 20,000 is not 20,000.
        ({"iterations": {"relation": "equal", "within": ...}}, "/figures/iterations/relation"),
        ({"iterations": {"within": ...}}, "/figures/iterations"),
        ({"liger": {"within": 1}}, "/figures/liger"),
        ({"iterations": {"within": "ten"}}, "/figures/iterations/within"),
        ({"share": {"printed": "35+ %", "relation": "at most"}}, "/figures/share/relation"),
        ({"share": {"document": "blog"}}, "/figures/share/document"),
        ({"share": {"anchor": "of a day"}}, "/figures/share/anchor"),
        ({"share": {"anchor": "135 % of a day"}}, "/figures/share/anchor"),
        ({"share": {"anchor": "~35 % of a day"}}, "/figures/share/anchor"),
        ({"share": {"anchor": "35 % of a day, 40 % of a night"}}, "/figures/share/anchor"),
        ({"share": {"label": "of a night"}}, "/figures/share/label"),
        ({"share": {"anchor": ...}}, "/figures/share"),
        ({"liger": {"row": ...}}, "/figures/liger"),
        ({"liger": {"anchor": "0.98x liger Speedup"}}, "/figures/liger"),
        ({"liger": {"label": "triton Speedup"}}, "/figures/liger/label"),
        ({"memory": {"place": ...}}, "/figures/memory"),
        ({"memory": {"relation": "below"}}, "/figures/memory/relation"),
        ({"memory": {"quote": "x"}}, "/figures/memory/quote"),
    ],
)
def test_what_contradicts_itself_is_refused(changes: Any, pointer: str, tmp_path: Path) -> None:
    with pytest.raises(ContractError) as refused:
        written(tmp_path, figures(**changes))
    assert pointer in [problem.pointer for problem in refused.value.problems]
    assert all(problem.remedy for problem in refused.value.problems)


@pytest.mark.parametrize("change", [{"unchecked": "why"}, {"sha256": ...}])
def test_a_document_is_compared_or_it_is_not(change: Any, tmp_path: Path) -> None:
    """It has one of the two keys that say which."""
    content = figures()
    changed = {**content["documents"]["benchmarks"], **change}
    content["documents"]["benchmarks"] = {key: value for key, value in changed.items() if value is not ...}
    content["documents"]["benchmarks"].setdefault("names", ["x y z"])
    with pytest.raises(ContractError) as refused:
        written(tmp_path, content)
    assert "/documents/benchmarks" in [problem.pointer for problem in refused.value.problems]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"documents": {}}', '{"documents": 1, "documents": 2}', "[" * 100_000, '{"a": NaN}']
)
def test_what_is_no_such_document(text: str, tmp_path: Path) -> None:
    (tmp_path / "figures.json").write_text(text)
    with pytest.raises(ContractError) as refused:
        figures_of(tmp_path)
    assert refused.value.path == tmp_path / "figures.json"


def test_what_is_no_file(tmp_path: Path) -> None:
    """A pipe is refused and not waited for."""
    os.mkfifo(tmp_path / "figures.json")
    with pytest.raises(ContractError):
        figures_of(tmp_path)


@pytest.mark.parametrize(
    ("relation", "value", "bound", "holds"),
    [
        (Relation.AT_MOST, 1, 1, True),
        (Relation.LESS, 1, 1, False),
        (Relation.AT_LEAST, 1, 2, False),
        (Relation.MORE, 2, 1, True),
        (Relation.EQUAL, 1, 1, True),
        (Relation.EQUAL, 1, 2, False),
    ],
)
def test_relations(relation: Relation, value: int, bound: int, holds: bool) -> None:
    assert relation.holds(Fraction(value), Fraction(bound)) is holds
    # What holds of a value holds, turned round, of 1 less the value.
    assert relation.flipped.holds(Fraction(1 - value), Fraction(1 - bound)) is holds


@pytest.mark.parametrize(
    ("text", "quantity", "found"),
    [
        ("0.98x", "0.98x", True),
        ("(0.98x)", "0.98x", True),
        ("10.98x", "0.98x", False),
        ("0.985", "0.98", False),
        ("0.98x", "0.98", False),
        ("~62 TFLOPS", "62 TFLOPS", False),
        ("~62 TFLOPS", "~62 TFLOPS", True),
        ("62 TFLOPS,", "62 TFLOPS", True),
        ("1,062 TFLOPS", "62 TFLOPS", False),
        ("layers 18-26", "18", True),
        ("layers 18-26", "26", True),
        ("-26", "26", False),
        ("27+ kernels", "27", False),
        ("B=64.", "64", True),
        ("B=64.5", "64", False),
        ("sm_64", "64", False),
    ],
)
def test_a_quantity_is_printed_whole(text: str, quantity: str, found: bool) -> None:
    assert is_printed_in(text, quantity) is found


def test_words() -> None:
    """Case, order and signs do not count; every word does."""
    assert has_words("liger_low: the lower bound of Liger", "Liger low")
    assert has_words("| 4096³ | BF16 |", "BF16 4096³")
    assert not has_words("ligers", "liger")
    assert not has_words("liger", "liger triton")
