"""The tensors of a checkpoint besides the weights: the optimizer's slots and the states of random generators."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from harness import propagates

_GENERATOR_BYTES = (torch.get_rng_state().numel(), 16)  # the state of a generator of the CPU, and of a GPU


@dataclass(frozen=True)
class StateDigest:
    """Digests of the optimizer's slots after one step, compared without names.

    Attributes:
        slots: how often each tensor occurs among the optimizer's slots.
    """

    slots: Counter[str]

    def lost(self, tensors: Mapping[str, Tensor]) -> int:
        """The number of slots that are not among these tensors, to the last bit."""
        return (self.slots - Counter(map(_digest, tensors.values()))).total()

    def foreign(self, tensors: Mapping[str, Tensor]) -> list[str]:
        """The names of tensors that are neither a slot nor a generator's state. Weights must not be among them."""
        left = self.slots.copy()
        names = []
        for name, tensor in tensors.items():
            digest = _digest(tensor)
            if left[digest] > 0:
                left[digest] -= 1
            elif tensor.dtype != torch.uint8 or tensor.numel() not in _GENERATOR_BYTES:
                names.append(name)
        return sorted(names)


@propagates
def digest_of(slots: Mapping[str, Mapping[str, Tensor]]) -> StateDigest:
    """The digests of the optimizer's present slots."""
    return StateDigest(Counter(_digest(tensor) for of in slots.values() for tensor in of.values()))


def _digest(tensor: Tensor) -> str:
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    content = plain.view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode() + content).hexdigest()
