"""The ranking model in float64: one user at a time, one tensor per table, one batch after the other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from falsifiers.recsys.oracle.hstu import mask
from falsifiers.recsys.subject import Question
from falsifiers.recsys.training_subject import Batch, Outcome, Recipe


@dataclass(frozen=True)
class Trained:
    """The outcome of each step, and the final weights, moments and counts, named as in `Run.state`."""

    outcomes: list[Outcome]
    state: dict[str, Tensor]


def trained(recipe: Recipe, weights: Mapping[str, Tensor], batches: Sequence[Batch], device: str) -> Trained:
    """Train on all batches, from given weights."""
    now = {name: weight.to(device, torch.float64, copy=True) for name, weight in weights.items()}
    first = {name: torch.zeros_like(tensor) for name, tensor in now.items()}
    second = {name: torch.zeros_like(tensor) for name, tensor in now.items()}
    outcomes = []
    seen: list[list[int]] = [[] for _ in recipe.rows]
    for number, batch in enumerate(batches, 1):
        given = {name: tensor.to(device) for name, tensor in batch.tensors.items()}
        if recipe.dynamic:
            given["ids"] = _rows(batch, seen).to(device)
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in now.items()}
        with torch.enable_grad():
            logits = _logits(recipe, leaves, given)
            signs = 2.0 * given["labels"].double() - 1.0
            loss = torch.log1p(torch.exp(-signs * logits)).mean()
            slopes = torch.autograd.grad(loss, list(leaves.values()))
        outcomes.append(Outcome(loss.detach(), logits.detach()))
        for (name, weight), slope in zip(list(now.items()), slopes, strict=True):
            rows: Tensor | slice = slice(None)
            if name.startswith("tables."):
                rows = given["ids"][given["tables"] == int(name.split(".")[1])].unique()
            if recipe.optimizer == "sgd":
                weight[rows] -= recipe.rate * slope[rows]
                continue
            (beta1, beta2), slope = recipe.betas, slope[rows]
            first[name][rows] = beta1 * first[name][rows] + (1.0 - beta1) * slope
            second[name][rows] = beta2 * second[name][rows] + (1.0 - beta2) * slope**2
            mean, square = first[name][rows] / (1.0 - beta1**number), second[name][rows] / (1.0 - beta2**number)
            weight[rows] -= recipe.rate * mean / (square.sqrt() + recipe.eps)
    state = dict(now)
    if recipe.optimizer == "adam":
        state |= {f"exp_avg.{name}": tensor for name, tensor in first.items()}
        state |= {f"exp_avg_sq.{name}": tensor for name, tensor in second.items()}
    if recipe.dynamic:
        state |= {f"keys.{table}": torch.tensor(ids, dtype=torch.int64) for table, ids in enumerate(seen)}
    count = torch.tensor(len(batches))
    return Trained(outcomes, {**state, "step": count, "position": count})


def _rows(batch: Batch, seen: list[list[int]]) -> Tensor:
    """Return each token's row: ids are numbered in the order of their first occurrence."""
    rows = []
    for table, key in zip(batch.tensors["tables"].tolist(), batch.tensors["ids"].tolist(), strict=True):
        if key not in seen[table]:
            seen[table].append(key)
        rows.append(seen[table].index(key))
    return torch.tensor(rows)


def _logits(recipe: Recipe, weights: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> Tensor:
    users = []
    for user, (start, end) in enumerate(pairwise(tensors["offsets"].tolist())):
        x = weights["actions"][tensors["actions"][start:end]]
        for table in range(len(recipe.rows)):
            of_table = (tensors["tables"][start:end] == table).nonzero()[:, 0]
            x = x.index_add(0, of_table, weights[f"tables.{table}"][tensors["ids"][start:end][of_table]])
        question = Question(
            x, x, x, x, tensors["offsets"], end - start, recipe.scaling_seqlen, recipe.head_width**-0.5, True,
            tensors.get("targets"), 1, tensors["contextuals"], 0, 0,
        )  # fmt: skip
        seen = mask(question, user, end - start)
        for number in range(recipe.layers):
            x = x + _layer(recipe, weights, f"layers.{number}.", x, seen)
        users.append(x)
    ranked = torch.cat(users)[tensors["ranked"]]
    inner = _affine(weights, "head.0", ranked)
    return _affine(weights, "head.1", inner * torch.sigmoid(inner))


def _layer(recipe: Recipe, weights: Mapping[str, Tensor], name: str, x: Tensor, seen: Tensor) -> Tensor:
    inner = _affine(weights, f"{name}into", _norm(weights, f"{name}norm", x))
    inner = inner * torch.sigmoid(inner)
    u, v, q, k = inner.view(len(x), 4, -1).unbind(1)
    parts = []
    for head in range(recipe.heads):
        columns = slice(head * recipe.head_width, (head + 1) * recipe.head_width)
        scores = q[:, columns] @ k[:, columns].T / recipe.head_width**0.5
        parts.append(seen * scores * torch.sigmoid(scores) / recipe.scaling_seqlen @ v[:, columns])
    return _affine(weights, f"{name}out", _norm(weights, f"{name}norm_out", torch.cat(parts, 1)) * u)


def _affine(weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def _norm(weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    scale = (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    return centred / scale * weights[f"{name}.weight"] + weights[f"{name}.bias"]
