"""The result of a watch, as lines for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from harness.report.messages.number_text import counted, duration
from harness.tools.watch.job_state import JobState, Refutation

__all__ = [
    "cost_text",
    "first_refutations",
    "place_line",
    "refuted_line",
    "rest_seconds",
    "saved_gpu_seconds",
    "summary",
]


def rest_seconds(job: JobState, step: int, at: float) -> float | None:
    """Return the seconds from a step to the end of a job: predicted, or measured if it ended by itself.

    Args:
        at: the second of the step.

    None if the number of steps is unknown.
    """
    if job.is_over and not job.was_ended:
        return job.at - at
    requested, pace = job.given.steps, job.pace
    return None if requested is None or pace is None else max(requested - step, 0) * pace


def gpus_of(job: JobState) -> int:
    """Return the number of GPUs of a job: the observed number, else one; 0 on a machine without a GPU."""
    if job.given.device == "cpu" or job.description.get("runs_on") == "cpu":
        return 0
    return max((fact.get("gpus", 0) for fact in job.usage), default=0) or 1


def saved_gpu_seconds(job: JobState) -> float:
    """Return the GPU-seconds that ending the job saved: its remaining time, times its GPUs; 0 if it continued."""
    return (rest_seconds(job, job.step, job.at) or 0.0) * gpus_of(job) if job.is_over and job.was_ended else 0.0


def cost_text(job: JobState, seconds: float) -> str:
    """Return a duration of a job as text, with its GPU-hours if it has a GPU."""
    gpus = gpus_of(job)
    return duration(seconds) + (f", {gpus * seconds / 3600:.2f} GPU-hours" if gpus else "")


def summary(job: JobState) -> Iterator[str]:
    """Yield a line on the job, one for each check that refuted it, and one on the checks that were not judged."""
    ended = f"the job {job.how}" if job.is_over else "the job runs"
    yield f"{job.description.get('name', 'job')}: {counted(job.step, 'step')} in {duration(job.at)}; {ended}"
    for first, more in first_refutations(job):
        yield f"  {first.check}: refuted at {_place(job, first)}: {first.why}{more}"
        seconds = rest_seconds(job, first.step, first.at)
        if seconds:
            yield f"    the rest of the run costs another {cost_text(job, seconds)}"
    for fact in job.acted:
        yield f"  {fact['action']} at second {fact['at']:.1f}: {fact['what']}"
    holds = [check.name for check in job.checks if check.judged and not check.found]
    open_ones = [check.name for check in job.checks if not check.judged and not check.found]
    yield f"  holds{'' if job.is_over else ' so far'}: {', '.join(holds) or 'nothing was judged'}"
    if open_ones:
        yield f"  not judged: {', '.join(open_ones)}"
    if job.given.device == "cuda" and (absent := job.description.get("recorder_absent")):
        yield f"  the recorder of the CUDA driver is absent: {absent}"
    for fact in job.broken[:3]:
        yield f"  the watcher failed at second {fact['at']:.1f}: {fact['why']}"


def first_refutations(job: JobState) -> Iterator[tuple[Refutation, str]]:
    """Yield the first refutation of each check, in order of time, and the number of further ones as text."""
    for check in sorted((check for check in job.checks if check.found), key=lambda check: check.found[0].at):
        more = len(check.found) - 1
        yield check.found[0], f" (and {more} more)" if more else ""


def _place(job: JobState, refutation: Refutation) -> str:
    share = f", {refutation.step / job.given.steps:.1%} of the steps" if job.given.steps else ""
    return f"second {refutation.at:.1f} (step {refutation.step}{share})"


def place_line(job: JobState) -> str:
    """Return the progress of a job."""
    asked = f"/{job.given.steps}" if job.given.steps else ""
    return f"step {job.step}{asked} after {duration(job.at)}"


def refuted_line(job: JobState) -> str:
    """Return the checks that refuted a job; empty if none did."""
    return ", ".join(first.check for first, _ in first_refutations(job))
