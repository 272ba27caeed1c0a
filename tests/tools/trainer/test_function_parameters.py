"""`--subject hf:MODULE:FUNCTION` on the command line: its parameters, and its refusals."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from harness.cli.subject import choose
from harness.contract.project import Project
from harness.tools.trainer.subjects import own_parameters
from tests.tools.trainer.trainers import ROOT

PLANTED = "tests.falsifiers.distill.planted_trainers"


def test_literal_defaults_are_parameters(tmp_path: Path) -> None:
    """Arguments with literal defaults are parameters. Other arguments, and those that the adapter gives, are not."""
    path = tmp_path / "trainers.py"
    path.write_text(
        "import os\n"
        "def build(steps, rows=640, *, folder='', seed=0, kind=int, fast=True, rate=1e-3, none=None, **others): ...\n"
        "new = build\n"
    )
    assert own_parameters(path, "build") == {"rows": 640, "folder": "", "fast": True, "rate": 1e-3}
    assert own_parameters(path, "new") == {}


@pytest.fixture(scope="module")
def project() -> Project:
    """This repository's project."""
    return Project.find(ROOT)


def test_the_parameters_of_a_function_are_set_like_those_of_a_claim(project: Project) -> None:
    """The record has these parameters, and the digest of the function's file."""
    contract = project.load(ROOT / "contracts" / "distill" / "F-DISTILL-MAXSTEPS-001" / "contract.json")
    chosen = choose(f"hf:{PLANTED}:of_gpt2", ["rows=4", "batch=2"], [contract], project)[contract.id]
    assert (chosen.spelling, chosen.overrides) == (f"hf:{PLANTED}:of_gpt2", {"batch": 2})
    assert chosen.parameters == {"trainer": f"{PLANTED}:of_gpt2", "rows": 4}
    assert list(chosen.sources) == ["tests/falsifiers/distill/planted_trainers.py"]


@pytest.mark.parametrize(
    ("claim", "subject", "setting", "names"),
    [
        ("distill/F-DISTILL-MAXSTEPS-001", "hf:", [], "hf:MODULE:FUNCTION"),
        ("distill/F-DISTILL-MAXSTEPS-001", f"hf:{PLANTED}:of_nothing", [], "of_nothing"),
        ("distill/F-DISTILL-MAXSTEPS-001", f"hf:{PLANTED}:of_gpt2", ["row=4"], "rows"),
        ("distill/F-DISTILL-MAXSTEPS-001", f"hf:{PLANTED}:of_gpt2", ["rows=many"], "rows"),
        ("apr/F-APR-V2-CRC-001", f"hf:{PLANTED}:of_gpt2", [], "F-DISTILL-STEP-001"),
    ],
)
def test_what_cannot_be_is_refused(claim: str, subject: str, setting: list[str], names: str, project: Project) -> None:
    """The refusal comes before anything runs, and has a name that would work."""
    contract = project.load(ROOT / "contracts" / claim / "contract.json")
    with pytest.raises(click.BadParameter) as refused:
        choose(subject, setting, [contract], project)
    assert names in str(refused.value)
