"""Compares a table with its model: each lookup, step and dump is made with both."""

from __future__ import annotations

import copy
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from falsifiers.recsys.dynamic_tables import Recipe, Table, Tables
from falsifiers.recsys.oracle.dynamic_table import Entry, Model, owner_of
from harness import Trial

SPECIAL = (0, -1, 1, 5, 5 + (1 << 32), 5 - (1 << 63), -(1 << 63), (1 << 63) - 1, 1 << 31, -(1 << 31), -(1 << 32))
"""Keys that some tables use as a mark for "none", or that are equal in their lower or upper half."""
_KEPT, _MANY = 3, 17
_STATE = {"sgd": (), "adagrad": ("sum",), "rowwise_adagrad": ("sum",), "adam": ("m", "v")}


def chance_of(*words: object) -> random.Random:
    """Return a generator that is seeded by the words."""
    return random.Random(" ".join(map(str, words)))  # noqa: S311


def drawn_keys(chance: random.Random, number: int) -> list[int]:
    """Return distinct keys: small ones, 64-bit ones, and the special ones."""
    keys = set(chance.sample(SPECIAL, min(number, len(SPECIAL))))
    while len(keys) < number:
        keys.add(chance.randrange(-(1 << 63), 1 << 63) >> chance.choice((0, 0, 40)))
    return chance.sample(sorted(keys), number)


def laid(keys: Sequence[int], turn: int, device: str) -> Tensor:
    """Return keys on a device in one of three layouts: contiguous, at an odd address, or strided."""
    if turn % 3 == 1:
        return torch.tensor([0, *keys], device=device)[1:]
    tensor = torch.tensor(keys, dtype=torch.int64, device=device)
    return torch.stack([tensor, ~tensor], 1)[:, 0] if turn % 3 == 2 else tensor


@dataclass
class TableErrors:
    """The errors since the last `taken`.

    Attributes:
        value_error, state_error: the largest relative error of a row; 1 if a returned row changes later.
        absent: nonzero rows of keys that are absent, or found no slot.
        survivors: keys that are wrongly present or wrongly absent.
        sizes, capacities: how often they were wrong.
        scores: keys of a dump with a wrong score.
        keys: keys or tensors that a dump lacks, or has in excess.
        increments: the same for a dump of keys since a score.
        bits: tensors of a loaded table that differ from the dumped ones.
        hot: evicted keys with many occurrences.
    """

    value_error: float = 0.0
    state_error: float = 0.0
    absent: int = 0
    survivors: int = 0
    sizes: int = 0
    capacities: int = 0
    scores: int = 0
    keys: int = 0
    increments: int = 0
    bits: int = 0
    hot: int = 0

    @property
    def clean(self) -> bool:
        """Whether there are no errors beyond roundings, so that later steps are meaningful."""
        return all(getattr(self, field.name) <= 1e-5 for field in fields(self))

    def add(self, other: TableErrors) -> None:
        for quantity in fields(self):
            join = max if quantity.name.endswith("error") else sum
            setattr(self, quantity.name, join((getattr(self, quantity.name), getattr(other, quantity.name))))


@dataclass
class Watch:
    """A subject's table with its model.

    Attributes:
        seen: every key of a training lookup.
        errors: the errors so far.
        refilled: whether an evaluation was repeated in the same memory.
        given: rows of the last calls, each with a copy.
        last_keys: the keys of the last training lookup.
    """

    fault: Callable[[], AbstractContextManager[None]]
    recipe: Recipe
    device: str
    chance: random.Random
    table: Table
    model: Model
    seen: set[int] = field(default_factory=set)
    errors: TableErrors = field(default_factory=TableErrors)
    refilled: bool = False
    given: deque[tuple[Tensor, Tensor]] = field(default_factory=lambda: deque(maxlen=_KEPT))
    last_keys: Tensor | None = None

    @staticmethod
    def of(trial: Trial[Tables], recipe: Recipe, chance: random.Random) -> Watch:
        """Return an empty table with its model. The seed is not 0, so that its effect shows."""
        recipe = replace(recipe, seed=trial.seed + 1)
        with trial.subject_fault():
            table = trial.subject.table(recipe, trial.device)
        return Watch(trial.subject_fault, recipe, trial.device, chance, table, Model(recipe))

    def loaded(self, trial: Trial[Tables], path: Path) -> Watch:
        """Return another table that has loaded a dump, with a copy of the model and of the generator."""
        other = Watch.of(trial, self.recipe, copy.deepcopy(self.chance))
        with trial.subject_fault():
            other.table.load(path)
        other.model, other.seen = copy.deepcopy(self.model), set(self.seen)
        other.count()
        return other

    def train(self, keys: Sequence[int], score: int | None = None) -> None:
        """Look keys up, compare, and make a step along a random direction.

        Gradients are multiples of 1/256, so that their sums are exact in float32, and zeros in each fifth step. The
        layouts of keys and gradients change from step to step; some keys are in the tensor of the step before.
        """
        turn = self.model.lookups
        generator = torch.Generator().manual_seed(self.chance.randrange(1 << 32))
        slopes = torch.randint(-256, 257, (len(keys), self.recipe.dim), generator=generator) / 256.0
        slopes *= turn % 5 != 4
        with self.fault():
            looked_up = laid(keys, turn, self.device)
            if turn % 4 == 3 and self.last_keys is not None and self.last_keys.shape == looked_up.shape:
                looked_up = self.last_keys.copy_(looked_up)
            self.last_keys = looked_up
            rows = self.table.train(looked_up, score)
            self._require(rows, keys)
        self.model.train(keys, score)
        self.compare(keys, rows.detach())
        self.seen.update(keys)
        if turn % 4 == 1:  # rows that are evaluated before the step and after it
            self.evaluate(keys)
        with self.fault():
            steep = slopes.to(self.device)
            rows.backward(steep.t().contiguous().t() if turn % 2 else steep)
        self.model.update(keys, slopes)
        if turn % 4 == 1:
            self.evaluate(keys)
        self.count()

    def evaluate(self, keys: Iterable[int]) -> None:
        """Look keys up without training, and compare; the first time also in reverse, in the same memory."""
        key_list = list(keys)
        given = laid(key_list, self.model.lookups, self.device)
        times, self.refilled = 1 if self.refilled else 2, True
        for _ in range(times):
            with self.fault():
                rows = self.table.evaluate(given)
                self._require(rows, key_list)
            self.compare(key_list, rows)
            key_list.reverse()
            given.copy_(given.flip(0))
        self.count()

    def compare(self, keys: Sequence[int], rows: Tensor, models: Sequence[Model] = ()) -> None:
        """Compare rows of keys with the model's, or all ranks' models; check that earlier rows are unchanged."""
        if not all(torch.equal(rows_then.detach(), before) for rows_then, before in self.given):
            self.errors.value_error = max(self.errors.value_error, 1.0)
        if not keys:
            return
        self.given.append((rows, rows.detach().clone()))
        models = models or [self.model]
        owners = [models[owner_of(key, len(models))] for key in keys]
        known = torch.tensor([key in owner.entries for owner, key in zip(owners, keys, strict=True)], dtype=torch.bool)
        right = torch.cat([owner.rows([key]) for owner, key in zip(owners, keys, strict=True)])
        actual = rows.double().cpu()
        nonzero = (actual != 0).any(dim=1)
        self.errors.absent += int((nonzero & ~known).sum())
        self.errors.survivors += int((nonzero != known).sum())
        self.errors.value_error = max(self.errors.value_error, self._error(actual[known], right[known]))

    def lose(self, hot: Sequence[int]) -> None:
        """Count absent hot keys."""
        with self.fault():
            rows = self.table.evaluate(torch.tensor(hot, device=self.device))
        self.errors.hot += int((rows == 0).all(dim=1).sum())

    def same(self, dumped: Mapping[str, Tensor], other: Mapping[str, Tensor], but: Sequence[str] = ()) -> None:
        """Count tensors of two dumps that differ."""
        names = (dumped.keys() | other.keys()) - set(but)
        self.errors.bits += sum(
            name not in dumped or name not in other or not torch.equal(dumped[name], other[name]) for name in names
        )

    def repeat(self, keys: Sequence[int]) -> None:
        """Make more steps than small counters can count."""
        for _ in range(_MANY):
            self.train(keys)

    def count(self) -> None:
        with self.fault():
            size, capacity = self.table.size(), self.table.capacity()
        self.errors.sizes += size != len(self.model.entries)
        self.errors.capacities += capacity != self.model.capacity

    def dump(self, path: Path) -> dict[str, Tensor]:
        """Write a dump, compare its content, and return it in the order of keys."""
        dumped = self._dumped(path, None)
        self.compare_dump(dumped, self.model.entries)
        order = dumped["keys"].argsort() if "keys" in dumped else torch.empty(0, dtype=torch.int64)
        return {name: tensor if name == "counts" else tensor[order] for name, tensor in dumped.items()}

    def dump_since(self, path: Path, score: int, whole: dict[str, Tensor]) -> None:
        """Write a dump of the keys since a score of the model, and compare its content.

        Args:
            whole: a dump of all keys, which gives the table's value of a time.
        """
        threshold = score
        if self.recipe.scoring == "timestamp":
            names = dict(zip(whole["keys"].tolist(), whole["scores"].tolist(), strict=True))
            threshold = min(names[key] for key, entry in self.model.entries.items() if entry.score == score)
        dumped = self._dumped(path, threshold)
        before, self.errors.keys = self.errors.keys, 0
        right = {key: entry for key, entry in self.model.entries.items() if entry.score >= score}
        self.compare_dump(dumped, right)
        self.errors.increments += self.errors.keys
        self.errors.keys = before

    def compare_dump(self, dumped: dict[str, Tensor], entries: Mapping[int, Entry]) -> None:
        names = ["keys", "values", "scores", "counts", *(f"state.{name}" for name in _STATE[self.recipe.optimizer])]
        missing = [name for name in names if name not in dumped]
        self.errors.keys += len(missing)
        if missing or dumped["keys"].dtype != torch.int64:
            self.errors.keys += 1
            return
        keys = dumped["keys"].tolist()
        self.errors.keys += len(set(keys) ^ set(entries)) + len(keys) - len(set(keys))
        known = [place for place, key in enumerate(keys) if key in entries]
        if not known:
            return
        right = [entries[keys[place]] for place in known]
        self.errors.value_error = max(
            self.errors.value_error, self._error(dumped["values"][known], torch.stack([entry.value for entry in right]))
        )
        for name in _STATE[self.recipe.optimizer]:
            actual, true = dumped[f"state.{name}"][known], torch.stack([entry.state[name] for entry in right])
            wrong = _relative(actual.double().reshape(len(known), -1), true.reshape(len(known), -1), 1e-3)
            self.errors.state_error = max(self.errors.state_error, wrong)
        scores = dumped["scores"][known].tolist()
        true_scores = [entry.score for entry in right]
        if self.recipe.scoring == "timestamp":
            scores, true_scores = _ranks(scores), _ranks(true_scores)
        self.errors.scores += sum(score != other for score, other in zip(scores, true_scores, strict=True))

    def taken(self) -> TableErrors:
        """Return the errors, and start again without any."""
        findings, self.errors = self.errors, TableErrors()
        return findings

    def _error(self, actual: Tensor, right: Tensor) -> float:
        return _relative(actual.double(), right, self.recipe.rate / 16.0)

    def _dumped(self, path: Path, at_least: int | None) -> dict[str, Tensor]:
        """Write a dump and return its content, which must have one row per key, or none."""
        path.unlink(missing_ok=True)
        with self.fault():
            self.table.dump(path, at_least)
            dumped = load_file(path)
            keys, by_row = dumped.get("keys", torch.empty(0)), self.recipe.optimizer == "rowwise_adagrad"
            for name, tensor in dumped.items():
                narrow = name in ("keys", "scores") or (by_row and name == "state.sum")
                shape = (3,) if name == "counts" else (len(keys),) if narrow else (len(keys), self.recipe.dim)
                if tensor.shape != shape:
                    raise ValueError(f"a dump of {len(keys)} keys has {name} {tuple(tensor.shape)}, not {shape}")
        return dumped

    def _require(self, rows: Tensor, keys: Sequence[int]) -> None:
        if rows.shape != (len(keys), self.recipe.dim) or rows.dtype != torch.float32:
            raise ValueError(f"{rows.dtype} {tuple(rows.shape)} are no rows of {len(keys)} keys")


def _relative(actual: Tensor, right: Tensor, least: float) -> float:
    """Return the largest error of a row, relative to its largest number plus `least`; infinite if not finite."""
    if not actual.numel():
        return 0.0
    worst = ((actual - right).abs().amax(dim=1) / (right.abs().amax(dim=1) + least)).max()
    return float(worst) if bool(worst.isfinite()) else float("inf")


def _ranks(numbers: list[int]) -> list[int]:
    order = {number: rank for rank, number in enumerate(sorted(set(numbers)))}
    return [order[number] for number in numbers]
