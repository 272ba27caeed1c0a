"""All checks of a watch, and their measurements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from harness.tools.watch.checkpoint_checks import CHECKPOINT_CHECKS
from harness.tools.watch.driver_checks import DRIVER_CHECKS
from harness.tools.watch.facts import Fact
from harness.tools.watch.given import Given
from harness.tools.watch.job_state import Check, JobState
from harness.tools.watch.machine_checks import MACHINE_CHECKS
from harness.tools.watch.output_checks import OUTPUT_CHECKS

__all__ = ["CHECKS", "measured", "state_of", "unseen"]

CHECKS: Final[tuple[type[Check], ...]] = (
    *OUTPUT_CHECKS,
    *CHECKPOINT_CHECKS,
    *MACHINE_CHECKS,
    *DRIVER_CHECKS,
)


def state_of(facts: Iterable[Fact], given: Given) -> JobState:
    """Return the state of a job after these facts."""
    job = JobState(given, CHECKS)
    for fact in facts:
        job.apply(fact)
    return job


def measured(job: JobState) -> dict[str, Any]:
    """Return the measurements: the refutations of each check that was judged."""
    found: dict[str, Any] = {
        check.name: [refutation.text for refutation in check.found]
        for check in job.checks
        if check.judged or check.found
    }
    return {"steps_seen": job.step, **found}


def unseen(job: JobState) -> dict[str, str]:
    """Return why the other checks were not judged: the data that they need."""
    return {
        check.name: f"the job has not shown {check.needs}" for check in job.checks if not (check.judged or check.found)
    }
