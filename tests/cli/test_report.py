"""`harness report` as a user runs it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from junitparser import JUnitXml

from tests.cli.folders import contents
from tests.cli.harness_command import harness
from tests.contracts import healthy
from tests.evidence.factory import sealed, tamper


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    """A folder with one sound bundle."""
    return sealed(tmp_path).parents[2]


def test_the_same_bundles_give_the_same_bytes(tmp_path: Path, evidence: Path) -> None:
    """Pages that exist already make no difference."""
    for _ in range(2):
        assert harness(tmp_path, "report", str(evidence), "--html", "one").returncode == 0
    shutil.copytree(evidence, tmp_path / "elsewhere")
    assert harness(tmp_path, "report", "elsewhere", "--html", "two").returncode == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_an_unsound_bundle_is_shown_as_such_and_refused(tmp_path: Path, evidence: Path) -> None:
    """The page is written, and does not begin with the verdict."""
    (next(evidence.rglob("observation.json"))).write_text("{}")
    run = harness(tmp_path, "report", str(evidence), "--html", "site")
    assert run.returncode == 2
    assert run.stdout == "1 bundle, 1 unsound: site/index.html\n"
    page = next((tmp_path / "site").glob("F-*/*.html")).read_text()
    assert "<title>UNSOUND F-DEMO-SORT-001</title>" in page
    assert "TAMPERED" in page


def test_where_there_is_nothing_to_report_it_says_so(tmp_path: Path, evidence: Path) -> None:
    """Exit status 3 if a path has no bundle; 2 if it is not a folder or no output is named."""
    (tmp_path / "empty").mkdir()
    empty = harness(tmp_path, "report", "empty", "--html", "site")
    assert (empty.returncode, "nothing to report" in empty.stderr) == (3, True)
    missing = harness(tmp_path, "report", "missing", str(evidence), "--html", "site")
    assert (missing.returncode, "does not exist" in missing.stderr) == (2, True)
    assert "1 bundle" in missing.stdout
    idle = harness(tmp_path, "report", str(evidence))
    assert (idle.returncode, "--html" in idle.stderr) == (2, True)
    pages = harness(tmp_path, "report", str(evidence), "--html", "-")
    assert (pages.returncode, "pages need a folder" in " ".join(pages.stderr.split())) == (2, True)
    both = harness(tmp_path, "report", str(evidence), "--ctrf", "-", "--sarif", "-")
    assert (both.returncode, "standard output takes one report" in both.stderr) == (2, True)


def test_what_others_wrote_is_left_alone(tmp_path: Path, evidence: Path) -> None:
    """An index that the harness did not write refuses the report.

    Other files stay; pages of removed bundles are removed.
    """
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text("mine")
    run = harness(tmp_path, "report", str(evidence), "--html", "site")
    assert (run.returncode, "name another folder" in run.stderr) == (2, True)
    assert contents(site) == {"index.html": b"mine"}
    (site / "index.html").unlink()
    (site / "notes").mkdir()
    (site / "notes" / "mine.html").write_text("mine")
    assert harness(tmp_path, "report", str(evidence), "--html", "site").returncode == 0
    shutil.rmtree(evidence / "DEMO-1")
    assert harness(tmp_path, "report", str(evidence), "--html", "site").returncode == 3
    assert sorted(path.name for path in site.rglob("*.html")) == ["index.html", "mine.html"]


def test_reports_for_machines_are_written_in_one_go(tmp_path: Path, evidence: Path) -> None:
    """Each bundle is verified. Missing folders are made."""
    sealed(tmp_path, run="fails", measurements=healthy(returned=2))
    files = {"--ctrf": "out/a.json", "--junit": "out/a.xml", "--markdown": "out/a.md", "--sarif": "out/a.sarif"}
    run = harness(tmp_path, "report", str(evidence), *[word for pair in files.items() for word in pair])
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines() == [f"2 bundles, 0 unsound: {name}" for name in files.values()]
    assert "1 FAIL, 1 PASS" in (tmp_path / "out/a.md").read_text()
    assert json.loads((tmp_path / "out/a.json").read_text())["results"]["summary"]["failed"] == 1
    assert JUnitXml.fromfile(str(tmp_path / "out/a.xml")).failures == 1
    assert len(json.loads((tmp_path / "out/a.sarif").read_text())["runs"][0]["results"]) == 1
    assert sorted(contents(tmp_path / "out")) == ["a.json", "a.md", "a.sarif", "a.xml"]


def test_standard_output_holds_the_report_alone(tmp_path: Path, evidence: Path) -> None:
    """Standard output has the report and nothing else."""
    run = harness(tmp_path, "report", str(evidence), "--ctrf", "-", "--junit", "a.xml", "--html", "site")
    assert json.loads(run.stdout)["reportFormat"] == "CTRF"
    assert run.stderr.splitlines() == ["1 bundle, 0 unsound: site/index.html", "1 bundle, 0 unsound: a.xml"]


@pytest.mark.parametrize(("option", "says"), [("--ctrf", '"failed": 1'), ("--junit", "<error"), ("--sarif", "UNSOUND")])
def test_an_unsound_bundle_and_none_fail_everywhere(tmp_path: Path, evidence: Path, option: str, says: str) -> None:
    """Each format has a failure, whatever the verdict in the record is."""
    tamper(next(evidence.rglob("record.json")).parent)
    run = harness(tmp_path, "report", str(evidence), option, "-")
    assert (run.returncode, says in run.stdout, "TAMPERED" in run.stdout) == (2, True, True)
    (tmp_path / "empty").mkdir()
    run = harness(tmp_path, "report", "empty", option, "-")
    assert (run.returncode, says in run.stdout, "nothing was measured" in run.stdout) == (3, True, True)


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path, evidence: Path) -> None:
    """The message names the option."""
    (tmp_path / "file").write_text("mine")
    run = harness(tmp_path, "report", str(evidence), "--sarif", "file/a.sarif")
    assert (run.returncode, "--sarif" in run.stderr, "Traceback" in run.stderr) == (2, True, False)
