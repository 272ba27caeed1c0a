"""Cost of a periodic checkpoint per training step, with and without a background thread that writes it.

Three arms take turns on one student, in random order. A sample is a number of steps. One arm saves nothing, one saves
the first step's state in the background, as the reference does, and one waits for the disk before the second step. A
sample ends when its save is written, because the next save would wait for it. The output has milliseconds per step
and their ratios to steps without a save, with 99 % intervals. The very first save allocates host memory that later
saves reuse, and is reported separately. Run the benchmark alone on the machine.

    python -m benchmarks.checkpoint_cost [--model qwen2-0.5b] [--device cuda:0] [--steps-a-save 20] [--rounds 6]
                                         [--batch 8] [--sequence 512] [--directory DIR]

The exit status is 0 if the interval of the background arm's ratio is at or below 1.05.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from falsifiers.distill.reference import Distillation
from falsifiers.distill.reference.checkpointing import Checkpointer
from falsifiers.distill.reference.journal import Journal
from harness import Setting
from harness.authoring.timing import Timing, interleave
from harness.machine.cache_folder import cache_folder

CEILING = 1.05
"""A save may cost 5 % of the steps between two saves."""

PLAIN, BACKGROUND, WAITING = "no save", "in the background", "waiting for the disk"


def main() -> int:
    """Measure, print the table, and return 0 if the ceiling holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cuda = torch.cuda.is_available()
    parser.add_argument("--model", default="qwen2-0.5b" if cuda else "qwen2-tiny")
    parser.add_argument("--device", default="cuda:0" if cuda else "cpu")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=512 if cuda else 64)
    parser.add_argument("--steps-a-save", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--directory", type=Path, help="folder for checkpoints; default: a temporary folder")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="checkpoint-cost-", dir=arguments.directory))
    try:
        return measured(arguments, folder)
    finally:
        shutil.rmtree(folder)


def measured(arguments: argparse.Namespace, folder: Path) -> int:
    """Time the arms with checkpoints in `folder`."""
    subject = Distillation(Setting(parameters(arguments), arguments.device, 0, folder, cache_folder()))
    silent = Journal(folder / "log.jsonl", every=0)
    with Checkpointer(subject.directory, every=1) as checkpointer:

        def settle() -> None:
            """Wait for the GPU and the disk, because an unfinished save would delay the next one."""
            if subject.device.type == "cuda":
                torch.cuda.synchronize()
            checkpointer.settle()

        def sample(arm: str) -> None:
            """A number of steps, with a save after the first one."""
            for old in checkpointer.saved[:-1]:  # on a full disk saves would fail, and fail fast
                old.unlink(missing_ok=True)
            for number in range(arguments.steps_a_save):
                subject.make_step(silent, checkpointer)
                if number == 0 and arm != PLAIN:
                    subject.save(checkpointer, subject.steps_made, 0.0)
                if number == 0 and arm == WAITING:
                    settle()

        sample(PLAIN)
        first = [seconds_of(step, settle) for step in (lambda: sample(BACKGROUND), lambda: sample(BACKGROUND))]
        arms = {arm: (lambda arm=arm: sample(arm)) for arm in (PLAIN, BACKGROUND, WAITING)}
        timing = interleave(arms, rounds=arguments.rounds, warmup=1, seed=0, synchronize=settle)
    if checkpointer.failures:
        sys.exit(f"{checkpointer.failures} saves failed, so their cost is unknown; free disk space in {folder}")
    size = checkpointer.saved[-1].stat().st_size
    return printed(timing, arguments.steps_a_save, size, first[0] - first[1])


def seconds_of(work: Callable[[], None], settle: Callable[[], None]) -> float:
    """Seconds that `work` and everything it launched take."""
    started = time.perf_counter()
    work()
    settle()
    return time.perf_counter() - started


def printed(timing: Timing, steps: int, size: int, first: float) -> int:
    """Print the table; returns the exit status."""
    print(
        f"a checkpoint of {size / 2**20:,.1f} MiB every {steps} steps; the first took {first:.2f} s more than the next"
    )
    print(f"{'':22}{'ms a step':>12}{'ratio to no save':>20}{'99 % interval':>18}{'s a save':>12}")
    for arm in (PLAIN, BACKGROUND, WAITING):
        milliseconds = 1000 * statistics.median(timing.seconds[arm]) / steps
        ratio, more = timing.ratio(arm, PLAIN), timing.difference(arm, PLAIN)
        interval = f"{ratio.low:.3f} to {ratio.high:.3f}"
        print(f"{arm:22}{milliseconds:12.2f}{ratio.estimate:20.3f}{interval:>18}{more.estimate:12.3f}")
    return 0 if timing.ratio(BACKGROUND, PLAIN).high <= CEILING else 1


def parameters(arguments: argparse.Namespace) -> dict[str, object]:
    """A recipe of the reference. The teacher is hardly trained, which does not change its cost."""
    return {
        "model": arguments.model, "dtype": "float32", "steps": 1, "batch": arguments.batch,
        "sequence": arguments.sequence, "learning_rate": 1e-4, "warmup_steps": 0, "gradient_norm": 1.0,
        "alpha": 0.3, "temperature": 4.0, "corpus": None, "tokenizer": "bytes", "checkpoint_every": 1,
        "teacher_steps": 1, "teacher_batch": 2, "teacher_learning_rate": 1e-4, "teacher_seed": 1,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
