"""A `transformers.Trainer` or a subclass in this process as a subject: `--subject hf:MODULE:FUNCTION`.

FUNCTION builds the Trainer. It takes the `setting`, or the parameters of the claim that its signature names. The
adapter watches the live model through the Trainer's callbacks. It reports a step once the Trainer has fetched the batch
of the next one, so the step's log and checkpoint exist by then. What a Trainer does not show, such as a teacher, is
`NotObserved`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.func import functional_call
from transformers import Trainer

from falsifiers.distill.measuring.held_out import HeldOut
from falsifiers.distill.measuring.live_models import LiveModels
from falsifiers.distill.measuring.trainer_files import TrainerFiles, newest_checkpoint
from falsifiers.distill.oracle.qwen2 import SHAPES, new_model
from falsifiers.distill.oracle.shadow import Configuration
from falsifiers.distill.running.live_steps import LiveSteps, sampled
from falsifiers.distill.running.trainer_building import BuiltTrainer, restored_chance
from falsifiers.distill.running.trainer_watch import Batch, StepWatch, inputs_and_labels, labels_are_inputs, on_fetch
from falsifiers.distill.subject import OnStep, Run
from harness import NotMeasured, NotObserved, Setting, Unobserved, propagates

_TEACHERS = ("teacher_model", "teacher", "ref_model")
"""Attributes in which Trainers keep a teacher; TRL's use the first or the last."""

_PLAIN = frozenset({"input_ids", "labels", "attention_mask"})
"""The keys of a batch of plain text."""


class HF:
    """The Trainer of FUNCTION. It is built when a model is first requested."""

    def __init__(self, setting: Setting) -> None:
        self._directory = setting.workspace / "distilled"
        self._setting = setting
        self._names_are_known = False
        self._built: BuiltTrainer | None = None
        self._refusal: Exception | None = None
        self._batches: dict[int, Batch | Unobserved] = {}
        self._like: Mapping[str, Any] = {}
        self._resumes_from: Path | None = None
        self._first: dict[str, Tensor] = {}
        self._live_models: LiveModels | None = None

    def __getattr__(self, name: str) -> NoReturn:
        """Raise `NotObserved` for any other attribute; AttributeError for names that Python itself looks up."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotObserved(f"a transformers Trainer shows nothing of its {name.replace('_', ' ')}")

    def again(self, setting: Setting) -> HF:
        return type(self)(setting)

    @property
    def weight_files(self) -> TrainerFiles:
        """How its checkpoints and its export are named and read."""
        self._names_are_known = True
        return TrainerFiles(lambda: self._trainer, lambda: self._built is not None, self._has_known_models)

    reported_loss = ""
    """The kind of loss that a Trainer of another architecture logs is unknown. See `Scores.as_reported`."""

    @propagates
    def held_out(self) -> HeldOut:
        """Batches of the Trainer's own text. Models of another architecture are evaluated on them from now on.

        Raises:
            NotObserved: there is no such text, or transformers does not know the models.
        """
        self._live_models = LiveModels(self._setting, self._trainer, *self._models().values())
        return self._live_models.held_out

    def unmoved(self) -> list[str]:
        """The names of trainable tensors that did not change in the run, if PEFT freezes the others.

        Raises:
            NotObserved: the model is not PEFT's, so each of its tensors must move.
        """
        peft = sys.modules.get("peft")
        if peft is None or not isinstance(self._model, peft.PeftModel):
            raise NotObserved("the model is not a PEFT model")
        now = sampled(dict(self._model.named_parameters()))
        return [name for name, initial in self._first.items() if torch.equal(initial, now[name])]

    @property
    def directory(self) -> Path:
        """Where the Trainer writes.

        Raises:
            NotObserved: the falsifier does not use `weight_files`, so it expects other file names than a Trainer's.
        """
        if not self._names_are_known:
            raise NotObserved("a Trainer's checkpoints are folders checkpoint-N, and this claim looks for other names")
        return self._directory

    @property
    def log(self) -> Path:
        """The Trainer's own history of its losses, as one line of JSON per step.

        Raises:
            NotObserved: it logs means over several steps.
        """
        lines = [entry for entry in self._trainer.state.log_history if "loss" in entry]
        steps = [0, *(entry["step"] for entry in lines)]
        apart = max((later - earlier for earlier, later in itertools.pairwise(steps)), default=1)
        if apart > 1:
            raise NotObserved(f"the Trainer logs the mean loss of {apart} steps; ask for logging_steps=1")
        path = self._directory / "log.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def distill(self, on_step: OnStep) -> Run:
        """Run the Trainer, and save the model as its users do."""
        trainer = self._trainer
        trained = {name: parameter for name, parameter in self._model.named_parameters() if parameter.requires_grad}
        self._first = sampled(trained)
        watch = StepWatch(trainer, LiveSteps(on_step, self._model, self._setting.parameters), self._note)
        with torch.enable_grad(), self._built.as_after_building():  # type: ignore[union-attr]
            resumed = str(self._resumes_from) if self._resumes_from is not None else None
            output = trainer.train(resume_from_checkpoint=resumed)
            watch.tell()
            trainer.save_model(str(self._directory / "export"))
        reached = getattr(output, "global_step", trainer.state.global_step)
        return Run(
            steps=reached - watch.first,
            losses=tuple(watch.losses),
            checkpoints=tuple(watch.saved),
            export=self._directory / "export" / "model.safetensors",
            failed_saves=getattr(trainer, "failed_saves", 0),
        )

    def resume(self) -> int:
        """Resume from the result of `get_last_checkpoint`, as `resume_from_checkpoint=True` does; return its step."""
        self._resumes_from = newest_checkpoint(self._directory)
        return 0 if self._resumes_from is None else int(self._resumes_from.name.rpartition("-")[2])

    def load(self, path: Path) -> None:
        folder = path if path.is_dir() else path.parent
        self._trainer._load_from_checkpoint(str(folder))

    def batch(self, step: int) -> Batch:
        """The inputs and labels of the last step, of the next one, or of the first one.

        Raises:
            NotObserved: the step is none of these, or its batch is not plain text for the claim's model.
        """
        self._check_model(self._model, "student")
        if step not in self._batches and not self._batches:
            self._rehearse()
        shown = self._batches.get(step, Unobserved("a Trainer shows no batch but those of its last step and its next"))
        if isinstance(shown, Unobserved):
            shown.reveal()
        inputs, labels = shown
        return inputs.to(self._setting.device), labels.to(self._setting.device)

    def gradients(self, inputs: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """The gradient by parameter of the Trainer's own loss on a batch that has the form of its first one.

        Raises:
            NotObserved: its batches hold more than tokens, labels and a mask.
        """
        if not self._like:
            self._rehearse()
        if more := self._like.keys() - _PLAIN:
            raise NotObserved(f"the Trainer's batches also hold {min(more)}, so none can be made for it")
        tokens, wanted = inputs.to(self._setting.device), labels.to(self._setting.device)
        if labels_are_inputs(self._like):
            tokens, wanted = torch.cat([tokens, wanted[:, -1:]], dim=1), torch.cat([tokens[:, :1], wanted], dim=1)
        samples = {"input_ids": tokens, "labels": wanted, "attention_mask": torch.ones_like(tokens)}
        batch = {name: samples[name] for name in self._like}
        model = self._model
        model.train()
        model.zero_grad()
        with torch.enable_grad():
            self._trainer.compute_loss(model, batch).backward()
        by_name = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
        model.zero_grad()
        return by_name

    def teacher_logits(self, tokens: Tensor) -> Tensor:
        return self._logits(self._teacher, "teacher", tokens)

    def student_logits(self, tokens: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        if weights is not None and weights.keys() != dict(self._model.named_parameters()).keys():
            raise KeyError("these are not the student's parameters")
        return self._logits(self._model, "student", tokens, weights)

    def student_weights(self) -> Mapping[str, Tensor]:
        """The live parameters. Unobserved if FUNCTION refuses its arguments; `distill` raises that error."""
        try:
            return dict(self._model.named_parameters())
        except NotMeasured:
            raise
        except Exception as error:
            if error is not self._refusal:
                raise
            return Unobserved(f"FUNCTION built no Trainer: {error}")  # type: ignore[return-value]

    def teacher_weights(self) -> Mapping[str, Tensor]:
        return dict(self._teacher.named_parameters())

    def optimizer_state(self) -> Mapping[str, Mapping[str, Tensor]]:
        """AdamW's live slots, by parameter.

        Raises:
            NotObserved: the claim's parameters do not describe this optimizer.
        """
        optimizer = self._trainer.optimizer
        if optimizer is None:
            return {}
        optimizer = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper
        _check_optimizer(optimizer, self._setting.parameters)
        return {
            name: dict(optimizer.state[weight])
            for name, weight in self._model.named_parameters()
            if weight in optimizer.state
        }

    @property
    def _trainer(self) -> Trainer:
        if self._refusal is not None:
            raise self._refusal
        if self._built is None:
            try:
                self._built = BuiltTrainer(self._setting, self._directory)
            except NotMeasured:
                raise
            except Exception as error:
                self._refusal = error
                raise
        return self._built.trainer

    @property
    def _model(self) -> nn.Module:
        return self._trainer.model

    @property
    def _teacher(self) -> nn.Module:
        trainer = self._trainer
        for name in _TEACHERS:
            if isinstance(teacher := getattr(trainer, name, None), nn.Module):
                return teacher
        raise NotObserved(f"{type(trainer).__name__} has no model as {', '.join(_TEACHERS[:-1])} or {_TEACHERS[-1]}")

    def _models(self) -> dict[str, nn.Module]:
        """The student, and the teacher if there is one."""
        models = {"student": self._model}
        with contextlib.suppress(NotObserved):
            models["teacher"] = self._teacher
        return models

    @torch.no_grad()
    def _logits(
        self, model: nn.Module, role: str, tokens: Tensor, weights: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        if self._live_models is not None:
            return self._live_models.answer(model, tokens)
        self._check_model(model, role)
        trains = model.training
        model.eval()
        try:
            call = {"input_ids": tokens.to(next(model.parameters()).device), "use_cache": False}
            answer = model(**call) if weights is None else functional_call(model, dict(weights), kwargs=call)
            return answer.logits
        finally:
            model.train(trains)

    def _check_model(self, model: nn.Module, role: str) -> None:
        """Raise NotObserved if a model is not the one that the claim names: the claim's oracle knows no other."""
        name = self._setting.parameters["model"]
        if name not in SHAPES:
            raise NotObserved(f"this claim knows no model {name!r}")
        shapes = {key: weight.shape for key, weight in new_model(name, torch.device("meta")).named_parameters()}
        seen = {key: weight.shape for key, weight in model.named_parameters()}
        if other := sorted(key for key in shapes.keys() | seen.keys() if shapes.get(key) != seen.get(key)):
            raise NotObserved(f"the {role} differs from {name} in {other[0]}, and the claim knows no other model")

    def _has_known_models(self) -> bool:
        """Whether student and teacher are the model that the claim names, if the claim evaluates models.

        Unobserved if they are not: bounds for the named model do not apply, and answers of another cannot be checked.
        """
        if "held_out_batches" not in self._setting.parameters:
            return True
        try:
            for role, model in self._models().items():
                self._check_model(model, role)
        except NotObserved as reason:
            return Unobserved(str(reason))  # type: ignore[return-value]
        except NotMeasured:
            raise
        except Exception as error:
            if error is not self._refusal:
                raise
        return True

    def _note(self, step: int, samples: list[Any]) -> None:
        """Keep the batch of the next step and of the step before it.

        Raises:
            NotMeasured: another batch was shown for this step.
        """
        batch = inputs_and_labels(samples)
        before = self._batches.get(step)
        if isinstance(before, tuple) and isinstance(batch, tuple) and not all(map(torch.equal, before, batch)):
            raise NotMeasured(f"two Trainers of the same setting have different batches for step {step}")
        self._batches = {kept: batch for kept, batch in self._batches.items() if kept == step - 1} | {step: batch}

    def _rehearse(self) -> None:
        """Find the first batch with a second Trainer that stops before its first step."""
        with torch.enable_grad(), restored_chance():
            trainer = BuiltTrainer(self._setting, self._directory).trainer
            on_fetch(trainer, self._first_fetched)
            resumed = str(self._resumes_from) if self._resumes_from is not None else None
            try:
                trainer.train(resume_from_checkpoint=resumed)
            except _Enough:
                return
        raise NotObserved(f"{type(trainer).__name__} fetches its batches otherwise than by get_batch_samples")

    def _first_fetched(self, step: int, samples: list[Any]) -> NoReturn:
        self._batches[step] = inputs_and_labels(samples)
        self._like = dict(samples[0]) if samples and isinstance(samples[0], Mapping) else {"nothing known": None}
        raise _Enough


class _Enough(Exception):
    """Ends the rehearsal after its first batch."""


def _check_optimizer(optimizer: Any, parameters: Mapping[str, Any]) -> None:
    """Raise NotObserved for an optimizer other than AdamW, or with settings that the claim leaves open.

    Settings that the claim states are not checked here: another value is a defect, which the slots show.
    """
    if not isinstance(optimizer, torch.optim.AdamW):
        raise NotObserved(f"the optimizer is {type(optimizer).__name__}; the claim describes a step of AdamW")
    configuration = Configuration.of(parameters)
    for group in optimizer.param_groups:
        seen = {"beta1": group["betas"][0], "beta2": group["betas"][1], "epsilon": group["eps"]}
        seen["weight_decay"] = group["weight_decay"]
        for name, value in seen.items():
            if name not in parameters and value != getattr(configuration, name):
                raise NotObserved(
                    f"the optimizer's {name} is {value}, and torch's default is {getattr(configuration, name)}"
                )
