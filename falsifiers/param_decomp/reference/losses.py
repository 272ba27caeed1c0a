"""The terms of the objective, each before its coefficient. SPEC.md of the decomposition, section 4.3."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from falsifiers.param_decomp.reference.target import Site


def divergence(masked: Tensor, clean: Tensor) -> Tensor:
    """KL(softmax(clean) || softmax(masked)) of logits [rows, sequence, vocabulary], a mean over rows and sequence.

    Half precision is computed in float32.
    """
    masked, clean = (_precise(logits).log_softmax(dim=-1) for logits in (masked, clean))
    return functional.kl_div(masked, clean, reduction="sum", log_target=True) / masked[..., 0].numel()


def faithfulness(sites: Iterable[Site]) -> Tensor:
    """The mean square of all entries of W - VU, of all sites together."""
    deltas = [site.delta() for site in sites]
    squares = torch.stack([delta.square().sum() for delta in deltas]).sum()
    return squares / sum(delta.numel() for delta in deltas)


def minimality(upper: Mapping[str, Tensor], p: float, eps: float) -> tuple[Tensor, Tensor]:
    """How often components are important, over the rows of all ranks.

    A component's frequency f is the mean of (importance + eps)^p over rows and sequence. The logarithm needs the global
    f, not the f of this rank's rows.

    Returns: the sum of f over all components, and the sum of f * log2(1 + tokens * f).
    """
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    plain, logarithmic = [], []
    for importance in upper.values():
        tokens = importance[..., 0].numel() * ranks
        sums = (_precise(importance) + eps).pow(p).flatten(0, -2).sum(dim=0)
        frequency = (_SumOfRanks.apply(sums) if ranks > 1 else sums) / tokens
        plain.append(frequency.sum())
        logarithmic.append((frequency * torch.log2(1 + tokens * frequency)).sum())
    return torch.stack(plain).sum(), torch.stack(logarithmic).sum()


class _SumOfRanks(torch.autograd.Function):
    """A sum over ranks. Every rank's loss depends on every rank's terms, so gradients are summed too."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone()
        dist.all_reduce(total)
        return total


def _precise(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
