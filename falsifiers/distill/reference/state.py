"""The state from which a training resumes: weights, optimizer, random generators, and the last step.

Batches and learning rate follow from seed and step, so the step is the position in the data and in the schedule. A
state is tensors and text, as in a safetensors file. The weights have their own names, so that a checkpoint is also a
model. The rest has names that no parameter has.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from torch.optim import Optimizer

from falsifiers.distill.reference.apr_files import read_apr

_OPTIMIZER = "optimizer/"
_RANDOM = "random/"
_GROUPS = "param_groups"


@dataclass(frozen=True)
class TrainingState:
    """The tensors and the strings of one checkpoint."""

    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]

    @property
    def weights(self) -> dict[str, Tensor]:
        """The model's parameters by name."""
        return {name: tensor for name, tensor in self.tensors.items() if "/" not in name}


def capture(weights: Mapping[str, Tensor], optimizer: Optimizer, metadata: Mapping[str, str]) -> TrainingState:
    """Collect the present state: the live tensors, which training will change, and not copies."""
    optimizing = optimizer.state_dict()
    tensors = dict(weights)
    for index, slots in optimizing["state"].items():
        tensors |= {f"{_OPTIMIZER}{index}/{slot}": value for slot, value in slots.items()}
    tensors |= {f"{_RANDOM}{device}": state for device, state in _random_states(weights).items()}
    return TrainingState(tensors, {**metadata, _GROUPS: json.dumps(optimizing["param_groups"])})


def read_state(path: Path) -> TrainingState:
    """Read a checkpoint or an export into host memory.

    Raises:
        OSError, SafetensorError, ValueError: the file cannot be read, or is none.
    """
    if path.suffix == ".apr":
        return TrainingState(*read_apr(path))
    with safe_open(path, framework="pt") as file:
        return TrainingState({name: file.get_tensor(name).clone() for name in file.keys()}, file.metadata() or {})  # noqa: SIM118


@torch.no_grad()
def restore_weights(state: TrainingState, weights: Mapping[str, Tensor]) -> None:
    """Copy the state's weights into the live ones.

    Raises:
        ValueError: names, a shape or a dtype differ. A partial, broadcast or cast copy would be another model.
    """
    stored = state.weights
    if stored.keys() != weights.keys():
        raise ValueError(f"not the model's parameters: {sorted(stored.keys() ^ weights.keys())}")
    for name, weight in weights.items():
        if (stored[name].shape, stored[name].dtype) != (weight.shape, weight.dtype):
            raise ValueError(
                f"{name} is {stored[name].dtype} {tuple(stored[name].shape)} in the file, "
                f"{weight.dtype} {tuple(weight.shape)} in the model"
            )
    for name, weight in weights.items():
        weight.copy_(stored[name])


def restore(state: TrainingState, weights: Mapping[str, Tensor], optimizer: Optimizer) -> int:
    """Restore everything; return the last step.

    Raises:
        ValueError: the state is another model's, or an export, which has only weights.
    """
    if _GROUPS not in state.metadata:
        raise ValueError("the file holds weights and no state of a training; resume from a checkpoint")
    restore_weights(state, weights)
    slots: dict[int, dict[str, Any]] = {}
    for name, tensor in state.tensors.items():
        if name.startswith(_OPTIMIZER):
            _, index, slot = name.split("/")
            slots.setdefault(int(index), {})[slot] = tensor
    optimizer.load_state_dict({"state": slots, "param_groups": json.loads(state.metadata[_GROUPS])})
    torch.set_rng_state(state.tensors[f"{_RANDOM}cpu"])
    for device in {weight.device for weight in weights.values() if weight.is_cuda}:
        torch.cuda.set_rng_state(state.tensors[f"{_RANDOM}cuda"], device)
    return int(state.metadata["step"])


def _random_states(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The states of all generators that training uses: the CPU's, and that of the model's GPU."""
    states = {"cpu": torch.get_rng_state()}
    for device in {weight.device for weight in weights.values() if weight.is_cuda}:
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states
