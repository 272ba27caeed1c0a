"""F-DISTILL-DATA-001: every step trains on training text that the stated sampler draws, and on nothing else."""

import math
import random
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from falsifiers.distill.dumped_batches import examine_batches, gap
from falsifiers.distill.measuring.held_out import divergence
from falsifiers.distill.measuring.largest import largest
from falsifiers.distill.measuring.teacher_cache import SMALL, measure_teacher_cache
from falsifiers.distill.oracle.answers import IndependentModel
from falsifiers.distill.oracle.corpus import Text, Tokens, draw
from falsifiers.distill.oracle.rows import Place, places
from falsifiers.distill.oracle.teacher import trained_teacher
from falsifiers.distill.running.further_subjects import setting_of
from falsifiers.distill.running.shown import not_refused, shown
from falsifiers.distill.running.training import StepWatch, train
from falsifiers.distill.subject import Shadowed
from harness import NotObserved, Trial, first_observed, for_external, propagates

_STEPS_ELSEWHERE = 50

_HELD_OUT_SEED = 30_303  # tokens of the text on which teachers are compared

Rows = npt.NDArray[np.int64]


@for_external(examine_batches)
def falsify(trial: Trial[Shadowed]) -> None:
    """Find the rows of many batches in the text. Then train, and check which rows the student reads."""
    parameters = trial.parameters
    text = Text.read(parameters, trial.cache)
    steps = list(range(1, parameters["batches"] + 1))
    random.Random(trial.seed).shuffle(steps)  # noqa: S311
    seen = dict(sorted((step, _batch(trial, step, text)) for step in steps))
    shape = (parameters["batch"], parameters["sequence"])
    whole = {
        step: _rows(inputs, labels)
        for step, (inputs, labels) in seen.items()
        if inputs.shape == labels.shape == shape and inputs.dtype == labels.dtype == torch.int64
    }
    stated = {step: draw(text.training, (2 * trial.seed + 1, step), *shape) for step in seen}
    trial.measure(
        batches=len(seen),
        misshapen=sorted(seen.keys() - whole.keys()),
        wrong_labels=[step for step, (inputs, labels) in seen.items() if not _next(inputs, labels)],
        not_as_stated=[step for step, batch in seen.items() if not all(map(torch.equal, batch, stated[step]))],
    )
    _find(trial, text, whole, np.concatenate([_rows(*batch) for batch in stated.values()]))
    _ask_elsewhere(trial)
    small_teacher = measure_teacher_cache(trial)
    reads = _Reads()
    with reads:
        training = train(trial, lambda trial: _Watch(trial, reads, seen))
    with trial.subject_fault():
        teacher = shown(trial.subject, "teacher_weights")
    trial.measure(
        teacher_divergence=_largest_divergence(teacher, small_teacher, trial, text),
        changed=training.watch.changed,
        read_otherwise=_if_any_was_read(training.watch.read_otherwise, reads),
    )


def _batch(trial: Trial[Shadowed], step: int, text: Text) -> tuple[Tensor, Tensor]:
    """Copies of a step's inputs and labels on the CPU."""
    parameters = trial.parameters
    with trial.subject_fault():
        inputs, labels = not_refused(
            lambda: shown(trial.subject, "batch", step),
            alike=lambda: draw(text.training, (trial.seed,), parameters["batch"], parameters["sequence"]),
        )
        return inputs.to("cpu", copy=True), labels.to("cpu", copy=True)


def _ask_elsewhere(trial: Trial[Shadowed]) -> None:
    """Ask other subjects for batches of unusual texts: few blocks, long lines, no final line end.

    Their last training block has room for no row, one row, or two.
    """
    sequence = trial.parameters["sequence"]
    trial.measure(
        not_as_stated_elsewhere=sorted(
            {step for tail in range(sequence, sequence + 3) for step in _not_as_stated(trial, tail)}
        )
    )


def _not_as_stated(trial: Trial[Shadowed], tail: int) -> list[int]:
    """The steps whose batch is not the stated one, for a text that ends in a block of `tail` bytes."""
    path = trial.workspace / f"long_lines_{tail}.txt"
    lines = [f"line {number}\n" * 60 + "x y" * (number**2 % 9973) + "\n" for number in range(105)]
    path.write_text("".join(lines) + (string.digits * tail)[:tail])
    setting = setting_of(trial, f"elsewhere-{tail}", corpus=str(path), tokenizer="bytes")
    parameters, steps = setting.parameters, range(1, _STEPS_ELSEWHERE + 1)
    text = Text.read(parameters, trial.cache)
    with trial.subject_fault():
        further = type(trial.subject)(setting)
        seen = [tuple(part.cpu() for part in shown(further, "batch", step)) for step in steps]
    seeds = [(2 * trial.seed + 1, step) for step in steps]
    stated = [draw(text.training, seed, parameters["batch"], parameters["sequence"]) for seed in seeds]
    return [step for step, *pair in zip(steps, seen, stated, strict=True) if not all(map(torch.equal, *pair))]


def _next(inputs: Tensor, labels: Tensor) -> bool:
    """Whether every label but the last of a row is the next input."""
    return inputs.shape == labels.shape and torch.equal(inputs[:, 1:], labels[:, :-1])


def _rows(inputs: Tensor, labels: Tensor) -> Rows:
    """The rows of a batch [batch, sequence + 1]: the inputs and the last label."""
    rows: Rows = torch.cat([inputs, labels[:, -1:]], dim=1).numpy()
    return rows


def _find(trial: Trial[Shadowed], text: Text, whole: Mapping[int, Rows], stated: Rows) -> None:
    """Find each row in the text, and compare the distribution of their positions with the stated sampler's."""
    steps = [step for step, rows in whole.items() for _ in rows]
    rows = np.concatenate([*whole.values(), stated])
    positions, held_out = places(rows, text.training), places(rows[: len(steps)], text.held_out)
    lost = [(step, other) for step, place, other in zip(steps, positions, held_out, strict=False) if place is None]
    spread = [None if place is None else _shares(place, text.training, rows.shape[1]) for place in positions]
    seen, expected = ([place for place in part if place] for part in (spread[: len(steps)], spread[len(steps) :]))
    trial.measure(
        foreign_rows=sorted({step for step, other in lost if other is None}),
        held_out_rows=sorted({step for step, other in lost if other is not None}),
        repeated_share=max(0.0, _repeated(rows[: len(steps)]) - _repeated(stated)),
        position_gap=gap([position for position, _ in seen], [position for position, _ in expected]),
        offset_gap=gap([offset for _, offset in seen], [offset for _, offset in expected]),
    )


def _largest_divergence(
    teacher: Mapping[str, Tensor], small_teacher: Mapping[str, Tensor], trial: Trial[Any], text: Text
) -> float:
    """The larger divergence of two teachers: the trial's, and a small one with two steps.

    Only in the small one does the last step change much.
    """
    small = {**trial.parameters, **SMALL}
    large = _teacher_divergence(teacher, trial.parameters, text, trial)
    return first_observed(
        _larger(large, _teacher_divergence(small_teacher, small, Text.read(small, trial.cache), trial)), large
    )


@propagates
def _larger(first: float, second: float) -> float:
    return max(first, second)


@propagates
def _teacher_divergence(
    teacher: Mapping[str, Tensor], parameters: Mapping[str, Any], text: Text, trial: Trial[Any]
) -> float:
    """KL(stated teacher || teacher) on held-out text, in nats per token; infinite if the weights do not fit."""
    device = torch.device(trial.device)
    inputs, _ = draw(text.held_out, (_HELD_OUT_SEED,), parameters["batch"], parameters["sequence"])
    model, stated = IndependentModel(parameters, trial.device), trained_teacher(parameters, text, device, trial.cache)
    divergences = []
    for row in inputs.to(device).split(1):
        expected, seen = model.answer(stated, row), model.answer(teacher, row)
        if expected is None or seen is None:
            return math.inf
        divergences.append(float(divergence(expected.logits, seen.logits, 1.0)))
    return largest([0.0, fmean(divergences)])  # for equal teachers, rounding may give a negative value


def _repeated(rows: Rows) -> float:
    """The share of rows that repeat an earlier row."""
    return 1 - len({row.tobytes() for row in rows}) / len(rows) if len(rows) else 0.0


def _shares(place: Place, blocks: Sequence[Tokens], length: int) -> tuple[float, float]:
    """The start of a row as two shares: its block among all blocks, and its position in the block."""
    block, start = place
    offset = start / (len(blocks[block]) - length + 1)
    return (block + offset) / len(blocks), offset


class _Reads(TorchFunctionMode):
    """Records the token ids that are looked up in a student's weights: the rows that the student really reads."""

    def __init__(self) -> None:
        super().__init__()
        self.of: set[int] = set()
        self.ids: list[Tensor] = []
        self.count = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the function, and record the ids of an embedding lookup."""
        if func is torch.nn.functional.embedding:
            self._note(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _note(self, input: Tensor, weight: Tensor, *_: Any, **__: Any) -> None:  # noqa: A002 - torch's own name
        if weight.data_ptr() in self.of:
            self.ids.append(input.detach().to("cpu", copy=True))
            self.count += 1


class _Watch(StepWatch):
    """Compares the rows that each step reads with the rows of the batch that the subject shows.

    Attributes:
        changed: steps whose batch differs from the batch shown before the training.
        read_otherwise: steps in which the student reads other rows than those of the batch.
    """

    def __init__(self, trial: Trial[Any], reads: _Reads, shown: Mapping[int, tuple[Tensor, Tensor]]) -> None:
        super().__init__(trial)
        self._reads = reads
        self._shown = shown
        self.changed: list[int] = []
        self.read_otherwise: list[int] = []
        reads.of = {weight.data_ptr() for weight in trial.subject.student_weights().values()}

    def __call__(self, step: int, **values: float) -> None:
        super().__call__(step, **values)
        inputs, labels = self._trial.subject.batch(self.steps)
        with self._trial.falsifier_fault():
            batch = inputs.cpu(), labels.cpu()
            if self.steps in self._shown and not all(map(torch.equal, batch, self._shown[self.steps])):
                self.changed.append(self.steps)
            read = Counter(tuple(row) for ids in self._reads.ids for row in ids.tolist())
            if read != Counter(map(tuple, batch[0].tolist())):
                self.read_otherwise.append(self.steps)
            self._reads.ids.clear()


@propagates
def _if_any_was_read(steps: list[int], reads: _Reads) -> list[int]:
    if not reads.count:
        raise NotObserved("the student's embedding is not looked up through torch.nn.functional.embedding")
    return steps
