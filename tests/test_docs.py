"""The documentation builds without a warning and has every command and schema. A broken link stops the build."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import write_figures

from harness.cli import _group
from tests.cli.harness_command import harness

ROOT = Path(__file__).parents[1]
SCHEMAS = sorted((ROOT / "contracts" / "schema").glob("*.json"))


def build(project: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build a project's documentation as `make check` does."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=project,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built documentation."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def sections(page: Path) -> list[str]:
    """The ids of a page's headings of the second level."""
    return re.findall(r'<h2 id="([^"]+)"', page.read_text(encoding="utf-8"))


def test_every_command_has_a_section(site: Path) -> None:
    assert [name for name in sections(site / "commands.html") if name.startswith("harness-")] == [
        f"harness-{name}" for name in _group.list_commands(click.Context(_group))
    ]


def test_every_schema_has_a_section_with_its_version(site: Path) -> None:
    page = site / "formats.html"
    assert len(sections(page)) == len(SCHEMAS)
    for path in SCHEMAS:
        assert json.loads(path.read_text())["$id"] in page.read_text(encoding="utf-8")
        assert (site / "schema" / path.name).read_bytes() == path.read_bytes()


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for page in site.glob("*.html"):
        loaded = re.findall(
            r'<(?:script|img|link)[^>]*\s(?:src|href)="(https?:[^"]+)"', page.read_text(encoding="utf-8")
        )
        assert loaded == [], page.name


def test_a_broken_link_stops_the_build(tmp_path: Path) -> None:
    """Each link is named."""
    pytest.importorskip("mkdocs")
    project = tmp_path / "project"
    shutil.copytree(ROOT / "docs", project / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "contracts", project / "contracts")
    for name in ("mkdocs.yml", "README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md", "SECURITY.md"):
        shutil.copy(ROOT / name, project)
    with (project / "docs" / "commands.md").open("a") as page:
        page.write("\n[x](nowhere.md)\n[x](tutorial.md#nowhere)\n[x](../harness/nowhere.py)\n")
    done = build(project, tmp_path / "site")
    assert done.returncode != 0
    assert all(f"'{link}'" in done.stderr for link in ("nowhere.md", "tutorial.md#nowhere", "harness/nowhere.py"))


def test_paths_in_the_text_exist() -> None:
    """Each path in backquotes is a file of the repository, except those that the reader of an example writes."""
    pages = [
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "SECURITY.md")),
    ]
    named = r"`((?:harness|falsifiers|contracts|tests|docs|benchmarks|trainers)/[a-z0-9_./-]+)`"
    missing = {
        (page.name, path)
        for page in pages
        for path in re.findall(named, page.read_text(encoding="utf-8"))
        if not (ROOT / path).exists()
    }
    assert missing == {
        ("README.md", "falsifiers/softmax.py"),
        ("trainers.md", "trainers/train.py"),
        ("trainers.md", "trainers/train.toml"),
    }


def test_the_documentation_is_short() -> None:
    """A reader finds a fact if it stands once. Results stand in evidence, options in the help; two pages are tables."""
    pages = [page for page in (ROOT / "docs").glob("*.md") if page.name not in ("coverage.md", "corpus.md")]
    texts = [re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8")) for page in pages]
    assert sum(len(text.split()) for text in texts) <= 30_000
    assert len((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").partition("## 0.1.0")[2].splitlines()) <= 80


@pytest.mark.parametrize("page", write_figures.PAGES, ids=lambda page: page.name)
def test_measurements_of_claims_are_those_of_the_newest_bundles(page: Path) -> None:
    """After new evidence, `python docs/write_figures.py` writes them."""
    text = page.read_text(encoding="utf-8")
    assert write_figures.written(text) == text
    assert write_figures.figures(text) == text.count("<!-- F-")


def test_a_wrong_figure_is_corrected_and_one_without_a_source_is_refused() -> None:
    source = "<!-- F-PD-SHARD-FLOOR-001: self.gathered_gib * 1000.0 -->"
    assert write_figures.written(f"{source}7.0, {source}91,125.00") == f"{source}91,125.0, {source}91,125.00"
    for claim, measurement in (("F-PD-SHARD-FLOOR-001", "gathered"), ("F-PD-NOWHERE-001", "gathered_gib")):
        with pytest.raises(write_figures.FigureError, match=claim):
            write_figures.written(f"<!-- {claim}: self.{measurement} -->91.1")


README = (ROOT / "README.md").read_text(encoding="utf-8")
CLAIM = "F-SOFTMAX-SHIFT-001"


def test_it_is_short() -> None:
    assert len(README.splitlines()) < 150


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A new project."""
    assert harness(tmp_path, "init").returncode == 0
    return tmp_path


def write_the_example(project: Path) -> None:
    for path, text in re.findall(r"^```\w+ (\S+/\S+)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL):
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text, encoding="utf-8")


def the_record(project: Path) -> dict[str, Any]:
    (record,) = json.loads(harness(project, "run", CLAIM, "--json", "-").stdout)["records"]
    return record


def test_its_claim_passes_and_its_mutant_is_killed(project: Path) -> None:
    write_the_example(project)
    assert "1 sound, 0 refused, 0 with warnings" in harness(project, "lint").stdout
    record = the_record(project)
    assert (record["verdict"], record["proven"]) == ("PASS", True)
    assert [mutant["id"] for mutant in record["mutants"]] == ["clamped"]


@pytest.mark.parametrize("junk", ["None", "logits[:1]", "[None, None]"])
def test_an_answer_that_is_no_list_of_numbers_refutes_its_claim(project: Path, junk: str) -> None:
    write_the_example(project)
    module = project / "falsifiers" / "softmax.py"
    text = re.sub(r"return \[power .*", f"return {junk}", module.read_text(encoding="utf-8"))
    module.write_text(text, encoding="utf-8")
    record = the_record(project)
    assert record["verdict"] == "FAIL"
    assert next(clause for clause in record["clauses"] if clause["id"] == "subject.completes")["outcome"] == "FAIL"


def test_its_example_can_be_removed(project: Path) -> None:
    """The page's command leaves the project as it was."""

    def files() -> list[Path]:
        kept = (project / name for name in ("contracts", "falsifiers", "evidence"))
        return sorted(path for folder in kept for path in folder.rglob("*") if "__pycache__" not in path.parts)

    before = files()
    write_the_example(project)
    the_record(project)
    (command,) = re.findall(r"`(rm -r [^`]+)`", README)
    subprocess.run(command.split(), cwd=project, check=True)
    assert files() == before
