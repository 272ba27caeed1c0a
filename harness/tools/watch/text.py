"""What a watch came to, as lines for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.report.messages.number_text import counted
from harness.tools.watch.job_state import JobState, Refutation

__all__ = ["duration_text", "job_line", "rest_seconds", "saved_gpu_seconds", "summary", "total_line"]


def rest_seconds(job: JobState, step: int) -> float | None:
    """Return how long the job would take from a step to its end; None if the number of its steps is not known."""
    asked, began, made = job.given.steps, job.first_step_at, job.step
    if asked is None or began is None or made < 2 or job.newest is None:
        return None
    return max(asked - step, 0) * (job.newest.at - began) / (made - 1)


def saved_gpu_seconds(job: JobState) -> float:
    """Return the GPU-seconds that ending the job saved: the rest of the run, times its GPUs; 0 if it went on."""
    if not job.was_ended or job.given.device == "cpu":
        return 0.0
    gpus = max((fact.get("gpus", 0) for fact in job.usage), default=0) or 1
    return (rest_seconds(job, job.step) or 0.0) * gpus


def duration_text(seconds: float) -> str:
    """Return a duration in its usual unit."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def summary(job: JobState) -> Iterator[str]:
    """Yield a line on the job, one for each check that refuted it, and one on what was not judged."""
    ended = f"the job {job.how}" if job.is_over else "the job runs"
    yield f"{job.description.get('name', 'job')}: {counted(job.step, 'step')} in {duration_text(job.at)}; {ended}"
    for first, more in first_refutations(job):
        yield f"  {first.check}: refuted at {_place(job, first)}: {first.why}{more}"
        rest = rest_seconds(job, first.step)
        if rest:
            yield f"    the rest of the run costs another {duration_text(rest)}"
    for fact in job.acted:
        yield f"  {fact['action']} at second {fact['at']:.1f}: {fact['what']}"
    holds = [check.name for check in job.checks if check.judged and not check.found]
    open_ones = [check.name for check in job.checks if not check.judged and not check.found]
    yield f"  holds{'' if job.is_over else ' so far'}: {', '.join(holds) or 'nothing was judged'}"
    if open_ones:
        yield f"  not judged: {', '.join(open_ones)}"
    for fact in job.broken[:3]:
        yield f"  the watcher failed at second {fact['at']:.1f}: {fact['why']}"


def first_refutations(job: JobState) -> Iterator[tuple[Refutation, str]]:
    """Yield the first refutation of each check, in the order of time, and how many followed in words."""
    for check in sorted((one for one in job.checks if one.found), key=lambda one: one.found[0].at):
        more = len(check.found) - 1
        yield check.found[0], f" (and {more} more)" if more else ""


def _place(job: JobState, one: Refutation) -> str:
    share = f", {one.step / job.given.steps:.1%} of the steps" if job.given.steps else ""
    return f"second {one.at:.1f} (step {one.step}{share})"


def job_line(job: JobState, *, is_watched: bool) -> str:
    """Return a job in one line, for the list."""
    running = "runs" if is_watched else "has no watcher; harness watch --resume continues"
    state = job.how if job.is_over else running
    refuted = ", ".join(dict.fromkeys(one.check for one in job.refutations))
    saved = saved_gpu_seconds(job)
    told = f"refuted: {refuted}" if refuted else "nothing is refuted"
    return (
        f"{job.description.get('name', '?')}  step {job.step}{f'/{job.given.steps}' if job.given.steps else ''}  "
        f"{duration_text(job.at)}  {state}; {told}{f'; saved {saved / 3600:.2f} GPU-hours' if saved else ''}"
    )


def total_line(courses: Sequence[JobState]) -> str:
    """Return the sum over jobs."""
    running = sum(not one.is_over for one in courses)
    refuted = sum(bool(one.refutations) for one in courses)
    saved = sum(map(saved_gpu_seconds, courses)) / 3600
    ended = sum(one.was_ended for one in courses)
    told = f"{counted(len(courses), 'job')}, {running} running, {refuted} refuted"
    return f"{told}, {ended} ended early: {saved:.2f} GPU-hours saved"
