"""F-PIPE-PARITY-001 and F-PIPE-CKPT-001: pipelines change when work is done, and nothing else.

Each stream is slow in some case, so that data without a wait are not ready. The expected values come from a plain loop
in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import torch
from torch import Tensor

from falsifiers.recsys.oracle.ranking import trained
from falsifiers.recsys.streams import COMPUTE, streams_on
from falsifiers.recsys.training_cases import Case, batches, recipe, weights
from falsifiers.recsys.training_subject import Batch, Kind, Outcome, Recipe, Run, Training
from harness import Trial

_RELATIVE, _ABSOLUTE = 1e-5, 1e-8
"""The tolerances of torch.allclose."""
_KINDS: Mapping[str, Kind] = {"none": "none", "native": "native", "prefetch": "prefetch"}
_AHEAD: Mapping[Kind, int] = {"native": 1, "prefetch": 2}
"""For each pipeline with overlap, the streams that run ahead of steps: of copies, and of rows."""


def falsify_parity(trial: Trial[Training]) -> None:
    """Train by each pipeline on equal batches, and plainly; compare every step, and what is left at the end."""
    steps = trial.parameters["steps"]
    lists: dict[str, list[float]] = {}
    for number, words in enumerate(trial.parameters["trainings"]):
        case = Case.read(words, 1000 * trial.seed + number)
        world = _World.of(trial, case, steps)
        right = trained(world.recipe, world.weights, world.batches, world.device)
        plain = _trained(trial, "none", world, "none")
        others = {kind: _trained(trial, kind, world, case.slow) for kind in _AHEAD}
        every = [plain, *others.values()]
        errors = {
            "steps_apart": float(sum(abs(len(run.outcomes) - steps) for run in every)),
            "bits_apart": float(sum(_apart(other, plain) for other in others.values())),
        }
        for name, actual, truth in (
            ("loss", [_losses(run.outcomes) for run in every], _losses(right.outcomes)),
            ("logit", [_logits(run.outcomes) for run in every], _logits(right.outcomes)),
            ("weight", [_values(run.state, right.state) for run in every], list(right.state.values())),
        ):
            if case.attention == "dense":
                errors[f"{name}_errors"] = _worst(
                    _error(*pair) for values in actual for pair in zip(values, truth, strict=False)
                )
            elif name == "logit":
                errors["fused_errors"] = _worst(
                    _share(*pair) for values in actual for pair in zip(values[:1], truth, strict=False)
                )
        if case.slow == COMPUTE:
            errors["in_turn"] = float(sum(len(other.ahead) < _AHEAD[kind] for kind, other in others.items()))
        for name, value in errors.items():
            lists.setdefault(name, []).append(value)
        for step, outcome in enumerate(plain.outcomes if number == 0 else (), 1):
            trial.step(step, loss=float(outcome.loss))
        trial.measure(**lists)
    trial.measure(trainings=number + 1)
    trial.resolve(device=next(iter(plain.state.values())).device.type, steps=len(plain.outcomes))


def falsify_checkpoints(trial: Trial[Training]) -> None:
    """Train, save, load into another pipeline with other weights, and continue; the first run continues too."""
    before, after = trial.parameters["before"], trial.parameters["after"]
    lists: dict[str, list[float]] = {}
    for number, words in enumerate(trial.parameters["trainings"]):
        writing, reading, rest = words.split(maxsplit=2)
        case = Case.read(rest, 1000 * trial.seed + number)
        world = _World.of(trial, case, before + after)
        halves = [
            trained(world.recipe, world.weights, world.batches[:end], world.device) for end in (before, before + after)
        ]
        path = trial.workspace / f"checkpoint-{number}"
        with trial.subject_fault():
            writer = _begin(trial, _KINDS[writing], world, case.slow, world.weights)
            writer.train(world.batches, before)
            written = writer.state()
            writer.save(path)
            reader = _begin(trial, _KINDS[reading], world, case.slow, weights(world.recipe, trial.seed + 1))
            reader.load(path)
            read = reader.state()
            ends = []
            for run in (writer, reader):
                outcomes = run.train(world.batches, after + 1)  # the data end one step earlier
                outcomes += run.train(world.batches, 1)
                ends.append(_Trained(outcomes, run.state()))
        later = halves[1].outcomes[before:]
        errors = {
            "missing": float(len(halves[0].state.keys() - written.keys())),
            "saved_errors": _worst(map(_error, _values(written, halves[0].state), halves[0].state.values())),
            "loaded_apart": float(_states_apart(read, written)),
            "later_apart": float(_apart(ends[1], ends[0])),
            "loss_errors": _worst(map(_error, _losses(ends[1].outcomes), _losses(later))),
            "weight_errors": _worst(map(_error, _values(ends[1].state, halves[1].state), halves[1].state.values())),
        }
        for name, value in errors.items():
            lists.setdefault(name, []).append(value)
        trial.measure(**lists)
    trial.measure(trainings=number + 1)
    trial.resolve(device=next(iter(read.values())).device.type)


@dataclass(frozen=True)
class _World:
    """The common parts of all runs of a case."""

    recipe: Recipe
    weights: Mapping[str, Tensor]
    batches: Sequence[Batch]
    seed: int
    device: str

    @staticmethod
    def of(trial: Trial[Training], case: Case, count: int) -> _World:
        made = recipe(case, trial.parameters)
        device = case.place(trial.device)
        data = batches(made, case, trial.parameters, count, device)
        return _World(made, weights(made, trial.seed), data, case.seed, device)


@dataclass(frozen=True)
class _Trained:
    outcomes: list[Outcome]
    state: Mapping[str, Tensor]
    ahead: frozenset[str] = frozenset()


def _begin(trial: Trial[Training], kind: Kind, world: _World, slow: str, start: Mapping[str, Tensor]) -> Run:
    return trial.subject.begin(kind, world.recipe, start, streams_on(world.device, slow, world.seed))


def _trained(trial: Trial[Training], kind: Kind, world: _World, slow: str) -> _Trained:
    streams = streams_on(world.device, slow, world.seed)
    with trial.subject_fault():
        run = trial.subject.begin(kind, world.recipe, world.weights, streams)
        outcomes = run.train(world.batches, len(world.batches))
        return _Trained(outcomes, run.state(), streams.ahead())


def _losses(outcomes: Iterable[Outcome]) -> list[Tensor]:
    return [outcome.loss for outcome in outcomes]


def _logits(outcomes: Iterable[Outcome]) -> list[Tensor]:
    return [outcome.logits for outcome in outcomes]


def _values(state: Mapping[str, Tensor], names: Iterable[str]) -> list[Tensor]:
    """Return the tensors of these names; NaN for absent ones."""
    return [state.get(name, torch.tensor(math.nan)) for name in names]


def _apart(first: _Trained, second: _Trained) -> int:
    """Return how many tensors of outcomes and states have other bits, or are in only one of them."""
    pairs = zip_longest(first.outcomes, second.outcomes)
    return _states_apart(first.state, second.state) + sum(
        mine is None or its is None or not _same(mine.loss, its.loss) or not _same(mine.logits, its.logits)
        for mine, its in pairs
    )


def _states_apart(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> int:
    return sum(
        name not in first or name not in second or not _same(first[name], second[name]) for name in {*first, *second}
    )  # fmt: skip


def _same(first: Tensor, second: Tensor) -> bool:
    return first.dtype == second.dtype and torch.equal(first, second)


def _error(actual: Tensor, right: Tensor) -> float:
    """Return the largest error, in tolerances of torch.allclose."""
    if actual.numel() not in (1, right.numel()):
        return math.inf
    actual, right = actual.detach().double().cpu(), right.detach().double().cpu()
    return float(((actual - right).abs() / (_ABSOLUTE + _RELATIVE * right.abs())).max())


def _share(actual: Tensor, right: Tensor) -> float:
    """Return the largest error, relative to the largest number."""
    if actual.shape != right.shape:
        return math.inf
    actual, right = actual.detach().double().cpu(), right.detach().double().cpu()
    return float((actual - right).abs().max() / right.abs().max())


def _worst(errors: Iterable[float]) -> float:
    """Return the largest number; NaN counts as infinite."""
    return max((math.inf if math.isnan(error) else error for error in errors), default=0.0)
