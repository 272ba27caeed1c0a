"""The subject that a project's settings name is called the same by a run and by the status."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import pytest

from harness.cli.subject import choose
from harness.contract.project import Project, ProjectError
from harness.evidence.survey import default_subjects
from harness.judging.record import examined

PROJECT = Project.find(Path(__file__).parent)
CLAIM = "F-BLACKWELL-PTX-001"
CONTRACT = PROJECT.contract(CLAIM)


def named(text: str) -> Project:
    return replace(PROJECT, subjects={"F-BLACKWELL-P*": text, "*": "command:nowhere.toml"})


@pytest.mark.parametrize("file", ["trainers/engines/warp_engine.toml", "trainers/engines/torch_engine.toml"])
def test_a_run_and_the_status_name_it_alike(file: str) -> None:
    project = named(f"command:{PROJECT.root / file}")
    choice = choose(None, (), [CONTRACT], project)[CLAIM]
    name = examined(choice.entry_point, choice.parameters)
    assert name.startswith(f"command:{file} -P ")
    assert default_subjects(project, [CONTRACT]) == {CLAIM: name}


def test_parameters_are_of_each_claims_own_subject() -> None:
    project = named(f"command:{PROJECT.root / 'trainers/engines/warp_engine.toml'}")
    assert choose(None, ["code=ptx"], [CONTRACT], project)[CLAIM].parameters["code"] == "ptx"
    other = PROJECT.contract("F-APR-V2-CRC-001")
    with pytest.raises(click.BadParameter, match=f"{other.id} has no parameter 'code'"):
        choose(None, ["code=ptx"], [CONTRACT, other], replace(project, subjects={CLAIM: project.subject_of(CLAIM)}))


def test_a_parameter_of_one_claim_is_the_subjects_own_elsewhere() -> None:
    """What a trainer gets for a claim does not depend on the other claims of the run."""
    trainer, given = "command:trainers/transformers-trainer.toml", ["script=a.py"]
    prep, crash = PROJECT.contract("F-DISTILL-PREP-001"), PROJECT.contract("F-DISTILL-CKPT-CRASH-001")
    together = choose(trainer, given, [prep, crash], PROJECT)
    assert together[prep.id] == choose(trainer, given, [prep], PROJECT)[prep.id]
    assert "checkpoint_every" in together[prep.id].parameters.keys() - together[crash.id].parameters.keys()


@pytest.mark.parametrize("text", ["command:nowhere.toml", "recorded:trainers/engines/warp_engine.toml"])
def test_a_file_that_is_not_there_is_refused(text: str) -> None:
    """So is a run that is over: it is one run, and no subject of all."""
    with pytest.raises(ProjectError, match=rf"tool\.harness\.subjects: .*{text.partition(':')[2]}"):
        default_subjects(named(text), [CONTRACT])
