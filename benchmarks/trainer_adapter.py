"""The cost of watching a `transformers.Trainer`: steps under `--subject hf:` against steps of the bare Trainer.

    python -m benchmarks.trainer_adapter [--function trainers.trl_gkd:build] [--model qwen2-0.5b] [--device cuda:0]

One Trainer makes all steps. Each round has a block of steps that the adapter watches and two bare blocks, in a random
order. The first step of a block is not measured. The work of a falsifier after a step is not included. The output has
the median of a step in milliseconds, the ratio within rounds with its 99 % interval, and the ratio of the two bare
blocks, which shows the noise. The exit status is 1 if the whole interval of the cost is above 3 %.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import Trainer, TrainerCallback

from falsifiers.distill.hugging_face import HF
from falsifiers.distill.running.live_steps import LiveSteps
from falsifiers.distill.running.trainer_watch import StepWatch
from harness import Setting
from harness.authoring.timing import Timing

CONTRACT = Path(__file__).parents[1] / "contracts" / "distill" / "F-DISTILL-SMOKE-001" / "contract.json"
MOST = 1.03
ARMS = ("bare", "watched", "again")


class Blocks(TrainerCallback):  # type: ignore[misc]
    """Lets the adapter watch some blocks of steps, and times each step that is not the first of its block."""

    def __init__(self, trainer: Trainer, watch: StepWatch, rounds: int, length: int, waits: bool) -> None:
        """Begin with a round that is not kept."""
        chance = random.Random(0)
        self.orders = [tuple(chance.sample(ARMS, len(ARMS))) for _ in range(rounds + 1)]
        self.plan = [name for order in self.orders for name in order]
        self.seconds: dict[str, list[float]] = {name: [] for name in ARMS}
        self._trainer, self._watch, self._length, self._waits = trainer, watch, length, waits
        self._wrapped = {name: vars(trainer)[name] for name in ("training_step", "get_batch_samples")}
        self._steps = 0
        self._started = 0.0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Arrange the first block."""
        self._arrange(self.plan[0])

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Note the time of a block's first step and of its last."""
        if self._waits:
            torch.cuda.synchronize()
        now = time.perf_counter()
        self._steps += 1
        block, position = divmod(self._steps - 1, self._length)
        if position == 0:
            self._started = now
        if position == self._length - 1:
            if block >= len(ARMS):
                self.seconds[self.plan[block]].append((now - self._started) / (self._length - 1))
            if block + 1 < len(self.plan):
                self._arrange(self.plan[block + 1])

    def _arrange(self, arm: str) -> None:
        """Give the Trainer the adapter's functions and callback, or its own functions."""
        handler = self._trainer.callback_handler
        others = [callback for callback in handler.callbacks if callback is not self._watch]
        for name in self._wrapped:
            vars(self._trainer).pop(name, None)
        self._watch._pending, self._watch._gradients = None, {}
        if arm == "watched":
            vars(self._trainer).update(self._wrapped)
            others.append(self._watch)
        handler.callbacks = others  # a new list: the old one may be in use


def main() -> int:
    """Train and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--function", default="trainers.kd_trainer:build")
    parser.add_argument("--model", default="qwen2-tiny")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--block", type=int, default=4, help="steps")
    parser.add_argument("--alpha", type=float, help="of the claim; 0 for GKD, 1 for SFT")
    parser.add_argument("--temperature", type=float)
    options = parser.parse_args()
    profile = "full" if options.model == "qwen2-0.5b" else "reduced"
    parameters = json.loads(CONTRACT.read_text())["profiles"][profile]["parameters"]
    parameters |= {name: getattr(options, name) for name in ("model", "batch", "sequence")}
    parameters |= {"trainer": options.function, "teacher_steps": 2, "checkpoint_every": 0}
    parameters |= {"steps": (options.rounds + 1) * len(ARMS) * options.block}
    parameters |= {name: given for name in ("alpha", "temperature") if (given := getattr(options, name)) is not None}
    with tempfile.TemporaryDirectory() as scratch:
        setting = Setting(parameters, options.device, 0, Path(scratch, "work"), Path(scratch, "cache"))
        setting.workspace.mkdir()
        subject = HF(setting)
        trainer = subject._trainer
        assert isinstance(trainer.model, torch.nn.Module)
        reporter = LiveSteps(lambda step, **values: None, trainer.model, parameters)
        watch = StepWatch(trainer, reporter, subject._note)
        blocks = Blocks(trainer, watch, options.rounds, options.block, options.device.startswith("cuda"))
        trainer.add_callback(blocks)
        trainer.train()
    timing = Timing({name: tuple(found) for name, found in blocks.seconds.items()}, tuple(blocks.orders[1:]), 0)
    for name, seconds in timing.seconds.items():
        print(f"{name:<8} {1000 * median(seconds):9.3f} ms a step, median of {len(seconds)} blocks")
    cost, noise = timing.ratio("watched", "bare"), timing.ratio("again", "bare")
    for name, interval in (("watched", cost), ("again", noise)):
        print(f"{name:<8} {interval.estimate:9.4f} of bare, 99 % between {interval.low:.4f} and {interval.high:.4f}")
    return int(cost.low > MOST)


if __name__ == "__main__":
    sys.exit(main())
