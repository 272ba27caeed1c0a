"""Judges an engine on a driver without a GPU, by one of the claims that watch the driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import NotMeasured, Setting
from harness.authoring.faults import SubjectFault
from harness.authoring.reports import Measured, Resolved, TrialReport, Unseen
from harness.base.device import Device
from harness.base.vocabulary import Outcome, Phase
from harness.contract import Contract
from harness.contract.project import Project
from harness.execution.worker_trial import WorkerTrial
from harness.judging.judge import Judgment, judge
from harness.judging.observation import Ending, EndingKind, Observation, Residency

PROJECT = Project.find(Path(__file__).parent)


def judged(
    folder: Path, contract: Contract, falsify: Callable[..., None], subject: type, parameters: dict[str, Any]
) -> tuple[Judgment, str]:
    """The judgment of a trial, and why it ended if it did not complete."""
    heard: dict[type, dict[str, Any]] = {Measured: {}, Resolved: {}, Unseen: {}}

    def report(said: TrialReport) -> None:
        heard.setdefault(type(said), {}).update(getattr(said, "values", {}))

    workspace = folder / "workspace"
    workspace.mkdir()
    setting = Setting(parameters, "cuda:0", 1, workspace, folder.parent / "cache")
    run = WorkerTrial(setting, workspace, contract.measurements, report)
    ending = Ending(EndingKind.COMPLETED)
    try:
        run.run(falsify, subject)
    except SubjectFault as fault:
        ending = Ending(EndingKind.SUBJECT_FAULT, Phase.SUBJECT, str(fault))
    except NotMeasured as why:
        ending = Ending(EndingKind.NOT_MEASURED, Phase.FALSIFIER, str(why))
    observation = Observation(
        subject=contract.subject, profile="full", parameters=parameters, device=Device("cuda", "a device"),
        measurements=heard[Measured], resolved=heard[Resolved], unseen=heard[Unseen], ending=ending,
        residency=Residency(None, True, 1, None),
    )  # fmt: skip
    return judge(contract, observation), ending.reason


def failed(judgment: Judgment) -> set[str]:
    return {clause.id for clause in judgment.with_outcome(Outcome.FAIL)}


def missing(judgment: Judgment) -> set[str]:
    return {clause.id for clause in judgment.with_outcome(Outcome.NOT_MEASURED)}
