"""Random interactions, initial weights and recipes for the claims about pipelines; equal seeds give equal ones.

Rows of tables follow Zipf's law, so that consecutive batches share frequent rows: a stale row shows. All batches of a
case have tensors of equal sizes, divided into users of unequal ones, so that the memory of one batch fits another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from falsifiers.recsys.streams import LONG
from falsifiers.recsys.training_subject import Batch, Recipe

ACTIONS, TASKS = 4, 2
_EXPONENT = 1.1
"""The exponent of Zipf's law."""
_SPREAD, _LARGE = 2_654_435_761, 2**61 - 1
"""Constants for ids of dynamic tables: different rows have different ids, far apart."""


@dataclass(frozen=True)
class Case:
    """One training run.

    Attributes:
        slow: the slow stream, as in `streams_on`. LONG is for the CPU, even if other cases run on a GPU.
        contextual: the number of contextual features.
        candidates: the mean number of candidates of a user; 0 if the history itself is ranked.
        tables: "static", "dynamic", or "distinct": static, and no batch has a row twice. Then every odd batch has only
            rows of the lower half, so that all rows of the next batch are above them.
    """

    slow: str
    optimizer: str
    attention: str
    contextual: int
    candidates: int
    tables: str
    seed: int

    @staticmethod
    def read(words: str, seed: int) -> Case:
        """Parse all fields but the seed, in their order, such as `compute adam dense 2 4 static`."""
        slow, optimizer, attention, contextual, candidates, tables = words.split()
        return Case(slow, optimizer, attention, int(contextual), int(candidates), tables, seed)

    def place(self, device: str) -> str:
        """Return the device of the training, given the device of the trial."""
        return "cpu" if self.slow == LONG else device


def recipe(case: Case, parameters: Mapping[str, Any]) -> Recipe:
    """Return the model and its training."""
    rows = (*[parameters["rows"] // 8] * case.contextual, parameters["rows"])
    return Recipe(
        rows=rows, width=parameters["width"], layers=parameters["layers"], heads=parameters["heads"],
        head_width=parameters["head_width"], scaling_seqlen=parameters["history"] // parameters["users"] * 2,
        attention="fused" if case.attention == "fused" else "dense",
        optimizer="adam" if case.optimizer == "adam" else "sgd", dynamic=case.tables == "dynamic",
        rate=0.005 if case.optimizer == "adam" else 0.5,
    )  # fmt: skip


def weights(of: Recipe, seed: int) -> dict[str, Tensor]:
    """Draw initial weights: in float64, or in float32 if attention is fused."""
    chance = torch.Generator().manual_seed(seed)
    dtype = torch.float32 if of.attention == "fused" else torch.float64
    inner = of.heads * of.head_width
    drawn: dict[str, Tensor] = {}

    def draw(name: str, *shape: int, size: float) -> None:
        drawn[name] = (size * torch.randn(shape, generator=chance, dtype=torch.float64)).to(dtype)

    def affine(name: str, outputs: int, inputs: int) -> None:
        draw(f"{name}.weight", outputs, inputs, size=inputs**-0.5)
        draw(f"{name}.bias", outputs, size=0.1)

    def norm(name: str, width: int) -> None:
        draw(f"{name}.weight", width, size=0.1)
        drawn[f"{name}.weight"] += 1.0
        draw(f"{name}.bias", width, size=0.1)

    for number, rows in enumerate(of.rows):
        draw(f"tables.{number}", rows, of.width, size=0.5)
    draw("actions", ACTIONS, of.width, size=0.5)
    for number in range(of.layers):
        norm(f"layers.{number}.norm", of.width)
        affine(f"layers.{number}.into", 4 * inner, of.width)
        norm(f"layers.{number}.norm_out", inner)
        affine(f"layers.{number}.out", of.width, inner)
    affine("head.0", of.width, of.width)
    affine("head.1", TASKS, of.width)
    return drawn


def batches(of: Recipe, case: Case, parameters: Mapping[str, Any], count: int, device: str) -> list[Batch]:
    """Draw batches, in page-locked memory if the device is a GPU."""
    chance = torch.Generator().manual_seed(case.seed)
    drawn = [_batch(of, case, parameters, chance, number) for number in range(count)]
    if torch.device(device).type != "cuda":
        return drawn
    return [
        Batch({name: tensor.pin_memory() for name, tensor in batch.tensors.items()}, batch.longest) for batch in drawn
    ]


def _batch(of: Recipe, case: Case, parameters: Mapping[str, Any], chance: torch.Generator, number: int) -> Batch:
    users, tables = parameters["users"], len(of.rows)
    history = _split(parameters["history"], users, chance)
    targets = _split(case.candidates * users, users, chance) if case.candidates else torch.zeros(users).long()
    present = torch.zeros(users * case.contextual, dtype=torch.bool)
    present[torch.randperm(users * case.contextual, generator=chance)[: users * case.contextual * 3 // 4]] = True
    present = present.view(users, case.contextual)
    kinds, ranked_kind = [], int(case.candidates > 0)
    for user in range(users):
        seen = torch.full((int(history[user] + targets[user]),), tables - 1)
        kinds.append(torch.cat([present[user].nonzero()[:, 0], seen]))
    lengths = torch.tensor([len(kind) for kind in kinds])
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    table = torch.cat(kinds)
    candidate = torch.cat([torch.arange(n) >= n - t for n, t in zip(lengths, targets, strict=True)])
    is_history = (table == tables - 1) & ~candidate
    ids = torch.empty_like(table)
    for place, rows in enumerate(of.rows):
        count = int((table == place).sum())
        if case.tables == "distinct":
            drawn = torch.randperm(rows if number % 2 else rows // 2, generator=chance)[:count]
        else:
            drawn = _zipf(count, rows, chance)
        ids[table == place] = drawn
    actions = torch.randint(1, ACTIONS, table.shape, generator=chance) * is_history
    ranked = (candidate if ranked_kind else is_history).nonzero()[:, 0]
    liked = 0.2 + 0.6 * (ids[ranked] % 2)[:, None].expand(-1, TASKS)
    labels = (torch.rand(liked.shape, generator=chance) < liked).to(
        torch.float32 if of.attention == "fused" else torch.float64
    )
    tensors = {
        "ids": ids * _SPREAD % _LARGE if of.dynamic else ids, "tables": table, "actions": actions, "offsets": offsets,
        "contextuals": present.sum(1), "ranked": ranked, "labels": labels,
    }  # fmt: skip
    if case.candidates:
        tensors["targets"] = targets
    return Batch(tensors, int(lengths.max()))


def _split(total: int, parts: int, chance: torch.Generator) -> Tensor:
    cuts = torch.randperm(total - 1, generator=chance)[: parts - 1].sort().values + 1
    return torch.cat([torch.tensor([0]), cuts, torch.tensor([total])]).diff()


def _zipf(count: int, rows: int, chance: torch.Generator) -> Tensor:
    """Draw rows; the frequent ones are spread over the table."""
    if not count:
        return torch.empty(0, dtype=torch.int64)
    share = torch.arange(1, rows + 1, dtype=torch.float64) ** -_EXPONENT
    return torch.multinomial(share, count, replacement=True, generator=chance) * 7 % rows
