"""Time, peak memory and exactness of a distillation step with three losses.

The arms train one student from one teacher, in one process and in turns, so that clocks and caches are the same:

- plain: transformers' logits of both models, then cross entropy and `kl_div`;
- chunked: falsifiers/distill/reference/chunked.py;
- liger: LigerFusedLinearJSDLoss with beta 0 and a soft weight of (1 - alpha) T^2, if liger-kernel is installed.

    python -m benchmarks.distill_step [--model qwen2-0.5b] [--batch 8] [--sequence 512] [--rounds 10]

The output has the median and the quartiles of a step in milliseconds, the allocator's peak during a step (GPU only),
both also as ratios to the plain loop, the loss on one batch, and the relative errors of the gradients of hidden states
and head against float64, on fewer tokens of the same models.
"""

from __future__ import annotations

import argparse
import gc
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pandas as pd
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import Tensor
from transformers import Qwen2ForCausalLM

from falsifiers.distill.kd.formulas import truth
from falsifiers.distill.kd.subject import Question
from falsifiers.distill.reference.chunked import chunked_distillation_loss
from falsifiers.distill.reference.config import ARCHITECTURES, Recipe, new_model

ALPHA, TEMPERATURE = 0.3, 4.0
PLAIN = "plain"

Loss = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""A function of the hidden states and heads of student and teacher, and labels [tokens]; returns the loss."""


@dataclass
class Arm:
    """One loss, and the cost of its steps."""

    loss: Loss
    milliseconds: list[float] = field(default_factory=list)
    peaks: list[float] = field(default_factory=list)


def main() -> int:
    """Run the rounds and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(ARCHITECTURES), default="qwen2-0.5b")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=10, help="measured steps of each arm")
    parser.add_argument("--warmup", type=int, default=3, help="steps of each arm that are not measured")
    parser.add_argument("--exact-tokens", type=int, default=256, help="tokens on which gradients are compared")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    models = Models(arguments.model, device)
    arms = {name: Arm(loss) for name, loss in losses().items()}
    print(f"{arguments.model}, {arguments.batch} x {arguments.sequence} tokens, float32, {_name(device)}")
    errors = exactness(models, arms, arguments.exact_tokens)
    batch = models.tokens(arguments.batch, arguments.sequence)
    for number in range(arguments.warmup + arguments.rounds):
        names = list(arms)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            models.step(arms[name], name == PLAIN, batch, measured=number >= arguments.warmup)
    print(f"\n{costs(arms).to_string()}\n\n{errors.to_string()}")
    return 0


class Models:
    """A student, a teacher and an optimizer, shared by all arms."""

    def __init__(self, model: str, device: torch.device) -> None:
        """Random weights of the recipe's architecture; the cost of a step does not depend on their values."""
        recipe = Recipe(
            model=model, steps=1, batch=1, sequence=1, learning_rate=1e-5, warmup_steps=0, gradient_norm=None,
            alpha=ALPHA, temperature=TEMPERATURE, dtype="float32", checkpoint_every=0,
            teacher_steps=0, teacher_batch=1, teacher_learning_rate=0.0, teacher_seed=1,
        )  # fmt: skip
        self.device = device
        self.student: Qwen2ForCausalLM = new_model(recipe, 1, device).train()
        self.teacher: Qwen2ForCausalLM = new_model(recipe, 2, device).requires_grad_(False).eval()
        self.optimizer = torch.optim.AdamW(self.student.parameters(), lr=recipe.learning_rate)

    def tokens(self, batch: int, sequence: int) -> tuple[Tensor, Tensor]:
        """Inputs and labels [batch, sequence]."""
        generator = torch.Generator().manual_seed(0)
        drawn = torch.randint(self.student.config.vocab_size, (batch, sequence + 1), generator=generator)
        return drawn[:, :-1].to(self.device), drawn[:, 1:].to(self.device)

    def step(self, arm: Arm, plain: bool, batch: tuple[Tensor, Tensor], *, measured: bool) -> None:
        """One optimizer step with this arm's loss, and its cost."""
        inputs, labels = batch
        self.optimizer.zero_grad(set_to_none=True)
        gc.collect()
        self._begin()
        started = time.perf_counter()
        loss = self._plain(inputs, labels) if plain else arm.loss(*self.hidden(inputs), labels.flatten())
        loss.backward()
        self.optimizer.step()
        self._finish()
        if measured:
            arm.milliseconds.append(1e3 * (time.perf_counter() - started))
            peak = torch.cuda.max_memory_allocated() / 2**30 if self.device.type == "cuda" else math.nan
            arm.peaks.append(peak)

    def _plain(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The usual loop: the logits of both models, and their loss."""
        student = self.student(input_ids=inputs, use_cache=False).logits
        with torch.no_grad():
            teacher = self.teacher(input_ids=inputs, use_cache=False).logits
        return plain_loss(student.flatten(0, 1), teacher.flatten(0, 1), labels.flatten())

    def hidden(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The inputs of fused losses: hidden states [tokens, width] and heads of both models."""
        student = self.student.model(input_ids=inputs, use_cache=False).last_hidden_state
        with torch.no_grad():
            teacher = self.teacher.model(input_ids=inputs, use_cache=False).last_hidden_state
        heads = self.student.lm_head.weight, self.teacher.lm_head.weight
        return student.flatten(0, 1), heads[0], teacher.flatten(0, 1), heads[1]

    def _begin(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()

    def _finish(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def plain_loss(student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy and `kl_div` of logits [tokens, vocabulary], with torch's functions."""
    divergence = F.kl_div(
        F.log_softmax(student / TEMPERATURE, dim=-1),
        F.log_softmax(teacher / TEMPERATURE, dim=-1),
        reduction="batchmean",
        log_target=True,
    )
    return ALPHA * F.cross_entropy(student, labels) + (1 - ALPHA) * TEMPERATURE**2 * divergence


def losses() -> dict[str, Loss]:
    """The arms by name, the plain one first."""

    def plain(student: Tensor, head: Tensor, teacher: Tensor, teacher_head: Tensor, labels: Tensor) -> Tensor:
        return plain_loss(student @ head.T, teacher @ teacher_head.T, labels)

    def chunked(student: Tensor, head: Tensor, teacher: Tensor, teacher_head: Tensor, labels: Tensor) -> Tensor:
        return chunked_distillation_loss(
            student, head, teacher, teacher_head, labels, alpha=ALPHA, temperature=TEMPERATURE
        )

    arms: dict[str, Loss] = {PLAIN: plain, "chunked": chunked}
    try:
        from liger_kernel.chunked_loss import LigerFusedLinearJSDLoss
    except ImportError:
        print("liger-kernel is not installed: pip install liger-kernel", file=sys.stderr)
        return arms
    arms["liger"] = LigerFusedLinearJSDLoss(
        weight_hard_loss=ALPHA,
        weight_soft_loss=(1 - ALPHA) * TEMPERATURE**2,
        beta=0.0,
        temperature=TEMPERATURE,
        compiled=torch.cuda.is_available(),
    )
    return arms


def exactness(models: Models, arms: Mapping[str, Arm], tokens: int) -> pd.DataFrame:
    """Loss, and relative error of both gradients by norm, of every arm against float64."""
    with torch.no_grad():
        student, head, teacher, teacher_head = (
            tensor.detach() for tensor in models.hidden(models.tokens(1, tokens)[0])
        )
    labels = models.tokens(1, tokens)[1].flatten()
    right = truth(Question(student, head, teacher, teacher_head, labels, ALPHA, TEMPERATURE))
    rows = {}
    for name, arm in arms.items():
        hidden, weight = student.clone().requires_grad_(), head.clone().requires_grad_()
        loss = arm.loss(hidden, weight, teacher, teacher_head, labels)
        gradients = torch.autograd.grad(loss, (hidden, weight))
        rows[name] = {
            "loss": loss.item(),
            "loss in float64": right.loss,
            "error of hidden gradient": _relative(gradients[0], right.student_gradient),
            "error of head gradient": _relative(gradients[1], right.head_gradient),
        }
    return pd.DataFrame(rows).T


def costs(arms: Mapping[str, Arm]) -> pd.DataFrame:
    """Time and memory of every arm, and their ratios to the plain loop."""
    table = pd.DataFrame(
        {
            name: {
                **pd.Series(arm.milliseconds).quantile([0.25, 0.5, 0.75]).rename(lambda q: f"ms, {q:.0%}").to_dict(),
                "peak GiB": max(arm.peaks),
            }
            for name, arm in arms.items()
        }
    ).T
    table["time / plain"] = table["ms, 50%"] / table.loc[PLAIN, "ms, 50%"]
    table["peak / plain"] = table["peak GiB"] / table.loc[PLAIN, "peak GiB"]
    return table.round(3)


def _relative(got: Tensor, true: Tensor) -> float:
    return float((got.double() - true).norm() / true.norm())


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


if __name__ == "__main__":
    sys.exit(main())
