"""The falsifier of a watched job: it replays the facts of the job, and measures the refutations of the checks.

A watcher measures the same while the job runs. So `harness run` of a bundle's contract reproduces the sealed result.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import final

from harness.authoring.faults import NotMeasured
from harness.authoring.setting import Setting
from harness.authoring.trial import Trial
from harness.tools.watch.checks import measured, state_of
from harness.tools.watch.facts import Fact, facts_in
from harness.tools.watch.given import Given
from harness.tools.watch.planted import planted

__all__ = ["Job", "falsify"]


@final
class Job:
    """The facts of a job: those of a file, or of the healthy job with a defect."""

    def __init__(self, setting: Setting) -> None:
        self._parameters = setting.parameters

    def facts(self) -> Sequence[Fact]:
        """Return the facts in their order.

        Raises:
            NotMeasured: the file of the facts cannot be read.
        """
        if self._parameters["defect"] is not None:
            return planted(self._parameters["defect"])
        try:
            return facts_in(Path(self._parameters["facts"]))
        except (OSError, ValueError) as error:
            raise NotMeasured(f"the facts of the job cannot be read: {error}") from error


def falsify(trial: Trial[Job]) -> None:
    """Replay the facts of the job."""
    job = state_of(trial.subject.facts(), Given.of_texts(trial.parameters["given"]))
    trial.measure(**measured(job))
    trial.resolve(device=trial.device.partition(":")[0])
