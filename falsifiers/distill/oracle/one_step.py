"""Checks by the optimizer's slots that weights changed by one step of AdamW. It needs no gradient, so it is cheap."""

from collections.abc import Mapping

import torch
from torch import Tensor

from falsifiers.distill.oracle.shadow import Configuration

SLOTS = ("exp_avg", "exp_avg_sq", "step")
"""AdamW's state for each parameter."""

_APART = 0.1
"""The accepted relative difference of a tensor's change. A doubled or a missing step differs by 1."""

_ROUNDINGS = 2  # AdamW rounds a weight twice: when it decays, and when it adds


def is_one_step(
    configuration: Configuration,
    before: Mapping[str, Tensor],
    after: Mapping[str, Tensor],
    slots: Mapping[str, Mapping[str, Tensor]],
) -> bool:
    """Whether the weights changed as one step with these slots changes them; weights without slots must not change.

    Args:
        before, after: weights on the CPU, or the same elements of each.
        slots: after the step, of the same elements.
    """
    stepped = [name for name in sorted(after) if name in slots and set(SLOTS) <= slots[name].keys()]
    if not stepped or before.keys() != after.keys():
        return False
    if any(not torch.equal(before[name], after[name]) for name in after.keys() - set(stepped)):
        return False
    sizes = torch.tensor([after[name].numel() for name in stepped])
    old, new = _joined(before, stepped), _joined(after, stepped)
    mean, square, count = (_joined({name: slots[name][slot] for name in stepped}, stepped) for slot in SLOTS)
    count = count.repeat_interleave(sizes)
    rate = configuration.rate(int(count.max()))
    mean /= 1 - configuration.beta1**count
    square /= 1 - configuration.beta2**count
    update = -rate * (configuration.weight_decay * old + mean / (square.sqrt() + configuration.epsilon))
    rounding = torch.tensor([torch.finfo(after[name].dtype).eps / 2 for name in stepped], dtype=torch.float64)
    error = (new - old - update).abs() - _ROUNDINGS * rounding.repeat_interleave(sizes) * (old + update).abs()
    tensor = torch.arange(len(stepped)).repeat_interleave(sizes)
    errors, updates = (
        torch.zeros(len(stepped), dtype=torch.float64).index_add(0, tensor, of.square())
        for of in (error.clamp_min(0), update)
    )
    return bool((errors <= _APART**2 * updates).all())


def _joined(tensors: Mapping[str, Tensor], names: list[str]) -> Tensor:
    """All elements in one float64 vector, in the order of the names."""
    return torch.cat([tensors[name].double().flatten() for name in names])
