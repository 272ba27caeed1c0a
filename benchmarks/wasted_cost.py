"""What a watcher costs a job: its processor time as a share of the job's, and the job's time with and without it.

`python -m benchmarks.wasted_runs --only cost` runs pairs. In each, a job runs alone, watched, and alone again, in
a drawn order. Job and watcher have one processor between them, so what the watcher uses, the job lacks. A job tells its
time from its first to its last step.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.wasted_jobs import ROOT, begin, job_words

STEPS_A_SECOND = 400
"""Of the loop `plain` without a pause, about."""
LENGTHS = {"10 minutes": 600.0, "an hour": 3600.0, "25 hours": 90_000.0}


@dataclass(frozen=True)
class Pair:
    """What a pair showed, in seconds and ratios of one."""

    fixed: float
    """Processor seconds of the watcher that do not grow with the job: its start, its last bundle."""
    share: float
    """The share of a processor that it uses between its first and its last sample of the machine."""
    watched: float
    """The job's wall time watched, over that alone."""
    noise: float
    """The same of the two runs alone."""

    @property
    def numbers(self) -> list[float]:
        """All of them."""
        return [self.fixed, self.share, self.watched, self.noise]

    @property
    def text(self) -> str:
        """A line."""
        return (
            f"the watcher used {self.share:.2%} of a processor and {self.fixed:.1f} s at start and end; the job took "
            f"{self.watched - 1:+.2%} of its time alone, and a second run alone {self.noise - 1:+.2%}"
        )


def pair(work: Path, number: int, seconds: float) -> Pair:
    """Run the three arms on one processor."""
    cores = sorted(os.sched_getaffinity(0))
    pinned = ("taskset", "-c", str(cores[number % len(cores)]))
    steps = int(seconds * STEPS_A_SECOND)
    arms, fixed, share = {}, 0.0, 0.0
    for arm in random.Random(number).sample(["alone", "again", "watched"], 3):
        if arm != "watched":
            words = [*pinned, *job_words("plain", work, work / f"cost-{number}-{arm}", steps, steps // 4, 0, "")]
            environment = {**os.environ, "WASTED_PACE": "0"}
            done = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True, env=environment)
            arms[arm] = _told(done.stdout)[0]
            continue
        run = begin(
            work, "plain", f"cost-{number}", steps=steps, every=steps // 4, action="log", more=("--every", "2s"),
            before=pinned, pace="0",
        )  # fmt: skip
        _, _, used = os.wait4(run.process.pid, 0)  # of the watcher and of the job that it waited for
        run.process.returncode = 0
        arms[arm], job = _told((run.state / "output.log").read_text())
        samples = run.of("usage")
        between = samples[-1]["watcher_seconds"] - samples[0]["watcher_seconds"]
        share = between / (samples[-1]["at"] - samples[0]["at"])
        fixed = max(used.ru_utime + used.ru_stime - job - between, 0.0)
    return Pair(fixed, share, arms["watched"] / arms["alone"], arms["again"] / arms["alone"])


def _told(text: str) -> tuple[float, float]:
    """The seconds of the steps, and the processor seconds of the whole job."""
    wall, processor = re.findall(r"made in ([0-9.]+) s, ([0-9.]+) s", text)[-1]
    return float(wall), float(processor)


def compared(pairs: Sequence[Sequence[float]]) -> Iterator[str]:
    """What the pairs show together. The interval of a median is that of its smallest and largest value."""
    if not pairs:
        return
    fixed, share, watched, noise = (list(column) for column in zip(*pairs, strict=True))
    sure = 1 - 0.5 ** (len(pairs) - 1)
    for name, ratios in (("watched", watched), ("alone again", noise)):
        low, high = min(ratios) - 1, max(ratios) - 1
        yield f"  {name}: {median(ratios) - 1:+.2%} of the time alone, {low:+.2%} to {high:+.2%} ({sure:.1%} sure)"
    total = ", ".join(f"{median(share) + median(fixed) / length:.2%} of {name}" for name, length in LENGTHS.items())
    yield f"  processor: {median(share):.2%} of one ({min(share):.2%} to {max(share):.2%}), and {median(fixed):.1f} s "\
          f"at start and end: {total}"  # fmt: skip
