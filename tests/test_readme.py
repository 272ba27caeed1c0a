"""README.md: short, and its example claim is a proven PASS in a new project."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.harness_command import harness

ROOT = Path(__file__).parents[1]
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
