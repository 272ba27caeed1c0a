"""An external trainer as a subject: a command to run, or the directory of a finished run.

Visible from outside are the steps and losses that it prints, the files that it writes, and its exit status. Its weights
are those of its checkpoints, and before the first step those of its initial file. If its TOML file names models, a
tokenizer and a text, the falsifier evaluates the models itself. The rest is hidden: clauses on it are NOT_MEASURED.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from falsifiers.distill.measuring.dumped_steps import DumpedStep, read_dump
from falsifiers.distill.measuring.held_out import HeldOut
from falsifiers.distill.measuring.named_models import NamedModel, NamedText, held_out_of
from falsifiers.distill.measuring.weight_files import Unreadable
from falsifiers.distill.measuring.weight_formats import read_weights
from falsifiers.distill.oracle.adapters import Adapters
from falsifiers.distill.oracle.qwen2 import NotTheModel
from falsifiers.distill.outside_files import OutsideFiles
from falsifiers.distill.subject import OnStep, Run
from harness import NotMeasured, NotObserved, Unobserved, propagates
from harness.tools.trainer import directory
from harness.tools.trainer.adapter import CommandRun, Outside, RecordedRun
from harness.tools.trainer.model_folder import weight_paths
from harness.tools.trainer.output_events import EventKind
from harness.tools.trainer.output_summary import Telling

T = TypeVar("T")

_LOSSES = ("distillation", "cross_entropy", "kl")

_MERGE_ROUNDINGS = 64  # relative to the largest element, for products of matrices of that rank

_FEWEST_STEPS = 2
"""Reported steps from which on weights must have moved: the first step may have a learning rate of 0."""


class _Trainer(Outside):
    """The parts common to a command and a finished run."""

    @property
    def weight_files(self) -> OutsideFiles:
        """How its checkpoints and its export are named and read."""
        return OutsideFiles(self)

    @property
    def reported_loss(self) -> str:
        """The kind of loss that its output reports, by the TOML file; empty if the file does not say.

        Raises:
            NotMeasured: a parameter names a loss that no claim knows.
        """
        stated = self.trainer.loss
        kind = self.filled(stated) if self.trainer.has_values(stated, self.values) else ""
        if kind not in ("", *_LOSSES):
            raise NotMeasured(f"{self.trainer.path.name}: /log/loss is {kind!r}; it is one of {', '.join(_LOSSES)}")
        return kind

    @propagates
    def held_out(self) -> HeldOut:
        """A tenth of the text that the TOML file names, tokenised by its tokenizer.

        Raises:
            NotObserved: the file names no text or no tokenizer, or they cannot be used.
        """
        self._models = {}
        text, tokenizer = (self._named(f"models.{name}", "") for name in ("text", "tokenizer"))
        held_out, vocabulary = held_out_of(text, tokenizer, self.setting)
        self._models = {role: NamedModel(self.setting, vocabulary) for role in ("teacher", "student")}
        return held_out

    def named_text(self) -> NamedText:
        """All of the text that the TOML file names.

        Raises:
            NotObserved: the file names no text or no tokenizer, or they cannot be used.
        """
        return NamedText(self._named("models.text", "text"), self._named("models.tokenizer", "tokenizer"))

    @propagates
    def teacher_logits(self, tokens: Tensor) -> Tensor:
        """The logits of the teacher that the TOML file names, for tokens of its own text."""
        teacher = Path(self._named("models.teacher", "teacher"))
        prefix = self.trainer.models.teacher_prefix
        return self._model("teacher").answer(teacher, prefix, self._config_of(teacher), tokens)

    @propagates
    def student_logits(self, tokens: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """The logits of the student's newest weights for tokens of its own text; after the run, of its export."""
        model, files = self._model("student"), self.trainer.files
        if weights is not None:
            raise NotObserved(f"{self.trainer.name} answers with no other weights than its own")
        if self._has_ended:
            named, place, prefix = Path(self.filled(files.export)), self._export, files.export_prefix
        elif self.step == 0:
            named = place = self._initial
            prefix = files.initial_prefix
        else:
            raise NotObserved("the student is evaluated before the run and after it")
        return model.answer(place, prefix, self._config_of(named), tokens)

    def _model(self, role: str) -> NamedModel:
        if not self._models:
            raise NotObserved(f"{self.trainer.path.name} names no text of its own, or this claim evaluates on another")
        return self._models[role]

    def _named(self, key: str, what: str) -> str:
        """The value of a key of the TOML file, with the values of this run inserted."""
        table, _, name = key.partition(".")
        text: str = getattr(getattr(self.trainer, table), name)
        if not text or not self.trainer.has_values(text, self.values):
            raise NotObserved(f"{self.trainer.path.name} names no {what or name}: evaluation needs /{table}/{name}")
        return self.filled(text)

    def _config_of(self, named: Path) -> str:
        """The path of the model's configuration; empty if it is beside the weights."""
        text, has_its_own = self.trainer.models.config, (named / "config.json").is_file()
        return self.filled(text) if text and not has_its_own and self.trainer.has_values(text, self.values) else ""

    @property
    def _initial(self) -> Path:
        return Path(self._named("files.initial", "student before its first step"))

    @property
    def _export(self) -> Path:
        """The export; as a file if it is a folder with a single one."""
        place = Path(self.filled(self.trainer.files.export))
        parts = weight_paths(place)
        return parts[0] if len(parts) == 1 else place

    @propagates
    def unmoved(self) -> list[str]:
        """The names of tensors that are equal in the export and the initial file, in whatever dtype.

        Raises:
            NotObserved: a file cannot be read, or they have no tensor in common.
        """
        files = self.trainer.files
        first = self._weights(self._initial, files.initial_prefix)
        try:
            last, _ = read_weights(self._export, files.export_prefix)
        except Unreadable as error:
            raise NotObserved(f"the export cannot be read: {error}") from error
        both = self.weight_files.moving(sorted(first.keys() & last.keys()))
        if not both:
            raise NotObserved("the export and the initial file share no trained tensor")
        return [name for name in both if torch.equal(first[name].double(), last[name].double())]

    def ran(self) -> dict[str, Any]:
        """As `Outside.ran`; also differences between files and output, and the precision of the export."""
        run = super().ran()
        if self.telling is not None:
            dtype = self._exported_dtype()  # an export in another dtype may have been converted, so it refutes nothing
            if "dtype" not in run and not isinstance(dtype, Unobserved) and dtype == self.values.get("dtype"):
                run["dtype"] = dtype
            contradiction = self._lacks_checkpoint(self.telling.made or 0) or self._unlike_files(self.telling)
            if contradiction is not None:
                run["unlike_files"] = contradiction
        return run

    @propagates
    def _exported_dtype(self) -> str:
        """The dtype of the export's tensors, if the output does not state it."""
        weights = self._weights(self._export, self.trainer.files.export_prefix)
        return "+".join(sorted({str(weight.dtype).removeprefix("torch.") for weight in weights.values()}))

    def _lacks_checkpoint(self, made_steps: int) -> str:
        """Why the newest checkpoint, or the last one requested, is unusable; empty if it is usable."""
        steps, every = propagates(self.weight_files.by_step)(), self.values.get("checkpoint_every")
        if isinstance(steps, Unobserved):
            return ""
        is_asked = self.shows_device and "checkpoint_every" in self.trainer.placeholders()
        last = made_steps - made_steps % every if is_asked and every else 0
        if last and last not in steps:
            return f"it was asked for a checkpoint every {every} steps, and there is none of step {last}"
        weights = propagates(self._weights)(steps[max(steps)], self.trainer.files.prefix) if steps else None
        return weights.why.replace(f"{self.directory}/", "") if isinstance(weights, Unobserved) else ""

    def _unlike_files(self, telling: Telling) -> str | None:
        """The statements of the output that the files contradict; empty if none, None if they cannot be compared."""
        compared = False
        with contextlib.suppress(NotObserved):
            steps = self.weight_files.by_step()
            if telling.told_steps is not None and steps:
                compared = True
                if max(steps) > telling.told_steps + 1:
                    return f"it tells of {telling.told_steps} steps in all, and there is a checkpoint of {max(steps)}"
        unmoved, made = self.unmoved(), telling.made or 0
        if isinstance(unmoved, Unobserved) or made < _FEWEST_STEPS:
            return "" if compared else None
        first = self._weights(self._initial, self.trainer.files.initial_prefix)
        if len(unmoved) == len(self.weight_files.moving(first)):
            return f"it tells of {made} steps, and the export holds the weights of {self._initial}"
        return ""

    def must_dump(self) -> None:
        """Raise NotObserved if the TOML file names no dumps of steps."""
        if not self.trainer.dumps.files:
            raise NotObserved(f"{self.trainer.path.name} names no dumps of steps; say in /dump where they are")

    def dumps(self) -> list[Path]:
        """The files of the dumped steps, in order."""
        return directory.dumps(self.trainer, self.values)

    def dump(self, path: Path) -> DumpedStep:
        """A dumped step, with the tensor names of the evaluated model. Raises NotObserved if it cannot be read."""
        if self._newest is None or self._newest[0] != path:
            self._newest = path, read_dump(path, self.trainer.dumps)
        return self._newest[1]

    def adapters(self) -> Adapters | None:
        """The base weights and the scale for a run that trains adapters.

        Raises:
            NotObserved: there is no initial file, or it cannot be read.
        """
        scale = self.trainer.dumps.adapters
        return (
            None if scale is None else Adapters(self._weights(self._initial, self.trainer.files.initial_prefix), scale)
        )

    def _merged(self, adapters: Adapters, trained: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The weights with adapters merged. A saved tensor that equals the merged one to rounding replaces it."""
        steps = propagates(self.weight_files.by_step)()
        path = None if isinstance(steps, Unobserved) else steps.get(self.step)
        saved = propagates(self._weights)(path or self._export, self.trainer.files.prefix)
        try:
            merged = adapters.merged(trained)
        except NotTheModel as error:
            raise NotObserved(str(error)) from error
        own = {} if isinstance(saved, Unobserved) else saved
        return {name: _to_rounding(own.get(name), weight, adapters.base[name]) for name, weight in merged.items()}

    @propagates
    def optimizer_state(self) -> Mapping[str, Mapping[str, Tensor]]:
        """The optimizer's slots after step k, from its dump, with the tensor names of the evaluated model."""
        self.must_dump()
        dumps = self.dumps()
        if self.trainer.dumps.adapters is not None:
            raise NotObserved("the slots are those of adapters, which are merged into the weights")
        if not 0 < self.step <= len(dumps):
            raise NotObserved(f"{self.trainer.name} dumped no step {self.step}")
        return self.dump(dumps[self.step - 1]).after.slots

    def config_file(self) -> str:
        """The config.json that the TOML file names; empty if it names none."""
        text = self.trainer.models.config
        return self.filled(text) if text and self.trainer.has_values(text, self.values) else ""

    def _left_every_step(self) -> bool:
        dumps = self.dumps()
        return super()._left_every_step() or bool(dumps and self.telling and len(dumps) == self.telling.made)

    @propagates
    def student_weights(self) -> Mapping[str, Tensor]:
        """Before the first step, the weights of the initial file; after step k, those of its dump or its checkpoint."""
        files = self.trainer.files
        if self.step == 0:
            if not files.initial or not self.trainer.has_values(files.initial, self.values):
                raise NotObserved(f"{self.trainer.path.name} names no file with the student before its first step")
            return self._weights(Path(self.filled(files.initial)), files.initial_prefix)
        dumps = self.dumps()
        if 0 < self.step <= len(dumps) and ((adapters := self.adapters()) or not files.frozen):
            trained = self.dump(dumps[self.step - 1]).after.weights
            return trained if adapters is None else self._merged(adapters, trained)
        path = self.weight_files.by_step().get(self.step)
        if path is None:
            last = f"step {self.step}" if self.step > 0 else "the last step, which its output does not tell"
            raise NotObserved(f"{self.trainer.name} left no checkpoint of {last}; ask for one of each")
        return self._weights(path, files.prefix)

    _newest: tuple[Path, DumpedStep] | None = None
    _has_ended = False
    _models: Mapping[str, NamedModel] = {}

    def _run(self, telling: Telling, no_log: str = "") -> Run:
        """What the run reports about itself.

        Args:
            no_log: why its output is unknown; empty if it is known.
        """
        losses = telling.losses
        unreported = no_log or telling.unseen
        if not unreported and len(losses) != telling.steps:
            unreported = f"the output tells of {telling.steps} steps and of {len(losses)} losses"
        losses = losses or [loss for loss in (telling.initial_loss, telling.final_loss) if loss is not None]
        self.step = telling.made or -1
        self._has_ended = True
        return Run(
            steps=_reported(telling.made or 0, unreported),
            losses=_reported(tuple(losses), unreported),
            checkpoints=self._stated_checkpoints(telling),
            export=self._export,
            failed_saves=telling.failed_saves,
            unreported=unreported,
            is_heard=True,
        )

    @propagates
    def _stated_checkpoints(self, telling: Telling) -> tuple[Path, ...]:
        """The checkpoints that its output names, by path or by step."""
        if not any(rule.kind is EventKind.CHECKPOINT for rule in self.trainer.lines):
            raise NotObserved("the output does not tell of checkpoints")
        by_step = directory.checkpoints(self.trainer, self.values)
        return tuple(
            by_step.get(int(text[:18]), Path(text)) if text.isdecimal() else Path(text) for text in telling.checkpoints
        )

    def _weights(self, path: Path, prefix: str) -> Mapping[str, Tensor]:
        if not path.exists():
            when = " before the run starts" if self.step == 0 else ""
            raise NotObserved(f"there is no {path}{when}, which should hold the weights of step {self.step}")
        try:
            weights, _ = read_weights(path, prefix)
        except Unreadable as error:
            when = " before the run starts" if self.step == 0 else ""
            raise NotObserved(f"{path}, the weights of step {self.step}, cannot be read{when}: {error}") from error
        if not weights:
            raise NotObserved(f"{path} holds no tensor{f' named {prefix}…' if prefix else ''}")
        return weights


def _to_rounding(saved: Tensor | None, merged: Tensor, base: Tensor) -> Tensor:
    """The saved tensor if it equals the merged one to rounding, else the merged one in the dtype of the base."""
    if saved is not None and saved.shape == merged.shape:
        largest = float(torch.maximum(merged.abs(), base.double().abs()).max())
        if float((saved.double() - merged).abs().max()) <= _MERGE_ROUNDINGS * torch.finfo(saved.dtype).eps * largest:
            return saved
    return merged.to(base.dtype)


@propagates
def _reported(value: T, unreported: str) -> T:
    """A reported value, or reported losses; hidden if a step was not reported."""
    if unreported and not value:
        raise NotObserved(unreported)
    return value


class Command(_Trainer, CommandRun):
    """A trainer that the harness runs."""

    def distill(self, on_step: OnStep) -> Run:
        return self._run(self.listen(on_step))


class Recorded(_Trainer, RecordedRun):
    """A finished run, in the directory that the parameter `dir` names."""

    def distill(self, on_step: OnStep) -> Run:
        return self._run(self.listen(on_step), self.no_logs())
