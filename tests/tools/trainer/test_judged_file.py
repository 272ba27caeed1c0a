"""`--subject file:PATH`: a file or a folder is the subject itself."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from falsifiers.recsys.reference.batch_file import FILE
from harness import NotMeasured
from harness.base.vocabulary import Outcome
from harness.cli.subject import choose
from harness.contract import Contract
from harness.contract.project import Project
from harness.judging.judge import Judgment
from tests.falsifiers.in_process import judged
from tests.tools.trainer.trainers import ROOT

RECSYS = ROOT / "contracts" / "recsys"
JOB = "falsifiers/recsys/reference/train.sbatch"


@pytest.fixture(scope="module")
def project() -> Project:
    """This repository's project."""
    return Project.find(ROOT)


def claim(project: Project, name: str) -> Contract:
    """A contract of the family that takes files."""
    return project.load(RECSYS / name / "contract.json")


def test_a_file_is_named_with_its_digest(project: Project) -> None:
    """The file has its path from the project's root and its digest. The other settings are the claim's parameters."""
    contract = claim(project, "F-SLURM-GPU-TASK-001")
    chosen = choose(f"file:{ROOT / JOB}", ["gpus_of_a_node=4"], [contract], project)[contract.id]
    assert (chosen.entry_point, chosen.overrides) == ("falsifiers.recsys.gpus_of_tasks:File", {"gpus_of_a_node": 4})
    assert (chosen.spelling, chosen.parameters) == (f"file:{JOB}", {"trainer": JOB})
    assert list(chosen.sources) == [JOB]


def test_a_folder_is_named_with_all_its_files(project: Project) -> None:
    """All files are named, except hidden ones and caches."""
    folder = ROOT / "falsifiers" / "recsys" / "oracle"
    chosen = choose(f"file:{folder}", [], [claim(project, "F-COUNT-001")], project)["F-COUNT-001"]
    names = {path.relative_to(ROOT).as_posix() for path in folder.glob("*.py")}
    assert chosen.sources.keys() == names


@pytest.mark.parametrize(
    ("name", "path", "said"),
    [
        ("F-SLURM-GPU-TASK-001", "", "file:PATH"),
        ("F-SLURM-GPU-TASK-001", "/nowhere/job.sbatch", "exists"),
        ("F-SLURM-GPU-TASK-001", "/", "copy it there"),
        ("F-HSTU-FWD-001", str(ROOT / JOB), "F-SLURM-ENV-001"),
    ],
)
def test_what_cannot_be_is_refused(name: str, path: str, said: str, project: Project) -> None:
    """The refusal comes before anything runs."""
    with pytest.raises(click.BadParameter) as refused:
        choose(f"file:{path}", [], [claim(project, name)], project)
    assert said in str(refused.value)


def judgment_of(project: Project, name: str, text: str, folder: Path) -> Judgment:
    """The judgment of a batch file."""
    file = folder / "job.sbatch"
    file.write_text(f"#!/bin/bash\n{text}\n")
    contract = claim(project, name)
    fewer = {"topologies": ["2x2"], "nodes_run": 1} if "ENV" in name else {}
    return judged(contract, f"{contract.falsifier.partition(':')[0]}:File", folder, trainer=str(file), **fewer)


def refuted(project: Project, name: str, text: str, folder: Path) -> list[str]:
    """The clauses that a batch file violates."""
    return [clause.id for clause in judgment_of(project, name, text, folder).with_outcome(Outcome.FAIL)]


@pytest.mark.parametrize(
    ("name", "text", "clause"),
    [
        ("F-SLURM-ENV-001", "srun bash -c 'RANK=0 python a.py'", "wrong_local_ranks[].maximum"),
        ("F-SLURM-GPU-TASK-001", "#SBATCH --ntasks-per-node=8 -G 4 -N1", "tasks_without_gpu[].maximum"),
    ],
)
def test_a_users_batch_file(name: str, text: str, clause: str, project: Project, tmp_path: Path) -> None:
    """A batch file is refuted by its content."""
    assert clause in refuted(project, name, text, tmp_path)


def test_a_step_may_ask_the_first_node(project: Project, tmp_path: Path) -> None:
    """A step may run on the first node, as many batch files do for MASTER_ADDR."""
    text = FILE.read_text().replace("$(scontrol", "$(srun -N 1 -n1 -w node0 hostname --ip-address; false && scontrol")
    assert refuted(project, "F-SLURM-ENV-001", text.replace("| head -n 1", "|| true"), tmp_path) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("F-SLURM-ENV-001", "python outside_of_srun.py"),
        ("F-SLURM-ENV-001", "srun -n 2 python train.py"),
        ("F-SLURM-ENV-001", "srun -N1 -n1 python train.py"),
        ("F-SLURM-ENV-001", "srun torchrun train.py"),
        ("F-SLURM-GPU-TASK-001", "#SBATCH --nodes=$N"),
    ],
)
def test_what_is_unknown_is_no_failure(name: str, text: str, project: Project, tmp_path: Path) -> None:
    """A part that is not simulated is no failure."""
    with pytest.raises(NotMeasured):
        judgment_of(project, name, text, tmp_path)


@pytest.mark.parametrize("text", ["#SBATCH --exclusive --ntasks-per-node=8", "#SBATCH -n 16 -G 16"])
def test_what_the_file_does_not_state_is_not_measured(text: str, project: Project, tmp_path: Path) -> None:
    """A number that the file does not state is no failure."""
    judgment = judgment_of(project, "F-SLURM-GPU-TASK-001", text, tmp_path)
    assert not judgment.with_outcome(Outcome.FAIL)
    assert "tasks_without_gpu[].maximum" in [clause.id for clause in judgment.with_outcome(Outcome.NOT_MEASURED)]
