"""`harness figures`, and what `harness lint` says of figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import ExitStatus
from harness.cli import lint
from harness.contract.project import Project
from harness.tools.figures.command import command
from tests.contracts import IDENTIFIER, document, write_contract
from tests.tools.figures.rates import TEXT, bound, figures, written

Findings = list[tuple[str, list[tuple[str, str]]]]


@pytest.fixture
def figured(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The current folder: a project whose contract names every figure of its folder, and a folder of documents."""
    monkeypatch.chdir(project.root)
    uses = {
        "claim": ["liger", "triton", "iterations", "share", "loss", "memory"],
        "given.const": {"figure": "share", "as": "side", "unit": "%"},
    }
    claim = "liger 0.98, triton 1.17, a loss of 1e-5, 20000 steps, a share of 35 %, a memory of 2"
    write_contract(project.root, bound({}, uses, claim=claim, title="x"))
    content = figures(share={"called": ["share", "given"], "relation": "at most"})
    written(project.files()[0].parent.parent, content)
    (project.root / "sources").mkdir()
    (project.root / "sources" / "benchmarks.md").write_text(TEXT)
    return project


def called(*arguments: str, of: click.Command = command) -> tuple[ExitStatus, str]:
    """The exit status and what is printed."""
    result = CliRunner().invoke(of, arguments, standalone_mode=False, catch_exceptions=False)
    return result.return_value, result.output


def reports(*arguments: str, of: click.Command = command, key: str = "files") -> tuple[ExitStatus, Findings]:
    """The exit status; each file with findings, with the rule and the place of each."""
    status, text = called("--json", *arguments, of=of)
    found: list[dict[str, Any]] = json.loads(text)[key]
    return status, [
        (Path(file["file"]).name, [(finding["rule"], finding["pointer"]) for finding in file["findings"]])
        for file in found
        if file["findings"]
    ]


def without_wrong_bound(project: Project, **changes: Any) -> Path:
    """Write the contract without the bound that differs from its figure."""
    path = project.files()[0]
    content = json.loads(path.read_text())
    del content["figures"]["given.const"]
    write_contract(project.root, content | changes)
    return path


def test_figures(figured: Project, snapshot: SnapshotAssertion) -> None:
    """A bound that differs from its figure is an error of the contract, at the key of `figures`, for lint too."""
    status, text = called("--sources", "sources")
    assert text.replace(str(figured.root), "PROJECT") == snapshot
    assert status is ExitStatus.REFUSED
    expected = (ExitStatus.REFUSED, [("contract.json", [("figure-direction", "/figures/given.const")])])
    assert reports() == expected
    assert reports(of=lint.command, key="contracts") == expected


def test_figures_that_are_at_their_locators(figured: Project) -> None:
    """The summary says how many figures were compared; a figure that is not there refuses the file."""
    without_wrong_bound(figured)
    summary = "figures: 5 compared with documents, 1 of documents without a text; 0 quotes\n"
    assert called("--sources", "sources") == (ExitStatus.PASS, summary)
    (figured.root / "sources" / "benchmarks.md").write_text(TEXT.replace("0.98x", "1.17x"))
    findings = [("figure-not-there", "/figures/liger"), ("document-changed", "/documents/benchmarks")]
    assert reports("--sources", "sources") == (ExitStatus.REFUSED, [("figures.json", findings)])


def test_a_figure_is_unused_only_where_all_contracts_are_looked_at(figured: Project) -> None:
    """One contract of a folder need not name all of its figures."""
    path = without_wrong_bound(figured, figures={"claim": ["liger"]})
    write_contract(figured.root, document(id="F-DEMO-OTHER-001"))
    assert reports(str(path)) == (ExitStatus.PASS, [])
    status, [(name, found)] = reports("contracts/demo")
    assert (status, name, {rule for rule, _ in found}, len(found)) == (
        ExitStatus.REFUSED,
        "figures.json",
        {"figure-unused"},
        5,
    )


def test_a_refused_figures_json(figured: Project) -> None:
    """Nothing is compared; lint names it at each contract beside it."""
    (figured.files()[0].parent.parent / "figures.json").write_text("{")
    status, [(name, [(rule, _)])] = reports()
    assert (status, name, rule) == (ExitStatus.REFUSED, "figures.json", "figures-refused")
    status, [(name, [(rule, _)])] = reports(of=lint.command, key="contracts")
    assert (status, name, rule) == (ExitStatus.REFUSED, "contract.json", "figures-refused")


def test_what_cannot_be_compared(figured: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A contract that is refused, and a folder of documents that cannot be read, refuse the command."""
    write_contract(figured.root, "{", name="F-DEMO-BROKEN-001")
    with pytest.raises(click.UsageError, match="F-DEMO-BROKEN-001"):
        called()
    monkeypatch.setattr("harness.tools.figures.documents._MOST_BYTES", 1)
    with pytest.raises(click.UsageError, match="bytes"):
        called("--sources", "sources", f"contracts/demo/{IDENTIFIER}")
