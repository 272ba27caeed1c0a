"""The student's training: real forward, backward and AdamW steps against a frozen teacher."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from torch.func import functional_call

from falsifiers.distill.corpus import load_corpus, sample
from falsifiers.distill.reference.config import Recipe, new_model
from falsifiers.distill.reference.export import checkpoint_path, save_weights
from falsifiers.distill.reference.loss import distillation_loss
from falsifiers.distill.reference.teacher import trained_teacher
from falsifiers.distill.subject import OnStep, Run
from harness import Setting

__all__ = ["Distillation"]


class Distillation:
    """A teacher trained beforehand and a fresh student of one architecture; one call of `distill` trains the student.

    Every stage is a method of its own, so that a defect can be planted in one and leave the rest as it is.
    """

    def __init__(self, setting: Setting) -> None:
        """Load the text, train the teacher or fetch it from the cache, and draw the student's weights from the seed."""
        self.recipe = Recipe.of(setting.parameters)
        self.device = torch.device(setting.device)
        self.seed = setting.seed
        self.directory = setting.workspace / "distilled"
        self.corpus = load_corpus(setting.parameters, setting.cache)
        tokenizer = str(setting.parameters["tokenizer"])
        self.teacher = trained_teacher(self.recipe, self.corpus, tokenizer, self.device, setting.cache)
        self.student = new_model(self.recipe, 2 * setting.seed + 1, self.device).train()
        self.optimizer = torch.optim.AdamW(self.student.parameters(), lr=self.recipe.learning_rate)

    def distill(self, on_step: OnStep) -> Run:
        """Train for the recipe's steps; checkpoints and export are safetensors in the workspace."""
        losses: list[float] = []
        checkpoints: list[Path] = []
        for step in range(1, self.steps_to_make() + 1):
            started = time.perf_counter()
            inputs, labels = self.batch(step)
            loss = self.loss(inputs, labels, step)
            self.update(loss, step)
            losses.append(self.reported(loss, step))
            elapsed = time.perf_counter() - started
            if self.recipe.checkpoint_every and step % self.recipe.checkpoint_every == 0:
                path = checkpoint_path(self.directory, step)
                checkpoints.append(save_weights(self.student_weights(), path, self.metadata(step, losses[-1])))
            on_step(step, loss=losses[-1], tokens_per_second=inputs.numel() / elapsed)
        export = self.export(self.directory / "model.safetensors", self.metadata(len(losses), losses[-1]))
        return Run(len(losses), tuple(losses), tuple(checkpoints), export)

    def steps_to_make(self) -> int:
        """How many optimizer steps a run makes."""
        if self.recipe.steps < 1:
            raise ValueError(f"{self.recipe.steps} steps were asked for; ask for one or more")
        return self.recipe.steps

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and labels [batch, sequence] of a step, on the device; they depend on seed and step alone."""
        seed = (2 * self.seed + 1, step)
        inputs, labels = sample(self.corpus.training, seed, self.recipe.batch, self.recipe.sequence)
        return inputs.to(self.device), labels.to(self.device)

    def loss(self, inputs: Tensor, labels: Tensor, step: int) -> Tensor:
        """The scalar that the step minimises."""
        del step  # a defect may begin at some step; the reference treats all alike
        student = self.student(input_ids=inputs, use_cache=False).logits
        teacher = self.teacher_logits(inputs)
        return distillation_loss(student, teacher, labels, alpha=self.recipe.alpha, temperature=self.recipe.temperature)

    def update(self, loss: Tensor, step: int) -> None:
        """One backward pass and one optimizer step."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(step)
        self.optimizer.zero_grad()
        loss.backward()
        if self.recipe.gradient_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.student.parameters(), self.recipe.gradient_norm)
        self.optimizer.step()

    def learning_rate(self, step: int) -> float:
        """The learning rate of a step, counted from 1."""
        return self.recipe.learning_rate * min(1.0, step / max(1, self.recipe.warmup_steps))

    def reported(self, loss: Tensor, step: int) -> float:
        """The training loss as the run tells it."""
        del step
        return loss.item()

    def metadata(self, step: int, loss: float) -> dict[str, str]:
        """What a checkpoint says about itself; safetensors allows strings only."""
        return {
            "teacher_model": f"{self.recipe.model}-teacher-seed-{self.recipe.teacher_seed}",
            "temperature": str(self.recipe.temperature),
            "alpha": str(self.recipe.alpha),
            "epoch": "0",  # the sequences are drawn anew each step, so the text is never gone through once
            "step": str(step),
            "final_loss": str(loss),
        }

    def export(self, path: Path, metadata: Mapping[str, str]) -> Path:
        """Write the trained student."""
        return save_weights(self.student_weights(), path, metadata)

    @torch.no_grad()
    def teacher_logits(self, tokens: Tensor) -> Tensor:
        """The frozen teacher's logits [batch, sequence, vocabulary]."""
        return self.teacher(input_ids=tokens, use_cache=False).logits

    @torch.no_grad()
    def student_logits(self, tokens: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """The student's logits as it is, or with other weights in its place.

        Raises:
            KeyError: `weights` are not exactly the student's parameters; torch would fill the gaps with live ones.
        """
        if weights is None:
            return self.student(input_ids=tokens, use_cache=False).logits
        if weights.keys() != self.student_weights().keys():
            raise KeyError(f"not the student's parameters: {sorted(weights.keys() ^ self.student_weights().keys())}")
        call = {"input_ids": tokens, "use_cache": False}
        return functional_call(self.student, dict(weights), kwargs=call).logits

    def student_weights(self) -> dict[str, Tensor]:
        """The student's live parameters by name; the tied output head is the embedding and appears once."""
        return dict(self.student.named_parameters())
