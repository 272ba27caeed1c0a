"""The subject that a project's settings name is called the same by a run and by the status."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import pytest

from harness.cli.subject import defaults
from harness.contract.choice import External
from harness.contract.project import Project, ProjectError
from harness.evidence.default_subjects import default_subjects
from harness.judging.record import examined

PROJECT = Project.find(Path(__file__).parent)
CLAIM = "F-BLACKWELL-PTX-001"
CONTRACT = PROJECT.contract(CLAIM)


def named(text: str) -> Project:
    return replace(PROJECT, subjects={"F-BLACKWELL-P*": text, "*": "command:nowhere.toml"})


@pytest.mark.parametrize("file", ["trainers/engines/warp_engine.toml", "trainers/engines/torch_engine.toml"])
def test_a_run_and_the_status_name_it_alike(file: str) -> None:
    project = named(f"command:{PROJECT.root / file}")
    _, found = defaults((), [CONTRACT], project)
    one = found[CLAIM]
    assert isinstance(one, External)
    name = examined(one.entry_point(CONTRACT.falsifier), one.parameters)
    assert name.startswith(f"command:{file} -P ")
    assert default_subjects(project, [CONTRACT]) == {CLAIM: name}


def test_parameters_are_of_the_one_subject_that_is_named() -> None:
    project = named(f"command:{PROJECT.root / 'trainers/engines/warp_engine.toml'}")
    chosen, found = defaults(["code=ptx"], [CONTRACT], project)
    assert found == {}
    assert chosen.external is not None
    assert chosen.external.parameters["code"] == "ptx"
    with pytest.raises(click.BadParameter, match="other subjects"):
        defaults(["code=ptx"], [CONTRACT, PROJECT.contract("F-BLACKWELL-ARCHIVE-001")], project)


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(ProjectError, match=r"tool\.harness\.subjects: .*nowhere\.toml"):
        default_subjects(named("command:nowhere.toml"), [CONTRACT])
