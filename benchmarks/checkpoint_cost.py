"""What a periodic checkpoint adds to a training step, with and without a thread that writes it.

Three arms take turns on one student, in random order; a sample is so many steps. One arm saves nothing, one saves the
first step's state in the background, as the reference does, and one waits for the disk before the second step. A sample
ends when its save is written, because the next save would wait for that. Printed are milliseconds a step and their
ratios to the steps without a save, with 99 % intervals. The very first save allocates the host memory that later ones
use again, and is told apart. Every arm counts: run it alone on the machine.

    python benchmarks/checkpoint_cost.py [--model qwen2-0.5b] [--device cuda:0] [--steps-a-save 20] [--rounds 6]
                                         [--batch 8] [--sequence 512] [--directory DIR]

The exit status is 0 where the whole interval of the background arm's ratio is at or below 1.05.
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
from harness.machine.paths import cache_folder

CEILING = 1.05
"""A save may cost 5 % of the steps between two."""

PLAIN, BACKGROUND, WAITING = "no save", "in the background", "waiting for the disk"


def main() -> int:
    """Measure, print the table, and say by the exit status whether the ceiling holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cuda = torch.cuda.is_available()
    parser.add_argument("--model", default="qwen2-0.5b" if cuda else "qwen2-tiny")
    parser.add_argument("--device", default="cuda:0" if cuda else "cpu")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=512 if cuda else 64)
    parser.add_argument("--steps-a-save", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--directory", type=Path, help="where checkpoints go; a temporary folder without it")
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
            """Wait for the GPU and for the disk: a save that is still being written then would hold up the next one."""
            if subject.device.type == "cuda":
                torch.cuda.synchronize()
            checkpointer.settle()

        def sample(arm: str) -> None:
            """So many steps, the first of which is saved."""
            for old in checkpointer.saved[:-1]:  # a disk that fills up would make saves fail, and fail fast
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
        sys.exit(f"{checkpointer.failures} saves failed, which says nothing of what one costs; give room in {folder}")
    size = checkpointer.saved[-1].stat().st_size
    return printed(timing, arguments.steps_a_save, size, first[0] - first[1])


def seconds_of(work: Callable[[], None], settle: Callable[[], None]) -> float:
    """How long some work takes, once what it launched is done."""
    started = time.perf_counter()
    work()
    settle()
    return time.perf_counter() - started


def printed(timing: Timing, steps: int, size: int, first: float) -> int:
    """Print the table; the exit status."""
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
    """A recipe of the reference's; the teacher is hardly trained, as it costs the same."""
    return {
        "model": arguments.model, "dtype": "float32", "steps": 1, "batch": arguments.batch,
        "sequence": arguments.sequence, "learning_rate": 1e-4, "warmup_steps": 0, "gradient_norm": 1.0,
        "alpha": 0.3, "temperature": 4.0, "corpus": None, "tokenizer": "bytes", "checkpoint_every": 1,
        "teacher_steps": 1, "teacher_batch": 2, "teacher_learning_rate": 1e-4, "teacher_seed": 1,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
