"""A `transformers.Trainer` or a subclass as a distillation, in this process: `--subject hf:MODULE:FUNCTION`.

FUNCTION builds the Trainer. It takes the `setting`, or those parameters of the claim that it names. The adapter watches
the live model through the Trainer's own callbacks. It tells a step when the Trainer has fetched the batch of the next
one, so the step's log and checkpoint exist by then. What a Trainer does not show, such as a teacher, is `NotShown`.
"""

from __future__ import annotations

import inspect
import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from transformers import Trainer, TrainerCallback

from falsifiers.distill.measuring.trainer_files import TrainerFiles, newest_checkpoint
from falsifiers.distill.oracle.qwen2 import SHAPES, new_model
from falsifiers.distill.oracle.shadow import Configuration
from falsifiers.distill.subject import OnStep, Run
from harness import Hidden, NotMeasured, NotShown, Setting
from harness.contract.entry_point import resolve

__all__ = ["HF"]

_TEACHERS = ("teacher_model", "teacher", "ref_model")
"""Where Trainers keep a teacher; TRL's have the first or the last."""

_DECISIVE = frozenset(
    {"steps", "batch", "sequence", "learning_rate", "warmup_steps", "gradient_norm", "alpha", "temperature"}
    | {"checkpoint_every", "dropout", "log_every"}
)
"""Parameters that decide what a run does. FUNCTION takes them, unless they are 0 or null, which turns them off."""

_PLAIN = frozenset({"input_ids", "labels", "attention_mask"})
"""What a batch of plain text holds."""

_IGNORED = -100
"""The label that transformers leaves out of the loss."""

Batch = tuple[Tensor, Tensor]


class HF:
    """The Trainer of FUNCTION. It is built when a model is first asked for."""

    def __init__(self, setting: Setting) -> None:
        """Build nothing yet."""
        self._directory = setting.workspace / "distilled"
        self._setting = setting
        self._names_are_known = False
        self._built: _Built | None = None
        self._refusal: Exception | None = None
        self._batches: dict[int, Batch | Hidden] = {}
        self._like: Mapping[str, Any] = {}
        self._resumes_from: Path | None = None

    def __getattr__(self, name: str) -> NoReturn:
        """Any other attribute raises `NotShown`, except names with an underscore, which Python itself looks up."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotShown(f"a transformers Trainer shows nothing of its {name.replace('_', ' ')}")

    def again(self, setting: Setting) -> HF:
        """Another subject of this kind."""
        return type(self)(setting)

    @property
    def weight_files(self) -> TrainerFiles:
        """How its checkpoints and its export are called and read."""
        self._names_are_known = True
        return TrainerFiles(lambda: self._trainer)

    @property
    def directory(self) -> Path:
        """Where the Trainer writes.

        Raises:
            NotShown: the falsifier has not asked for `weight_files`, so it looks for other names than a Trainer's.
        """
        if not self._names_are_known:
            raise NotShown("a Trainer's checkpoints are folders checkpoint-N, and this claim looks for other names")
        return self._directory

    @property
    def log(self) -> Path:
        """The Trainer's own history of its losses, one line of JSON a step.

        Raises:
            NotShown: it logs means over several steps.
        """
        lines = [entry for entry in self._trainer.state.log_history if "loss" in entry]
        steps = [0, *(entry["step"] for entry in lines)]
        apart = max((later - earlier for earlier, later in itertools.pairwise(steps)), default=1)
        if apart > 1:
            raise NotShown(f"the Trainer logs the mean loss of {apart} steps; ask for logging_steps=1")
        path = self._directory / "log.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def distill(self, on_step: OnStep) -> Run:
        """Let the Trainer train, and save the model as its users do."""
        trainer = self._trainer
        watch = _Watch(trainer, on_step, self._note)
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
        )

    def resume(self) -> int:
        """Resume from what `get_last_checkpoint` finds, as `resume_from_checkpoint=True` does; return its step."""
        self._resumes_from = newest_checkpoint(self._directory)
        return 0 if self._resumes_from is None else int(self._resumes_from.name.rpartition("-")[2])

    def load(self, path: Path) -> None:
        """Load the weights of an export or a checkpoint."""
        folder = path if path.is_dir() else path.parent
        self._trainer._load_from_checkpoint(str(folder))

    def batch(self, step: int) -> Batch:
        """Inputs and labels of the step that was made last, of the next one, or of the first one.

        Raises:
            NotShown: it is none of these, or it is not plain text for the claim's model.
        """
        self._check_model(self._model, "student")
        if step not in self._batches and not self._batches:
            self._rehearse()
        found = self._batches.get(step, Hidden("a Trainer shows no batch but those of its last step and its next"))
        if isinstance(found, Hidden):
            found.reveal()
        inputs, labels = found
        return inputs.to(self._setting.device), labels.to(self._setting.device)

    def gradients(self, inputs: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """By parameter, the gradient of the Trainer's own loss of a batch that looks like its first one.

        Raises:
            NotShown: its batches hold more than tokens, labels and a mask.
        """
        if not self._like:
            self._rehearse()
        if more := self._like.keys() - _PLAIN:
            raise NotShown(f"the Trainer's batches also hold {min(more)}, so none can be made for it")
        tokens, wanted = inputs.to(self._setting.device), labels.to(self._setting.device)
        if _are_inputs(self._like):
            tokens, wanted = torch.cat([tokens, wanted[:, -1:]], dim=1), torch.cat([tokens[:, :1], wanted], dim=1)
        made = {"input_ids": tokens, "labels": wanted, "attention_mask": torch.ones_like(tokens)}
        batch = {name: made[name] for name in self._like}
        model = self._model
        model.train()
        model.zero_grad()
        with torch.enable_grad():
            self._trainer.compute_loss(model, batch).backward()
        found = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
        model.zero_grad()
        return found

    def teacher_logits(self, tokens: Tensor) -> Tensor:
        """The teacher's logits."""
        return self._logits(self._teacher, "teacher", tokens)

    def student_logits(self, tokens: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """The student's logits, with its own weights or others."""
        if weights is not None and weights.keys() != dict(self._model.named_parameters()).keys():
            raise KeyError("these are not the student's parameters")
        return self._logits(self._model, "student", tokens, weights)

    def student_weights(self) -> Mapping[str, Tensor]:
        """The live parameters. Hidden if FUNCTION refuses its parameters, which `distill` raises then."""
        try:
            return dict(self._model.named_parameters())
        except NotMeasured:
            raise
        except Exception as error:
            if error is not self._refusal:
                raise
            return Hidden(f"FUNCTION built no Trainer: {error}")  # type: ignore[return-value]

    def teacher_weights(self) -> Mapping[str, Tensor]:
        """The teacher's parameters."""
        return dict(self._teacher.named_parameters())

    def optimizer_state(self) -> Mapping[str, Mapping[str, Tensor]]:
        """By parameter, AdamW's live slots.

        Raises:
            NotShown: the optimizer is none that the claim's parameters describe.
        """
        optimizer = self._trainer.optimizer
        if optimizer is None:
            return {}
        optimizer = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper
        _check_optimizer(optimizer, Configuration.of(self._setting.parameters))
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
                self._built = _Built(self._setting, self._directory)
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
            if isinstance(found := getattr(trainer, name, None), nn.Module):
                return found
        raise NotShown(f"{type(trainer).__name__} has no model as {', '.join(_TEACHERS[:-1])} or {_TEACHERS[-1]}")

    @torch.no_grad()
    def _logits(
        self, model: nn.Module, role: str, tokens: Tensor, weights: Mapping[str, Tensor] | None = None
    ) -> Tensor:
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
        """Raise NotShown if a model is not the one that the claim names: its oracle knows no other."""
        name = self._setting.parameters["model"]
        if name not in SHAPES:
            raise NotShown(f"this claim knows no model {name!r}")
        wanted = {key: weight.shape for key, weight in new_model(name, torch.device("meta")).named_parameters()}
        seen = {key: weight.shape for key, weight in model.named_parameters()}
        if other := sorted(key for key in wanted.keys() | seen.keys() if wanted.get(key) != seen.get(key)):
            raise NotShown(f"the {role} is no {name}, which the claim knows alone: they differ in {other[0]}")

    def _note(self, step: int, samples: list[Any]) -> None:
        """Keep the batch of a step that is to be made, and that of the step before it.

        Raises:
            NotMeasured: another batch was shown for this step.
        """
        batch = _inputs_and_labels(samples)
        before = self._batches.get(step)
        if isinstance(before, tuple) and isinstance(batch, tuple) and not all(map(torch.equal, before, batch)):
            raise NotMeasured(f"two Trainers of the same setting have different batches for step {step}")
        self._batches = {kept: one for kept, one in self._batches.items() if kept == step - 1} | {step: batch}

    def _rehearse(self) -> None:
        """Find the first batch, by a second Trainer that ends before its first step."""
        with torch.enable_grad(), _restored_chance():
            trainer = _Built(self._setting, self._directory).trainer
            _on_fetch(trainer, self._first_fetched)
            resumed = str(self._resumes_from) if self._resumes_from is not None else None
            try:
                trainer.train(resume_from_checkpoint=resumed)
            except _Enough:
                return
        raise NotShown(f"{type(trainer).__name__} fetches its batches otherwise than by get_batch_samples")

    def _first_fetched(self, step: int, samples: list[Any]) -> NoReturn:
        self._batches[step] = _inputs_and_labels(samples)
        self._like = dict(samples[0]) if samples and isinstance(samples[0], Mapping) else {"nothing known": None}
        raise _Enough


class _Enough(Exception):
    """The rehearsal has seen its batch."""


class _Built:
    """A Trainer, with the states of the random generators that building it left."""

    def __init__(self, setting: Setting, directory: Path) -> None:
        name = setting.parameters["trainer"]
        try:
            function = resolve(name)
        except (ImportError, AttributeError) as error:
            raise NotMeasured(f"{name} cannot be imported: {error}") from error
        arguments = _arguments(function, name, setting, directory)
        try:
            with torch.enable_grad():  # what asks first may be evaluating
                trainer = function(**arguments)
        except ImportError as error:
            raise NotMeasured(f"{name}: {error}; run make install, or install the extra trainers") from error
        if not isinstance(trainer, Trainer):
            raise NotMeasured(f"{name} returns {type(trainer).__name__}; a transformers.Trainer is needed")
        trainer.args.output_dir = str(directory)
        self.trainer = trainer
        self._chance = _chance()

    @contextmanager
    def as_after_building(self) -> Iterator[None]:
        """Go on with the random numbers that follow the building, whatever was drawn or built in between."""
        _set_chance(self._chance)
        yield


class _Watch(TrainerCallback):  # type: ignore[misc]
    """Tells the steps of a Trainer's run.

    Attributes:
        first: the step that the run started from.
        losses: of each step, as reported.
        saved: the checkpoints that it reported, without one that it makes at its end in any case.
    """

    def __init__(self, trainer: Trainer, on_step: OnStep, on_fetch: Callable[[int, list[Any]], None]) -> None:
        self.first = 0
        self.losses: list[float] = []
        self.saved: list[Path] = []
        self._on_step = on_step
        self._loss: Tensor | float = 0.0
        self._rate = 0.0
        self._logged = 0
        self._gradients: dict[nn.Parameter, Tensor] = {}
        self._pending: tuple[int, dict[str, float]] | None = None
        self._trainer = trainer
        step = trainer.training_step

        def training_step(*arguments: Any, **named: Any) -> Tensor:
            loss: Tensor = step(*arguments, **named)
            self._loss = self._loss + loss.detach()
            return loss

        trainer.training_step = training_step
        _on_fetch(trainer, on_fetch)
        trainer.add_callback(self)

    def tell(self) -> None:
        """Tell the step that was made, if it has not been told."""
        if self._pending is not None:
            (step, values), self._pending = self._pending, None
            self.losses.append(values["loss"])
            with _with_gradients(self._gradients):
                self._on_step(step, **values)
            self._gradients = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note where the run begins."""
        self.first = self._logged = state.global_step

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The batch of the next step is fetched, so the last step is complete."""
        self.tell()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Read the live learning rate, and hold the gradients, which the Trainer drops after the step."""
        self._rate = self._trainer.optimizer.param_groups[0]["lr"]
        weights = self._trainer.model.parameters()
        self._gradients = {weight: weight.grad for weight in weights if weight.grad is not None}

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A step was made. What it logs and saves comes next."""
        self._pending = state.global_step, {"loss": float(self._loss), "learning_rate": float(self._rate)}
        self._loss = 0.0

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """A log of one step says what the Trainer reports of it. A log of several is their mean."""
        if not logs or "loss" not in logs:
            return
        if state.global_step - self._logged == 1 and self._pending is not None:
            self._pending[1].update({name: float(one) for name, one in logs.items() if isinstance(one, (int, float))})
        self._logged = state.global_step

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note a periodic checkpoint."""
        files = TrainerFiles(lambda: self._trainer)
        if files.is_periodic(state.global_step):
            self.saved.append(Path(args.output_dir) / files.name(state.global_step))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """After the last epoch, tell the last step before anything else changes the weights."""
        if control.should_training_stop or state.global_step >= state.max_steps:
            self.tell()


@contextmanager
def _with_gradients(held: Mapping[nn.Parameter, Tensor]) -> Iterator[None]:
    """Show the gradients of the last step on the weights, as long as nothing trains.

    If the Trainer has set them to zero, and not to None, they are lost; then none are shown.
    """
    found = {weight: weight.grad for weight in held}
    for weight, gradient in held.items():
        weight.grad = gradient if found[weight] is None else None
    try:
        yield
    finally:
        for weight, gradient in found.items():
            weight.grad = gradient


def _on_fetch(trainer: Trainer, fetched: Callable[[int, list[Any]], None]) -> None:
    """Hand the samples of each step on when the Trainer has fetched them, with the number of the step."""
    fetch = trainer.get_batch_samples

    def get_batch_samples(*arguments: Any, **named: Any) -> Any:
        found = fetch(*arguments, **named)
        fetched(trainer.state.global_step + 1, found[0])
        return found

    trainer.get_batch_samples = get_batch_samples


def _inputs_and_labels(samples: list[Any]) -> Batch | Hidden:
    """Token ids and next tokens [batch, sequence] of a step's micro-batches; hidden if they are not plain text.

    transformers' models shift labels themselves, so their labels equal the inputs. Then the last token is only a label.
    """
    pairs = []
    for sample in samples:
        try:
            inputs, labels = sample["input_ids"], sample["labels"]
        except (KeyError, TypeError, IndexError):
            return Hidden("the batch has no input_ids and labels")
        mask = sample.get("attention_mask")
        if (labels == _IGNORED).any() or (mask is not None and not mask.all()):
            return Hidden("the batch leaves out tokens, by its labels or its attention mask")
        if inputs.shape != labels.shape or inputs.dim() != 2:
            return Hidden(f"the batch has input_ids {tuple(inputs.shape)} and labels {tuple(labels.shape)}")
        pairs.append((inputs[:, :-1], labels[:, 1:]) if torch.equal(inputs, labels) else (inputs, labels))
    if not pairs or len({inputs.shape[1] for inputs, _ in pairs}) != 1:
        return Hidden("the rows of a step have different lengths")
    inputs, labels = (torch.cat(parts).detach().cpu() for parts in zip(*pairs, strict=True))
    return inputs, labels


def _are_inputs(sample: Mapping[str, Tensor]) -> bool:
    """Whether the labels of a batch are its inputs, so that the loss shifts them."""
    return sample.keys() >= {"input_ids", "labels"} and torch.equal(sample["input_ids"], sample["labels"])


def _arguments(function: Callable[..., Any], name: str, setting: Setting, directory: Path) -> dict[str, Any]:
    """What FUNCTION takes: the setting, or parameters by name.

    Raises:
        NotMeasured: it lacks a parameter that decides what a run does, or needs one that the claim does not have.
    """
    wanted = inspect.signature(function).parameters
    own = {"setting": setting, "seed": setting.seed, "device": setting.device, "output_dir": str(directory)}
    offered = {**setting.parameters, **own}
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in wanted.values())
    if not takes_all and "setting" not in wanted:
        for key in sorted(_DECISIVE & setting.parameters.keys() - wanted.keys()):
            if setting.parameters[key]:
                raise NotMeasured(f"{name} does not take {key!r}, which is {setting.parameters[key]}; let it do so")
    given = offered if takes_all else {key: value for key, value in offered.items() if key in wanted}
    empty = [
        key
        for key, one in wanted.items()
        if key not in given and one.default is one.empty and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]
    if empty:
        raise NotMeasured(f"{name} takes {empty[0]!r}, which this run does not set; give it a default")
    return given


def _check_optimizer(optimizer: Any, wanted: Configuration) -> None:
    """Raise NotShown for an optimizer that is no AdamW, or one with other settings than the claim's."""
    if not isinstance(optimizer, torch.optim.AdamW):
        raise NotShown(f"the optimizer is {type(optimizer).__name__}; the claim describes a step of AdamW")
    described = {"betas": (wanted.beta1, wanted.beta2), "eps": wanted.epsilon, "weight_decay": wanted.weight_decay}
    for group in optimizer.param_groups:
        for name, value in described.items():
            if (seen := group[name] if name != "betas" else tuple(group[name])) != value:
                raise NotShown(f"the optimizer's {name} is {seen}, and the step that the claim describes has {value}")


def _chance() -> dict[str, Any]:
    """The states of all random generators."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    return {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.get_rng_state(), "cuda": cuda}


def _set_chance(state: Mapping[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["cpu"])
    if state["cuda"] is not None:
        torch.cuda.set_rng_state_all(state["cuda"])


@contextmanager
def _restored_chance() -> Iterator[None]:
    """Leave the random generators as they were."""
    before = _chance()
    try:
        yield
    finally:
        _set_chance(before)
