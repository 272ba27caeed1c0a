"""The executor `slurm` of `harness run`: every claim is a job on a node of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from harness.contract.project import Project
from harness.running.compose import Unmeasured
from harness.running.events import Handler
from harness.running.request import RunRequest
from harness.tools.slurm import submission
from harness.tools.slurm.dispatcher import Dispatcher
from harness.tools.slurm.judged_bundle import judged_bundle
from harness.tools.slurm.submission import Submission

__all__ = ["obstacle", "runner"]

obstacle = submission.obstacle


def runner(
    project: Project, request: RunRequest, unmeasured: Unmeasured, emit: Handler, remark: Callable[[str], None]
) -> Dispatcher:
    """Return what submits the jobs. A verdict comes from the bundle that a job seals, judged again here."""
    jobs = Submission(project.root, request.evidence or project.evidence, request)
    return Dispatcher(jobs.submit, unmeasured, partial(judged_bundle, jobs.evidence, name=jobs.name), emit, remark)
