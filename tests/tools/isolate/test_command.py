"""`harness run --isolate`: the record and the output say so, and a claim that cannot be isolated is refused at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.base.vocabulary import ExitStatus
from harness.contract.project import Project
from harness.tools.isolate.isolable import obstacles
from tests.cli.harness_command import complaint, harness
from tests.cli.toy_claim import CLAIM, record
from tests.execution.projects import write_project

PROTOCOL = """
from typing import Any, Protocol

class Sorting(Protocol):
    def sort(self, items: list[int]) -> list[int]: ...
"""
FALSIFIER = """
from harness import Trial
from toy.protocol import Sorting

def falsify(trial: Trial[Sorting]) -> None:
    with trial.subject_fault():
        result = trial.subject.sort([3, 1, 2])
    trial.measure(inversions=sum(a > b for a, b in zip(result, result[1:], strict=False)))
    trial.resolve(device="cpu")
"""
SUBJECT = """
class Sorter:
    def __init__(self, setting):
        self.how = setting.parameters["how"]

    def sort(self, items):
        return sorted(items) if self.how == "well" else items
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The toy project, its subject behind a Protocol in a module of its own."""
    write_project(tmp_path)
    for name, text in (("protocol", PROTOCOL), ("sorting", FALSIFIER), ("subject", SUBJECT)):
        (tmp_path / "toy" / f"{name}.py").write_text(text)
    contract = tmp_path / "contracts" / CLAIM / "contract.json"
    contract.write_text(contract.read_text().replace("toy.sorting:Sorter", "toy.subject:Sorter"))
    return tmp_path


def test_an_isolated_run_says_so(folder: Path) -> None:
    """The record, the command and the terminal say so. The mutant is isolated and killed, and the bundle is sound."""
    done = harness(folder, "run", CLAIM, "--isolate")
    assert done.returncode == ExitStatus.PASS, done.stdout + done.stderr
    assert "subjects isolated" in done.stdout
    found = record(folder)
    assert (found["isolated"], found["proven"]) == (True, True)
    assert "--isolate" in str(found["command"]).split()
    sources = found["sources"]
    assert isinstance(sources, dict)
    assert {"toy/subject.py", "toy/sorting.py", "toy/protocol.py"} <= sources.keys()
    assert harness(folder, "verify", "evidence").returncode == ExitStatus.PASS
    assert f"PARTIAL     {CLAIM}" in harness(folder, "status").stdout  # its sources are those of the project


METHODS = [
    ("    def distill(self, on_step: 'Callable[[int], None]') -> None: ...", "Sorting.distill, on_step"),
    ("    def model(self) -> 'Module': ...", "Sorting.model"),
    ("    def model(self) -> object: ...", "Sorting.model, result"),
    ("    def all(self, *items: int) -> int: ...", "Sorting.all"),
    ("    def sorted(self, items) -> int: ...", "Sorting.sorted, items"),
    ("    def sorted(self, items: int): ...", "Sorting.sorted, result"),
    ("    directory: str", "Sorting.directory"),
    ("    @property\n    def directory(self) -> str: ...", "Sorting.directory"),
]


@pytest.mark.parametrize(("method", "named"), METHODS, ids=[row[1] for row in METHODS])
def test_a_method_that_cannot_be_carried_is_named(folder: Path, method: str, named: str) -> None:
    """The refusal comes before anything runs."""
    (folder / "toy" / "protocol.py").write_text(f"from collections.abc import Callable\n{PROTOCOL}\n{method}\n")
    done = harness(folder, "run", CLAIM, "--isolate")
    assert done.returncode == ExitStatus.REFUSED
    assert f"{CLAIM}: {named}" in complaint(done, folder)
    assert not (folder / "evidence").exists()


def test_other_reasons_against_it(folder: Path) -> None:
    """A claim that measures time, a falsifier that needs the subject's module, and a trainer are refused."""
    contract = folder / "contracts" / CLAIM / "contract.json"
    falsifier, healthy = folder / "toy" / "sorting.py", contract.read_text()
    for changed, named in (
        (healthy.replace('"profiles"', '"lease": "exclusive", "profiles"'), "time"),
        (healthy.replace("toy.subject:Sorter", "toy.protocol:Sorting"), "toy.protocol"),
    ):
        contract.write_text(changed)
        assert named in complaint(harness(folder, "run", CLAIM, "--isolate"), folder)
    contract.write_text(healthy)
    for text, named in (
        (FALSIFIER.replace("trial: Trial[Sorting]", "trial"), "Trial["),
        (FALSIFIER.replace("Trial[Sorting]", "Trial[int]"), "int"),
        (f"{FALSIFIER}\nraise ValueError('broken')", "broken"),
        (f"{FALSIFIER}\nimport os\nos._exit(0)", "cannot be imported"),
        (f"{FALSIFIER}\nimport os\nprint('[]', flush=True)\nos._exit(0)", "cannot be imported"),
    ):
        falsifier.write_text(text)
        done = harness(folder, "run", CLAIM, "--isolate")
        assert (done.returncode, named in complaint(done, folder)) == (ExitStatus.REFUSED, True), complaint(
            done, folder
        )
    (folder / "trainer.toml").write_text("")
    done = harness(folder, "run", CLAIM, "--isolate", "--subject", "command:trainer.toml")
    assert done.returncode == ExitStatus.REFUSED


def test_the_documentation_lists_the_claims_that_can_be_isolated() -> None:
    """The page lists exactly the claims of this repository that can be isolated."""
    project = Project.find(Path(__file__).parents[3])
    contracts, _ = project.load_all()
    able = {name for name, why in obstacles(project, contracts).items() if not why}
    text = (project.root / "docs" / "isolation.md").read_text()
    listed = text.partition("can be isolated:\n\n- ")[2].partition("\n\n")[0]
    assert able == set(re.findall(r"`([A-Z0-9-]+)`", listed))
