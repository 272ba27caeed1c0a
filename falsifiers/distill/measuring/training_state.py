"""The tensors of a checkpoint besides the weights: the optimizer's slots and the states of random generators."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from harness import propagates

_OF_GPU = 16  # bytes of the state of a GPU's generator


@dataclass(frozen=True)
class StateDigest:
    """Digests of the optimizer's slots after one step, compared without names.

    Attributes:
        slots: how often each tensor occurs among the optimizer's slots.
        generators: the states that the CPU's generator had between this step and the next one.
    """

    slots: Counter[str]
    generators: frozenset[str]

    def lost(self, tensors: Mapping[str, Tensor]) -> int:
        """The number of slots that are not among these tensors, to the last bit."""
        return (self.slots - Counter(map(_digest, tensors.values()))).total()

    def foreign(self, tensors: Mapping[str, Tensor]) -> list[str]:
        """The names of tensors that are neither a slot nor a generator's state of this step.

        Weights must not be among them.
        """
        left = self.slots.copy()
        names = []
        for name, tensor in tensors.items():
            digest = _digest(tensor)
            if left[digest] > 0:
                left[digest] -= 1
            elif digest not in self.generators and (tensor.dtype != torch.uint8 or tensor.numel() != _OF_GPU):
                names.append(name)
        return sorted(names)


@propagates
def digest_of(slots: Mapping[str, Mapping[str, Tensor]]) -> StateDigest:
    """The digests of the optimizer's present slots, and of the CPU's generator before and after a draw.

    The draw makes the next step's state another one. A trainer saves before or after it.
    """
    before, _ = torch.get_rng_state(), torch.rand(())
    return StateDigest(
        Counter(_digest(tensor) for of in slots.values() for tensor in of.values()),
        frozenset(map(_digest, (before, torch.get_rng_state()))),
    )


def _digest(tensor: Tensor) -> str:
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    content = plain.view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode() + content).hexdigest()
