"""Lint opens the documents that figures and quotes are of."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from harness.lint.linter import Severity
from harness.tools.figures.documents import Texts, TextsError, misplaced_figures, misquotes
from tests.contracts import contract_of
from tests.tools.figures.rates import TEXT, bound, figures, written

URI = "https://example.org/benchmarks"


def texts(folder: Path, text: str = TEXT, name: str = "benchmarks.md") -> Texts:
    """A folder with this document."""
    sources = folder / "sources"
    sources.mkdir(exist_ok=True)
    (sources / name).write_text(text, encoding="utf-8")
    return Texts.in_folder(sources)


def misplaced(folder: Path, content: Any = None, text: str = TEXT, name: str = "benchmarks.md") -> list[str]:
    """The places of errors in figures.json; each finding has a remedy. A text that changed is always remarked."""
    found = list(misplaced_figures(written(folder, content), texts(folder, text, name)))
    assert all(finding.remedy for finding in found)
    changed = [finding.rule for finding in found if finding.severity is Severity.WARNING]
    is_changed = text != TEXT and name == "benchmarks.md"
    assert changed == (["document-changed"] if is_changed else [])
    return [finding.pointer for finding in found if finding.severity is Severity.ERROR]


@pytest.mark.parametrize("name", ["benchmarks.md", "benchmarks", "000_7f.txt"])
def test_a_document_is_found_by_its_name_or_digest(name: str, tmp_path: Path) -> None:
    """A document without a text is not asked for."""
    assert misplaced(tmp_path, name=name) == []


def test_a_document_that_is_not_there(tmp_path: Path) -> None:
    """With neither its name nor its digest, nothing is compared, which is an error."""
    assert misplaced(tmp_path, text=f"{TEXT} ", name="other.md") == ["/documents/benchmarks"]


@pytest.mark.parametrize(
    ("before", "after", "places"),
    [
        # Two rows exchanged.
        ("| liger | 14,202 tok/s | 0.98x |", "| liger | 16,950 tok/s | 1.17x |", ["/figures/liger"]),
        ("0.98x", "0.97x", ["/figures/liger"]),
        ("0.98x", "0.985x", ["/figures/liger"]),
        ("0.98x", "~0.98x", ["/figures/liger"]),
        ("0.98x", "0.98 %", ["/figures/liger"]),
        ("| liger | 14,202", "| lager | 14,202", ["/figures/liger"]),
        ("Speedup |", "Slowdown |", ["/figures/liger", "/figures/triton"]),
        ("## Rates", "## Other rates", ["/figures/liger", "/figures/triton"]),
        ("~20,000", "~21,400", ["/figures/iterations"]),
        ("~20,000", "20,000", ["/figures/iterations"]),
        ("35 %", "-35 %", ["/figures/share"]),
        ("of a day", "of a week", ["/figures/share"]),
        ("1e-5", "1e-6", ["/figures/loss"]),
        ("1e-5", "1e-51", ["/figures/loss"]),
        ("| triton |", "| liger |", ["/figures/liger", "/figures/triton"]),
    ],
)
def test_a_figure_that_is_not_at_its_locator(before: str, after: str, places: list[str], tmp_path: Path) -> None:
    assert TEXT.count(before) >= 1
    assert misplaced(tmp_path, text=TEXT.replace(before, after)) == places


@pytest.mark.parametrize(
    "change",
    [
        {"row": "triton", "label": "triton Speedup"},
        {"column": "Rate", "label": "liger Rate"},
        {"section": "Memory"},
        {"section": "Rate"},
        {"value": 1.17, "printed": "1.17x"},
    ],
)
def test_a_locator_that_leads_elsewhere(change: Any, tmp_path: Path) -> None:
    assert misplaced(tmp_path, figures(liger=change)) == ["/figures/liger"]


def test_a_heading_in_a_code_block_is_none(tmp_path: Path) -> None:
    text = TEXT.replace("## Rates\n", "```\n## Rates\n```\n")
    assert misplaced(tmp_path, text=text) == ["/figures/liger", "/figures/triton"]
    assert (
        misplaced(tmp_path, text=TEXT.replace("| Backend | Rate | S", "```\n# code\n```\n\n| Backend | Rate | S")) == []
    )


@pytest.mark.parametrize(
    ("quote", "locator", "found"),
    [
        ("Before: ~20,000 iterations", "", False),
        ("before:~20,000iterations", "", True),
        ("Before:~20,000 iterations (35% of a day)", "", False),
        ("Before: 20,000 iterations", "", True),
        ("one loss in 1e-5.", "", False),
        # A quote of another document with the same address is not in this text.
        ("no such words", "the appendix", False),
        ("no such words", "", True),
    ],
)
def test_quotes_of_sources(quote: str, locator: str, found: bool, tmp_path: Path) -> None:
    """Spaces do not count; every other sign does."""
    content = figures()
    content["documents"]["paper"] |= {"uri": URI, "names": ["the appendix"]}
    source = {"uri": URI, "locator": locator, "quote": quote}
    contract = contract_of(bound({}, {}, sources=[{"uri": "https://example.org"}, source]))
    places = [finding.pointer for finding in misquotes(contract, written(tmp_path, content), texts(tmp_path))]
    assert places == (["/sources/1/quote"] if found else [])


@pytest.mark.parametrize(
    ("source", "found"), [('"0.98x" is stated', False), ('"0.97x" is stated', True), ("0.97x", False)]
)
def test_quotes_beside_bounds(source: str, found: bool, tmp_path: Path) -> None:
    """What stands in quotation marks beside a bound is in the document of its figure."""
    liger = {"liger": {"type": "number", "const": 0.98, "x-unit": "x", "x-source": source}}
    contract = contract_of(bound(liger, {"liger.const": "liger"}))
    places = [finding.pointer for finding in misquotes(contract, written(tmp_path), texts(tmp_path))]
    assert places == (["/figures/liger.const"] if found else [])


def test_a_folder_with_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read up to a size of all together. What is no regular file is not opened."""
    (tmp_path / "a.txt").write_text("x" * 100)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    assert {*Texts.in_folder(tmp_path).by_name} == {"a.txt", "a"}
    monkeypatch.setattr("harness.tools.figures.documents._MOST_BYTES", 99)
    with pytest.raises(TextsError):
        Texts.in_folder(tmp_path)
    monkeypatch.setattr("harness.tools.figures.documents._MOST_FILES", 0)
    with pytest.raises(TextsError):
        Texts.in_folder(tmp_path)
