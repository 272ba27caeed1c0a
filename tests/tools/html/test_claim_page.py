"""The page of a claim: the trend of every number that a clause compares, and the claim's runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from harness.contract import load
from harness.contract.project import Project
from harness.evidence.verification import find_bundles
from harness.tools.html import claim_page
from harness.tools.html.plot import Form
from tests.contracts import document, healthy, write_project
from tests.evidence.factory import claim_result, sealed, sealer
from tests.tools.html.evidence import write

CLAIM = "F-DEMO-SORT-001"


def run(folder: Path, number: int, **changes: Any) -> None:
    sealed(folder, run=f"run-{number}", started=f"2026-11-{number:02d}T12:00:00+00:00", **changes)


def test_every_number_has_a_trend_with_its_bounds(tmp_path: Path) -> None:
    """A number that a run lacks is a gap. A rule that orders numbers has its ratio, with the bound 1."""
    run(tmp_path, 1, measurements=healthy(returned=2))
    run(tmp_path, 2, measurements=healthy(largest=9))
    run(tmp_path, 3, measurements=healthy(smallest=...))
    entries = write(find_bundles([tmp_path / "evidence"]), tmp_path / "site")
    figures = {trend.title: trend for trend in claim_page.trends(entries[::-1])}
    returned, given = figures["returned"].lines, figures["given"].lines
    assert [(list(line.x), line.y) for line in returned] == [([1, 2, 3], [2, 3, 3])]
    assert (given[1].form, given[1].label, given[1].y) == (Form.BOUND, "bound =", [3, 3, 3])
    ordered, bound = figures["ordered"].lines
    assert (ordered.y, bound.y) == ([pytest.approx(1 / 3), pytest.approx(1 / 9), None], [1, 1, None])
    assert figures["smallest"].lines[0].y == [1, 1, None]
    page = (tmp_path / "site" / CLAIM / "index.html").read_text()
    assert page.count('class="plot"') == len(figures)
    assert "reduced profile on CPU a CPU: 3 runs" in page


def test_runs_that_cannot_be_compared_have_trends_of_their_own(tmp_path: Path) -> None:
    """Runs with other parameters, for example, have their own trend. An unsound bundle has none."""
    run(tmp_path, 1)
    run(tmp_path, 2, overrides={"steps": 3})
    run(tmp_path, 3, subject="falsifiers.demo.sorting:Forgetful")  # the observation is of another: unsound
    write(find_bundles([tmp_path / "evidence"]), tmp_path / "site")
    page = (tmp_path / "site" / CLAIM / "index.html").read_text()
    assert re.findall(r"<h3>reduced profile on CPU a CPU([^<]*): 1 run</h3>", page) == [", with steps=3", ""]


def test_what_a_rule_computes_has_the_name_of_the_rule(tmp_path: Path) -> None:
    """The result of a rule is not a measurement, but it has a trend with the rule's name."""
    rules = [
        *document()["rules"],
        {"id": "balanced", "rule": "self.smallest / self.largest > 0.1", "message": "it is not"},
    ]
    root = write_project(tmp_path / "project", document(rules=rules))
    contract = load(next((root / "contracts").rglob("contract.json")), (root,))
    sealer(tmp_path).seal(claim_result(tmp_path / "contracts", contract=contract))
    [entry] = write(find_bundles([tmp_path / "evidence"]), tmp_path / "site")
    assert entry.numbers["balanced"] == {"value": pytest.approx(0.3), "unit": "", "bounds": {"≤": 1.0}}


def test_a_claim_without_a_bundle_has_no_page(tmp_path: Path) -> None:
    """The page of a claim has the command that runs it."""
    run(tmp_path, 1)
    project = Project.find(write_project(tmp_path / "project", document(), document(id="F-DEMO-OTHER-001")))
    write(find_bundles([tmp_path / "evidence"]), tmp_path / "site", project)
    (page,) = (tmp_path / "site").glob("*/index.html")
    assert f">harness run {CLAIM}</pre>" in page.read_text()


def test_every_link_of_the_site_leads_to_a_page(tmp_path: Path) -> None:
    """Every link leads to a page: from the index to claims and bundles, between these, and back."""
    run(tmp_path, 1)
    run(tmp_path, 2, skipped=True)
    project = Project.find(write_project(tmp_path / "project", document(), document(id="F-DEMO-OTHER-001")))
    write(find_bundles([tmp_path / "evidence"]), tmp_path / "site", project)
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) == 4
    for page in pages:
        text = page.read_text()
        links = [link for link in re.findall(r'href="([^"]*)"', text) if not link.startswith("https:")]
        assert links
        for link in links:
            name, _, fragment = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            assert target in pages, link
            assert not fragment or f'id="{fragment}"' in target.read_text(), link
