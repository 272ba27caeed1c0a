"""F-DISTILL-DATA-001 in part, for a trainer in another process that dumps its batches.

The trainer draws its batches from the text that its TOML file names, by an unknown rule. Each row is decoded and
searched in the bytes of that text. The rows are compared with equally many rows at uniform positions of the text.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from falsifiers.distill.dumped_step import DumpedRun
from falsifiers.distill.measuring.named_models import NamedText
from harness import NotObserved, Trial, Unobserved, propagates

_FEWEST_ROWS = 1000
"""The least number of rows of one epoch for which repeats are counted; see the contract's notes."""
_EVEN = 0.1
"""The contract's bound of `position_gap`."""

_INSIDE = (
    "held_out_rows", "offset_gap", "not_as_stated", "not_as_stated_elsewhere", "changed", "read_otherwise",
    "teacher_divergence", "unchanged_by", "damage",
)  # fmt: skip

Row = tuple[int, ...]


def examine_batches(trial: Trial[Any]) -> None:
    """Train, and check the batch of each dumped step."""
    parameters = trial.parameters
    run = DumpedRun(trial)
    text = trial.subject.named_text()
    shape = (parameters["batch"], parameters["sequence"])
    steps: list[int] = []
    rows: list[Row] = []
    misshapen, wrong_labels, foreign_rows, starts = [], [], [], []
    for number, (inputs, labels) in enumerate(run.batches(), start=1):
        if not (inputs.shape == labels.shape and _fits(inputs, shape)):
            misshapen.append(number)
        if not _next(inputs, labels):
            wrong_labels.append(number)
        batch_rows = list(_rows(inputs, labels))
        positions = [text.find(row) for row in batch_rows]
        if None in positions:
            foreign_rows.append(number)
        starts += [start for start in positions if start is not None]
        rows += batch_rows
        steps.append(number)
    even = _evenly(text, trial.seed, len(rows), parameters["sequence"] + 1)
    places = [start for start in map(text.find, even) if start is not None]
    trial.measure(
        batches=_counted(len(steps), parameters["batches"]),
        misshapen=misshapen,
        wrong_labels=wrong_labels,
        foreign_rows=foreign_rows,
        repeated_share=_repeated(rows, even, text.tokens // parameters["sequence"]),
        position_gap=_position_gap(starts, places, len(rows) * parameters["sequence"], text.tokens),
        **dict.fromkeys(_INSIDE, Unobserved("the trainer draws its batches by a rule of its own, which is not stated")),
    )


@propagates
def _counted(count: int, expected: int) -> int:
    if count < expected:
        raise NotObserved(f"it dumped {count} steps, and the claim checks {expected}; add -P steps={expected}")
    return count


def _fits(inputs: Tensor, shape: tuple[int, int]) -> bool:
    """Whether a batch has the configured shape. If the labels are the inputs, the last token of a row is no input."""
    rows, length = shape
    return inputs.ndim == 2 and len(inputs) == rows and inputs.shape[1] in (length, length - 1)


def _next(inputs: Tensor, labels: Tensor) -> bool:
    """Whether every label but the last of a row is the next input. Negative labels are ignored."""
    if inputs.shape != labels.shape:
        return False
    next_inputs, next_labels = inputs[:, 1:], labels[:, :-1]
    return bool(((next_inputs == next_labels) | (next_labels < 0)).all())


def _rows(inputs: Tensor, labels: Tensor) -> Iterator[Row]:
    """The rows of a batch: the inputs, and the last label unless it is negative."""
    for row, last in zip(inputs.tolist(), labels[:, -1].tolist(), strict=True):
        yield (*row, last) if last >= 0 else tuple(row)


@propagates
def _repeated(rows: Sequence[Row], even: Sequence[Row], epoch: int) -> float:
    """The share of repeated rows within the first epoch, minus the same share of `even`; at least 0."""
    if (size := min(len(rows), epoch)) < _FEWEST_ROWS:
        raise NotObserved(f"the first epoch has {size} of {len(rows)} rows; {_FEWEST_ROWS} are needed to count repeats")
    shares = [1 - len(set(sample[:size])) / size for sample in (rows, even)]
    return max(0.0, shares[0] - shares[1])


@propagates
def _position_gap(starts: Sequence[int], even: Sequence[int], read: int, tokens: int) -> float:
    """The distance between the starts of the rows and uniform starts; hidden if the run is too short to reach all."""
    if not starts:
        raise NotObserved("no row is in the text that the trainer's file names")
    distance = gap(starts, even)
    if distance > _EVEN and read < tokens:
        raise NotObserved(f"the run reads {read} of the text's {tokens} tokens, so it need not reach all of its parts")
    return distance


def _evenly(text: NamedText, seed: int, count: int, length: int) -> list[Row]:
    """Rows at uniform positions of the text, which may contain repetitions."""
    begins = np.random.default_rng((2 * seed + 1,)).integers(max(1, text.tokens - length), size=count)
    return [text.stretch(int(begin), length) for begin in begins]


def gap(first: Sequence[float], second: Sequence[float]) -> float:
    """The Kolmogorov-Smirnov distance of two samples; 1 if one is empty."""
    if not first or not second:
        return 1.0
    points = np.concatenate([first, second])
    below = [np.searchsorted(np.sort(sample), points, side="right") / len(sample) for sample in (first, second)]
    return float(np.abs(below[0] - below[1]).max())
