"""A ranking model over embedding tables and HSTU layers, its backward pass, and its updates.

The tables are concatenated in one tensor. A step works on the distinct rows of its batch: they are found, gathered,
used, updated and written back. It reserves as many places as there are tokens, so that the host need not know the
number of distinct rows. Unused places hold a row of zeros after all tables, which never changes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, embedding, layer_norm, linear, silu

from falsifiers.recsys.reference.dense_attention import valid_pairs
from falsifiers.recsys.reference.hstu_attention import HstuMask, hstu_attention
from falsifiers.recsys.subject import Question
from falsifiers.recsys.training_subject import Outcome, Recipe

Here = dict[str, Tensor]
"""A batch on the device, with `unique`, `slot` and `rows` of its embeddings."""


@dataclass(frozen=True)
class Moment:
    """A moment of the gradients: of the concatenated tables, and of the dense weights by name."""

    table: Tensor
    dense: dict[str, Tensor]


class RankingModel:
    """Weights and optimizer on one device. Methods with a `Here` are work for a stream."""

    def __init__(self, recipe: Recipe, weights: Mapping[str, Tensor], device: str) -> None:
        self.recipe = recipe
        self.starts = torch.tensor([0, *recipe.rows]).cumsum(0)[:-1].to(device)
        self.total = sum(recipe.rows)
        tables = [weights[f"tables.{number}"] for number in range(len(recipe.rows))]
        self.table = torch.cat([*tables, tables[0].new_zeros(1, recipe.width)]).to(device)
        self.dense = {
            name: weight.to(device, copy=True).requires_grad_()
            for name, weight in weights.items()
            if not name.startswith("tables.")
        }
        self.updates = 0
        self.keys: list[dict[int, int]] = [{} for _ in recipe.rows if recipe.dynamic]
        self.moments = [
            Moment(
                torch.zeros_like(self.table), {name: torch.zeros_like(tensor) for name, tensor in self.dense.items()}
            )
            for _ in range(2 if recipe.optimizer == "adam" else 0)
        ]

    def placed(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return a batch on the host with rows instead of the ids of dynamic tables."""
        if not self.keys:
            return dict(tensors)
        rows = []
        for table, key in zip(tensors["tables"].tolist(), tensors["ids"].tolist(), strict=True):
            keys = self.keys[table]
            rows.append(keys.setdefault(key, len(keys)))
        ids = torch.tensor(rows)
        return {**tensors, "ids": ids.pin_memory() if tensors["ids"].is_pinned() else ids}

    def find(self, here: Here) -> None:
        """Find the distinct rows of a batch, ascending, and the index of each token's row among them."""
        bounded = self._bounded(here)
        rows = self.starts[bounded["tables"]] + bounded["ids"]
        order = rows.argsort(stable=True)
        ascending = rows[order]
        number = torch.nn.functional.pad(ascending.diff() != 0, (1, 0)).cumsum(0)
        here["slot"].index_copy_(0, order, number)
        here["unique"].fill_(self.total).index_copy_(0, number, ascending)

    def gather(self, here: Here) -> None:
        torch.index_select(self.table, 0, here["unique"].clamp(0, self.total), out=here["rows"])

    def refresh(self, following: Here, here: Here) -> None:
        """Replace rows that were gathered before the update of an earlier batch by the updated ones."""
        place = torch.searchsorted(here["unique"], following["unique"]).clamp_max(here["unique"].numel() - 1)
        updated = here["unique"][place] == following["unique"]
        following["rows"].copy_(torch.where(updated[:, None], here["rows"][place], following["rows"]))

    def step(self, here: Here, longest: int, outcomes: list[Outcome]) -> None:
        """Append the outcome of a batch, and update all weights; `rows` are updated too."""
        self.zero_gradients()
        of_rows = self.gradients(here, longest, outcomes)
        self.update(here, of_rows)

    def zero_gradients(self) -> None:
        """Forget the gradients of earlier batches."""
        for weight in self.dense.values():
            weight.grad = None

    def gradients(self, here: Here, longest: int, outcomes: list[Outcome]) -> Tensor:
        """Append the outcome of a batch, accumulate the gradients of dense weights, and return those of the rows."""
        here = self._bounded(here)
        rows = here["rows"].detach().clone().requires_grad_()
        with torch.enable_grad():
            logits = self._logits(embedding(here["slot"], rows), here, longest)
            loss = binary_cross_entropy_with_logits(logits, here["labels"])
            loss.backward()
        outcomes.append(Outcome(loss.detach(), logits.detach()))
        assert rows.grad is not None
        return rows.grad

    def update(self, here: Here, of_rows: Tensor) -> None:
        """Update the dense weights, and the rows of the batch."""
        self.updates += 1
        here = self._bounded(here)
        recipe, rows = self.recipe, here["rows"]
        weights = [*(weight.detach() for weight in self.dense.values()), rows]
        slopes = [*(weight.grad for weight in self.dense.values()), of_rows]
        if recipe.optimizer == "sgd":
            torch._foreach_add_(weights, slopes, alpha=-recipe.rate)
        else:
            means, squares = ([*moment.dense.values(), moment.table[here["unique"]]] for moment in self.moments)
            torch._foreach_lerp_(means, slopes, 1.0 - recipe.betas[0])
            torch._foreach_mul_(squares, recipe.betas[1])
            torch._foreach_addcmul_(squares, slopes, slopes, 1.0 - recipe.betas[1])
            of_mean, of_square = (1.0 - beta**self.updates for beta in recipe.betas)
            sizes = torch._foreach_sqrt(squares)
            torch._foreach_div_(sizes, math.sqrt(of_square))
            torch._foreach_add_(sizes, recipe.eps)
            torch._foreach_addcdiv_(weights, means, sizes, -recipe.rate / of_mean)
            for moment, kept in zip(self.moments, (means, squares), strict=True):
                moment.table.index_copy_(0, here["unique"], kept[-1])
        self.write(here)

    def write(self, here: Here) -> None:
        self.table.index_copy_(0, here["unique"], here["rows"])

    def state(self) -> dict[str, Tensor]:
        """Return copies of weights, moments and the number of updates."""
        state = {name: tensor.detach().clone() for name, tensor in self._tensors().items()}
        keys = {
            f"keys.{number}": torch.tensor(list(keys_of_table), dtype=torch.int64)
            for number, keys_of_table in enumerate(self.keys)
        }
        return {**state, **keys, "step": torch.tensor(self.updates)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.updates = int(state["step"])
        self.keys = [
            {key: row for row, key in enumerate(state[f"keys.{number}"].tolist())} for number in range(len(self.keys))
        ]
        for name, tensor in self._tensors().items():
            tensor.detach().copy_(state[name])

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {**self._by_table(self.table), **self.dense}
        for kind, moment in zip(("exp_avg", "exp_avg_sq"), self.moments, strict=False):
            every = {**self._by_table(moment.table), **moment.dense}
            tensors |= {f"{kind}.{name}": tensor for name, tensor in every.items()}
        return tensors

    def _bounded(self, here: Here) -> Here:
        """Clamp every index, so that a bad batch gives bad numbers and no invalid access."""
        tokens, rows = here["ids"].numel(), self.recipe.rows
        last = {
            "ids": max(rows) - 1, "tables": len(rows) - 1, "actions": len(self.dense["actions"]) - 1,
            "offsets": tokens, "contextuals": tokens, "targets": tokens, "ranked": tokens - 1, "slot": tokens - 1,
            "unique": self.total,
        }  # fmt: skip
        bounded = {name: tensor.clamp(0, last[name]) if name in last else tensor for name, tensor in here.items()}
        return {**bounded, "offsets": bounded["offsets"].cummax(0).values}

    def _by_table(self, whole: Tensor) -> dict[str, Tensor]:
        return {f"tables.{number}": table for number, table in enumerate(whole[:-1].split(self.recipe.rows))}

    def _logits(self, tokens: Tensor, here: Here, longest: int) -> Tensor:
        x = tokens + embedding(here["actions"], self.dense["actions"])
        for number in range(self.recipe.layers):
            x = x + self._layer(x, f"layers.{number}.", here, longest)
        ranked = x.index_select(0, here["ranked"])
        return self._linear("head.1", silu(self._linear("head.0", ranked)))

    def _layer(self, x: Tensor, name: str, here: Here, longest: int) -> Tensor:
        heads, width = self.recipe.heads, self.recipe.head_width
        inner = silu(self._linear(f"{name}into", self._norm(f"{name}norm", x)))
        u, v, q, k = inner.split(heads * width, dim=1)
        q, k, v = (projection.unflatten(1, (heads, width)) for projection in (q, k, v))
        if self.recipe.attention == "dense":
            attended = self._dense(q, k, v, here, longest)
        else:
            mask = HstuMask(num_targets=here.get("targets"), num_contextuals=here["contextuals"])
            attended = hstu_attention(
                *(tensor.bfloat16() for tensor in (q, k, v)), here["offsets"], longest,
                alpha=width**-0.5, scaling_seqlen=self.recipe.scaling_seqlen, mask=mask,
            )  # fmt: skip
        return self._linear(f"{name}out", self._norm(f"{name}norm_out", attended.flatten(1).to(u.dtype)) * u)

    def _dense(self, q: Tensor, k: Tensor, v: Tensor, here: Here, longest: int) -> Tensor:
        """Attention in padded sequences. Indices are computed without waiting for the device."""
        offsets, users = here["offsets"], here["offsets"].numel() - 1
        tokens = torch.arange(q.shape[0], device=q.device)
        user = (torch.searchsorted(offsets, tokens, right=True) - 1).clamp_min(0)
        place = (user * longest + tokens - offsets[user]).clamp(0, users * longest - 1)
        question = Question(
            q, k, v, v, offsets, longest, self.recipe.scaling_seqlen, self.recipe.head_width**-0.5, True,
            here.get("targets"), 1, here["contextuals"], 0, 0,
        )  # fmt: skip
        spot = torch.arange(longest, device=q.device)
        there = spot < offsets.diff()[:, None]
        valid = valid_pairs(question, longest) & there[:, :, None] & there[:, None, :]
        q, k, v = (
            rows.new_zeros(users * longest, *rows.shape[1:]).index_copy(0, place, rows)
            .unflatten(0, (users, longest)).transpose(1, 2)
            for rows in (q, k, v)
        )  # fmt: skip
        weights = silu(q @ k.transpose(-1, -2) * question.alpha) / question.scaling_seqlen * valid.unsqueeze(1)
        return (weights @ v).transpose(1, 2).flatten(0, 1).index_select(0, place)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return linear(x, self.dense[f"{name}.weight"], self.dense[f"{name}.bias"])

    def _norm(self, name: str, x: Tensor) -> Tensor:
        return layer_norm(x, x.shape[-1:], self.dense[f"{name}.weight"], self.dense[f"{name}.bias"], 1e-5)
