"""Reads the steps that a trainer in another process dumps; trainers/dump_steps.py defines the format."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from falsifiers.distill.measuring.weight_files import Unreadable, read_safetensors
from falsifiers.distill.oracle.shadow import Snapshot
from harness import NotObserved
from harness.tools.trainer.trainer_parts import Dumps


@dataclass(frozen=True)
class DumpedStep:
    """One step, with the tensor names of the evaluated model.

    Attributes:
        number: the trainer's step number, from 1; 0 if the file does not say.
        rate: the learning rate of the optimizer; NaN if the file does not say.
        gradients: as the optimizer used them.
        inputs, labels: token ids [rows, tokens] of all micro-batches; None if the file has none.
        teacher_logits: [rows, tokens, vocabulary]; None if the file has none.
    """

    number: int
    rate: float
    before: Snapshot
    after: Snapshot
    gradients: Mapping[str, Tensor]
    inputs: Tensor | None
    labels: Tensor | None
    teacher_logits: Tensor | None


def read_dump(path: Path, dumps: Dumps) -> DumpedStep:
    """Read the file of a step.

    Raises:
        NotObserved: it cannot be read, or holds no weights.
    """
    try:
        tensors, metadata = read_safetensors(path)
    except (OSError, Unreadable) as error:
        raise NotObserved(f"the dump {path.name} cannot be read: {error}") from error
    parts: dict[str, dict[str, dict[str, Tensor]]] = {"before": {}, "after": {}}
    gradients: dict[str, Tensor] = {}
    for key, tensor in tensors.items():
        when, _, rest = key.partition("/")
        what, _, own = rest.partition("/")
        if when in parts:
            parts[when].setdefault(what, {})[dumps.name(own)] = tensor
        elif when == "gradient":
            gradients[dumps.name(rest)] = tensor
    if not all(part.get("weight") for part in parts.values()):
        raise NotObserved(f"the dump {path.name} lacks before/weight/… or after/weight/…")
    before, after = (_snapshot(part) for part in parts.values())
    inputs = (tensors.get(f"input/{name}") for name in ("tokens", "labels", "teacher_logits"))
    try:
        number, rate = int(metadata.get("step", 0)), float(metadata.get("learning_rate", math.nan))
    except ValueError as error:
        raise NotObserved(f"the dump {path.name} has metadata that are no numbers: {error}") from error
    return DumpedStep(number, rate, before, after, gradients, *inputs)


def _snapshot(part: Mapping[str, Mapping[str, Tensor]]) -> Snapshot:
    slots: dict[str, dict[str, Tensor]] = {}
    for slot, tensors in part.items():
        for name, tensor in tensors.items() if slot != "weight" else ():
            slots.setdefault(name, {})[slot] = tensor
    return Snapshot(part["weight"], slots)
