"""Trials in the test's own process, and a subject of two tables that needs no training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from falsifiers.distill.subject import OnStep, Run
from harness import Setting, Trial
from harness.authoring.reports import Measured, Resolved, Stepped, TrialReport, Unseen
from harness.contract.entry_point import resolve
from harness.contract.loader import load
from harness.execution.worker_trial import WorkerTrial
from tests.falsifiers.planted import planted

CONTRACTS = Path(__file__).parents[3] / "contracts" / "distill"

QUICK = {
    "model": "qwen2-tiny",
    "dtype": "float32",
    "steps": 3,
    "batch": 2,
    "sequence": 16,
    "learning_rate": 0.01,
    "warmup_steps": 0,
    "gradient_norm": None,
    "alpha": 0.3,
    "temperature": 4.0,
    "checkpoint_every": 2,
    "corpus": None,
    "tokenizer": "bytes",
    "teacher_steps": 2,
    "teacher_batch": 2,
    "teacher_learning_rate": 0.006,
    "teacher_seed": 1,
    "held_out_batches": 2,
    "watch_every": 1,
}
"""Parameters of a run that takes a tenth of a second and learns almost nothing."""


@dataclass
class Heard:
    """The messages of a trial."""

    measurements: dict[str, Any] = field(default_factory=dict)
    unseen: dict[str, str] = field(default_factory=dict)
    resolved: dict[str, Any] = field(default_factory=dict)
    steps: list[int] = field(default_factory=list)

    def __call__(self, said: TrialReport) -> None:
        """Take one message of the trial."""
        if isinstance(said, Measured):
            self.measurements.update(said.values)
        elif isinstance(said, Unseen):
            self.unseen.update(said.values)
        elif isinstance(said, Resolved):
            self.resolved.update(said.values)
        elif isinstance(said, Stepped):
            self.steps.append(said.step)


def a_setting(folder: Path, seed: int = 0, **parameters: Any) -> Setting:
    """A setting on the CPU whose workspace and cache lie in `folder`."""
    return Setting({**QUICK, **parameters}, "cpu", seed, folder / "workspace", folder / "cache")


def a_trial(setting: Setting, subject: Any, declared: frozenset[str] = frozenset()) -> tuple[Trial[Any], Heard]:
    """A trial with its subject, and the messages that it will send."""
    recorded = Heard()
    setting.workspace.mkdir(parents=True, exist_ok=True)
    return WorkerTrial(setting, setting.workspace, declared, recorded).build(subject), recorded


@contextmanager
def a_mutant(claim: str, name: str) -> Iterator[tuple[Any, Callable[[Trial[Any]], None]]]:
    """The subject of a claim's mutant and the claim's falsifier, imported with the patches of the mutant."""
    contract = load(CONTRACTS / claim / "contract.json", (CONTRACTS.parents[1],))
    (mutant,) = (mutant for mutant in contract.mutants if mutant.id == name)
    with planted(mutant):
        yield resolve(mutant.subject), resolve(contract.falsifier)


class Tables:
    """Teacher and student as tables of logits by token, so that the test knows every answer."""

    def __init__(self, setting: Setting) -> None:
        """Draw both tables."""
        generator = torch.Generator().manual_seed(7)
        self.teacher = torch.randn(256, 256, generator=generator)
        self.weights = {"table": torch.randn(256, 256, generator=generator)}

    def distill(self, on_step: OnStep) -> Run:
        """Move towards the teacher twice, with one step between that changes nothing."""
        for step, rate in enumerate((0.1, 0.0, 0.1), start=1):
            self.weights["table"] += rate * (self.teacher - self.weights["table"])
            on_step(step, loss=1.0)
        return Run(3, (1.0, 1.0, 1.0), (), Path("nowhere"))

    def teacher_logits(self, tokens: Tensor) -> Tensor:
        """For each token, its row of the table."""
        return self.teacher[tokens]

    def student_logits(self, tokens: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """The same from the student's table."""
        return (weights or self.weights)["table"][tokens]

    def student_weights(self) -> Mapping[str, Tensor]:
        """The live table."""
        return self.weights
