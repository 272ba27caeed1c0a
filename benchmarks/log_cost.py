"""The cost of the trial's log for a timed step: steps that report into a log, compared with steps that only report.

Each sample is some training steps on the CPU, with a message a step, as a trial of a claim that measures time sends it.
One process writes the log of the messages; in the other arms, a process like it reads them and writes nothing. The log
hears of models, data files and sources in this process, too. The target is at most 1 %. On a busy machine, only the
last figures decide: what a message costs this process more than without a log.

    python -m benchmarks.log_cost [--rounds 60] [--steps 10] [--width 512] [--cpu-time]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from harness.authoring.reports import Stepped
from harness.authoring.setting import Setting
from harness.authoring.timing import interleave
from harness.base.redaction import redactor
from harness.execution.messages import Start, decode, encode
from harness.execution.news import News
from harness.execution.sources import Sources
from harness.execution.trial_log import TrialLog
from harness.execution.trial_process import _with_news

CEILING = 1.01
"""The log may cost 1 % of a timed step."""
MESSAGES = 500
"""Messages of one sample without steps."""


def reader(hears: bool) -> Callable[[object], None]:
    """Return a function that sends messages to a process, which writes a log of them, or only reads them."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(writing)
        log = TrialLog(time.monotonic(), redactor().mask)
        with open(reading, "rb") as stream:
            for line in stream:
                message = decode(line.rstrip(b"\n"))
                if hears:
                    log.hear(message)
        os._exit(0)
    os.close(reading)
    return lambda message: void(os.write(writing, encode(message).rstrip(b"\n") + b"\n"))  # type: ignore[arg-type]


def void(_: object) -> None:
    """Return nothing."""


def steps(width: int, count: int, report: Callable[[object], None]) -> Callable[[], None]:
    """Return a function that makes steps of a small model, and reports each."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(4)))
    optimizer, batch = torch.optim.AdamW(model.parameters()), torch.randn(64, width)
    made = 0

    def work() -> None:
        nonlocal made
        for _ in range(count):
            loss = (model(batch) - batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            made += 1
            report(Stepped(made, {"loss": loss.item(), "learning_rate": 1e-3}))

    return work


def messages(report: Callable[[object], None]) -> Callable[[], None]:
    """Return a function that reports steps and makes none."""

    def work() -> None:
        for number in range(MESSAGES):
            report(Stepped(number, {"loss": 0.5, "learning_rate": 1e-3}))

    return work


def main() -> int:
    """Measure, print the ratios, and return 0 if the ceiling holds, 1 if it does not, 3 if noise hides it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--cpu-time", action="store_true", help="of this process, on a machine that others use")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        sources = Sources(place)
        sources.listen()
        setting = Setting({}, "cpu", 0, place, place)
        start = Start(place, "", "", setting, 1, place, 0.0, (), place / "claim", {}, is_timed=True)
        news = News(start, sources)
        logged = _with_news(reader(True), sources, news, None, start)  # type: ignore[arg-type]
        reports = {"logged": logged, "bare": reader(False), "again": reader(False)}
        arms = {name: steps(given.width, given.steps, report) for name, report in reports.items()}  # type: ignore[arg-type]
        news.listen()
        clock = time.process_time if given.cpu_time else time.perf_counter
        timing = interleave(arms, rounds=given.rounds, warmup=3, seed=0, clock=clock)
        alone = {name: messages(report) for name, report in reports.items()}  # type: ignore[arg-type]
        sending = interleave(alone, rounds=100, warmup=3, seed=0, clock=time.process_time)
    slower, noise = timing.ratio("logged", "bare"), timing.ratio("again", "bare")
    median = sorted(timing.seconds["bare"])[given.rounds // 2] / given.steps
    print(f"a step takes {1000 * median:.2f} ms; {given.rounds} rounds of {given.steps} steps")
    for name, ratio in (("logged over bare", slower), ("bare over bare", noise)):
        print(f"{name:<18} {ratio.estimate:.4f}, 99 % interval {ratio.low:.4f} to {ratio.high:.4f}")
    more = sending.difference("logged", "bare")
    texts = [f"{1e6 * seconds / MESSAGES:.2f}" for seconds in (more.estimate, more.low, more.high)]
    print(f"a message takes {texts[0]} us more processor time in the trial, 99 % interval {texts[1]} to {texts[2]}")
    print(f"that is at most {100 * more.high / MESSAGES / median:.3f} % of this step")
    if slower.high <= CEILING:
        return 0
    return 1 if slower.low > CEILING else 3


if __name__ == "__main__":
    sys.exit(main())
