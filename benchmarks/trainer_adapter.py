"""The cost of watching a `transformers.Trainer`: steps under `--subject hf:` against steps of the bare Trainer.

    python -m benchmarks.trainer_adapter [--function trainers.trl_gkd:build] [--model qwen2-0.5b] [--device cuda:0]

Each round trains one Trainer of each arm, in an order of its own. A step lasts from the end of one step to the end of
the next, by the Trainer's callbacks. The first steps of each run are left out. What a falsifier does after a step is
not part of it. The output has the median and the quartiles of a step in milliseconds, and the ratio of the medians of
each round with its quartiles.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from transformers import TrainerCallback

from falsifiers.distill.hugging_face import HF
from falsifiers.distill.running.trainer_building import BuiltTrainer
from harness import Setting

CONTRACT = Path(__file__).parents[1] / "contracts" / "distill" / "F-DISTILL-SMOKE-001.json"


class Clock(TrainerCallback):  # type: ignore[misc]
    """Notes when each step ends."""

    def __init__(self, device: str) -> None:
        """Wait for the device, if it is a GPU."""
        self.ends: list[float] = []
        self._waits = device.startswith("cuda")

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Note the time."""
        if self._waits:
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())

    def seconds(self, left_out: int) -> list[float]:
        """How long each step took."""
        return [
            later - earlier for earlier, later in zip(self.ends[left_out:], self.ends[left_out + 1 :], strict=False)
        ]


def bare(setting: Setting) -> Clock:
    """Train without an adapter."""
    trainer, clock = BuiltTrainer(setting, setting.workspace / "bare").trainer, Clock(setting.device)
    trainer.add_callback(clock)
    trainer.train()
    return clock


def watched(setting: Setting) -> Clock:
    """Train under the adapter, with a listener that does nothing."""
    subject, clock = HF(setting), Clock(setting.device)
    subject._trainer.add_callback(clock)
    subject.distill(lambda step, **values: None)
    return clock


def main() -> int:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--function", default="trainers.kd_trainer:build")
    parser.add_argument("--model", default="qwen2-tiny")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--left-out", type=int, default=5, help="first steps of each run that are not measured")
    parser.add_argument("--alpha", type=float, help="of the claim; 0 for GKD, 1 for SFT")
    parser.add_argument("--temperature", type=float)
    asked = parser.parse_args()
    profile = "full" if asked.model == "qwen2-0.5b" else "reduced"
    parameters = json.loads(CONTRACT.read_text())["profiles"][profile]["parameters"]
    parameters |= {name: getattr(asked, name) for name in ("model", "batch", "sequence", "steps")}
    parameters |= {"trainer": asked.function, "teacher_steps": 2, "checkpoint_every": 0}
    parameters |= {name: given for name in ("alpha", "temperature") if (given := getattr(asked, name)) is not None}
    arms = {"bare": bare, "watched": watched}
    steps: dict[str, list[float]] = {name: [] for name in arms}
    ratios: list[float] = []
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(asked.rounds):
            of_round: dict[str, float] = {}
            for name in random.sample(list(arms), len(arms)):
                setting = Setting(
                    parameters, asked.device, 0, Path(scratch, f"{number}-{name}"), Path(scratch, "cache")
                )
                setting.workspace.mkdir()
                seconds = arms[name](setting).seconds(asked.left_out)
                steps[name] += seconds
                of_round[name] = median(seconds)
            ratios.append(of_round["watched"] / of_round["bare"])
    for name, seconds in steps.items():
        low, middle, high = (1000 * one for one in quantiles(seconds, n=4))
        print(f"{name:<8} {middle:9.3f} ms a step ({low:.3f} to {high:.3f}), {len(seconds)} steps")
    low, middle, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    print(f"ratio    {middle:9.4f}            ({low:.4f} to {high:.4f}), {len(ratios)} rounds; a cost of 3 % is 1.03")
    return 0


if __name__ == "__main__":
    sys.exit(main())
