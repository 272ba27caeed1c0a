"""The student's training: real forward, backward and AdamW steps against a frozen teacher."""

import time
from collections.abc import Generator, Mapping
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor
from torch.func import functional_call
from transformers import Qwen2ForCausalLM

from falsifiers.distill.reference.checkpointing import Checkpointer
from falsifiers.distill.reference.config import Recipe, new_model
from falsifiers.distill.reference.export import checkpoint_path, checkpoint_steps, save_weights
from falsifiers.distill.reference.journal import Journal
from falsifiers.distill.reference.loss import distillation_loss
from falsifiers.distill.reference.state import capture, read_state, restore, restore_weights
from falsifiers.distill.reference.teacher import trained_teacher
from falsifiers.distill.reference.teacher_cache import logits_of, write_teacher_cache
from falsifiers.distill.subject import OnStep, Run
from falsifiers.distill.text.corpus import Corpus, load_corpus, sample
from falsifiers.distill.text.tensor_cache import tensors_digest
from harness import Setting


class Distillation:
    """A trained teacher and a fresh student of one architecture; one call of `distill` trains the student.

    Models are built on first use. Until then no thread is started and no GPU is used, so a process that holds a subject
    may still fork.
    """

    def __init__(self, setting: Setting) -> None:
        self.recipe = Recipe.of(setting.parameters)
        self.device = torch.device(setting.device)
        self.seed = setting.seed
        self.directory = setting.workspace / "distilled"
        self.log = self.directory / "log.jsonl"
        self.steps_made = 0
        self._setting = setting

    @cached_property
    def corpus(self) -> Corpus:
        return load_corpus(self._setting.parameters, self._setting.cache)

    @cached_property
    def teacher(self) -> Qwen2ForCausalLM:
        """The frozen teacher, trained now or fetched from the cache."""
        tokenizer = str(self._setting.parameters["tokenizer"])
        with torch.enable_grad():  # the first use may be in an evaluation
            return trained_teacher(self.recipe, self.corpus, tokenizer, self.device, self._setting.cache)

    @cached_property
    def student(self) -> Qwen2ForCausalLM:
        return new_model(self.recipe, 2 * self.seed + 1, self.device, dropout=self.recipe.dropout).train()

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        """AdamW over all of the student's parameters."""
        return torch.optim.AdamW(self.student.parameters(), lr=self.recipe.learning_rate)

    def distill(self, on_step: OnStep) -> Run:
        """Train from the present step to the recipe's last step. Checkpoints are safetensors."""
        steps = self.steps_to_make()
        losses: list[float] = []
        if self.steps_made == 0:
            self._make_models()
            torch.manual_seed(2 * self.seed + 1)
        tokens = self.recipe.batch * self.recipe.sequence
        every = self.recipe.checkpoint_every
        with self.journal(self.recipe.log_every) as journal, Checkpointer(self.directory, every) as checkpointer:
            while self.steps_made < steps:
                started = time.perf_counter()
                loss = self.make_step(journal, checkpointer)
                losses.append(loss.item())
                elapsed = time.perf_counter() - started
                if checkpointer.due(self.steps_made):
                    self.save(checkpointer, self.steps_made, losses[-1])
                rate = self.optimizer.param_groups[0]["lr"]
                on_step(self.steps_made, loss=losses[-1], learning_rate=rate, tokens_per_second=tokens / elapsed)
        export = self.export(self.directory / self.recipe.export, self.metadata(self.steps_made, losses[-1]))
        return Run(len(losses), tuple(losses), tuple(checkpointer.saved), export, checkpointer.failures)

    def steps(self, log_every: int) -> Generator[int]:
        """Make one step for each item, until the generator is closed; without reports, checkpoints and export."""
        with self.journal(log_every) as journal, Checkpointer(self.directory, every=0) as checkpointer:
            while True:
                self.make_step(journal, checkpointer)
                yield self.steps_made

    def make_step(self, journal: Journal, checkpointer: Checkpointer) -> Tensor:
        """Train one step, and return its loss without waiting for it."""
        step = self.steps_made + 1
        loss = self.loss(*self.batch(step))
        checkpointer.protect()
        self.update(loss, step)
        self.steps_made = step
        journal.note(step, loss, self.learning_rate(step))
        return loss

    def journal(self, every: int) -> Journal:
        """The training log, with a line every so many steps."""
        return Journal(self.log, every)

    def save(self, checkpointer: Checkpointer, step: int, loss: float) -> None:
        """Hand the state after a step to the checkpointer."""
        state = capture(self.student_weights(), self.optimizer, self.metadata(step, loss))
        checkpointer.save(step, state.tensors, state.metadata)

    def resume(self) -> int:
        """Resume from the newest checkpoint of the directory; `distill` then continues as if it had never stopped.

        Returns: its step; 0 if there is no checkpoint.

        Raises:
            OSError, SafetensorError, ValueError: the newest checkpoint cannot be read, or is another model's.
        """
        steps = checkpoint_steps(self.directory)
        if steps:
            state = read_state(checkpoint_path(self.directory, steps[-1]))
            self._make_models()
            self.steps_made = restore(state, self.student_weights(), self.optimizer)
        return self.steps_made

    def _make_models(self) -> tuple[Qwen2ForCausalLM, Qwen2ForCausalLM]:
        """Build teacher and student now, because that draws random numbers, which the training must not see."""
        return self.teacher, self.student

    def load(self, path: Path) -> None:
        """Load the weights of an export or a checkpoint.

        Raises:
            OSError, SafetensorError, ValueError: the file cannot be read, or is another model's.
        """
        restore_weights(read_state(path), self.student_weights())

    def steps_to_make(self) -> int:
        """The number of optimizer steps of a run."""
        if self.recipe.steps < 1:
            raise ValueError(f"{self.recipe.steps} steps were asked for; ask for one or more")
        if self.recipe.steps <= self.steps_made:
            raise ValueError(f"{self.recipe.steps} steps were asked for and {self.steps_made} are made; ask for more")
        return self.recipe.steps

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and labels [batch, sequence] of a step, on the device; they depend only on seed and step."""
        seed = (2 * self.seed + 1, step)
        inputs, labels = sample(self.corpus.training, seed, self.recipe.batch, self.recipe.sequence)
        return inputs.to(self.device), labels.to(self.device)

    def loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The scalar that the step minimises."""
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

    def gradients(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The gradients by parameter for a step on this batch, before clipping; no step is made."""
        self.optimizer.zero_grad()
        self.loss(inputs, labels).backward()
        by_name = {
            name: weight.grad.clone() for name, weight in self.student_weights().items() if weight.grad is not None
        }
        self.optimizer.zero_grad()
        return by_name

    def learning_rate(self, step: int) -> float:
        """The learning rate of a step, counted from 1."""
        return self.recipe.learning_rate * min(1.0, step / max(1, self.recipe.warmup_steps))

    def metadata(self, step: int, loss: float) -> dict[str, str]:
        """The metadata of a file; safetensors allows only strings."""
        return {
            "name": f"{self.recipe.model}-distilled",
            "architecture": type(self.student).__name__,
            "teacher_model": f"{self.recipe.model}-teacher-seed-{self.recipe.teacher_seed}",
            "temperature": str(self.recipe.temperature),
            "alpha": str(self.recipe.alpha),
            "epoch": "0",  # sequences are drawn anew each step, so no epoch ever ends
            "step": str(step),
            "final_loss": str(loss),
        }

    def export(self, path: Path, metadata: Mapping[str, str]) -> Path:
        return save_weights(self.student_weights(), path, metadata)

    def precompute(self, path: Path, top_k: int) -> Path:
        """Write the teacher's answers to the batches of all steps into one file; equal runs write equal bytes.

        Raises:
            OSError: the file cannot be written.
        """
        answers = ((step, self.answer(step)) for step in range(1, self.recipe.steps + 1))
        return write_teacher_cache(path, top_k, self.made_from(), answers)

    def answer(self, step: int) -> Tensor:
        return self.teacher_logits(self.batch(step)[0])

    def made_from(self) -> dict[str, str | int]:
        """Everything that determines the teacher's answers to all batches."""
        return {
            "teacher": tensors_digest({name: weight.cpu() for name, weight in self.teacher.named_parameters()}),
            "corpus": self.corpus.digest,
            "seed": self.seed,
            "steps": self.recipe.steps,
            "batch": self.recipe.batch,
            "sequence": self.recipe.sequence,
        }

    def cached_logits(self, path: Path, step: int) -> Tensor:
        """The teacher's logits for the batch of a step, from the file."""
        return logits_of(path, step, self.teacher.config.vocab_size).to(self.device)

    @torch.no_grad()
    def teacher_logits(self, tokens: Tensor) -> Tensor:
        """The frozen teacher's logits [batch, sequence, vocabulary]."""
        return self.teacher(input_ids=tokens, use_cache=False).logits

    @torch.no_grad()
    def student_logits(self, tokens: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """The student's logits, with its own weights or with these.

        Raises:
            KeyError: `weights` are not exactly the student's parameters; torch would use live ones for missing names.
        """
        self.student.eval()  # evaluation without dropout
        try:
            return self._logits(tokens, weights)
        finally:
            self.student.train()

    def _logits(self, tokens: Tensor, weights: Mapping[str, Tensor] | None) -> Tensor:
        call = {"input_ids": tokens, "use_cache": False}
        if weights is None:
            return self.student(**call).logits
        if weights.keys() != self.student_weights().keys():
            raise KeyError(f"not the student's parameters: {sorted(weights.keys() ^ self.student_weights().keys())}")
        return functional_call(self.student, dict(weights), kwargs=call).logits

    def student_weights(self) -> dict[str, Tensor]:
        """The student's live parameters by name; the tied output head is the embedding and appears once."""
        return dict(self.student.named_parameters())

    def teacher_weights(self) -> dict[str, Tensor]:
        return dict(self.teacher.named_parameters())

    def optimizer_state(self) -> dict[str, dict[str, Tensor]]:
        """The optimizer's live slots by parameter; empty before the first step."""
        state = self.optimizer.state
        return {name: dict(state[weight]) for name, weight in self.student_weights().items() if weight in state}
