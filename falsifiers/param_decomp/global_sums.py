"""F-PD-GLOBALSUM-001: two ranks make the steps that one rank makes."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from falsifiers.param_decomp.ranks import run_of_ranks
from falsifiers.param_decomp.subject import Trainer
from harness import NotMeasured, Setting, Trial
from harness.authoring.shadow_step import Difference, difference, differences, worst

Trace = list[dict[str, Any]]
"""By step, a rank's state after it."""


def falsify(trial: Trial[Trainer]) -> None:
    """Train with one rank and with two, in processes of their own, and compare every step."""
    if trial.device.startswith("cuda") and torch.cuda.device_count() < 2:
        raise NotMeasured("two ranks need two GPUs")
    work = partial(_trace, type(trial.subject), trial.setting, trial.parameters["watched"])
    with trial.subject_fault():
        (alone,) = run_of_ranks(1, work, trial.device, trial.workspace / "one")
        ranks = run_of_ranks(2, work, trial.device, trial.workspace / "two")
    differences = [difference for seen in ranks for difference in _differences(seen, alone)]
    apart = list(_differences(ranks[1], ranks[0]))
    largest, between = worst(differences), worst(apart)
    trial.measure(
        steps=len(alone),
        rows=[len(difference[0]["tokens"]) for difference in (alone, *ranks)],
        rows_kept=bool(torch.equal(torch.cat([rank[0]["tokens"] for rank in ranks]), alone[0]["tokens"])),
        rank_errors={name: difference.ratio for name, difference in largest.items()},
        worst_tensors={name: difference.tensor for name, difference in largest.items()},
        replica_errors={name: difference.ratio for name, difference in between.items()},
    )
    trial.resolve(device=alone[0]["device"])


def _trace(build: Any, setting: Setting, steps: int, device: str) -> Trace:
    """Make steps on a device, and copy the state after each."""
    subject: Trainer = build(replace(setting, device=device))
    trace = []
    for step in range(1, steps + 1):
        terms = dict(subject.step(step))
        weights = {**subject.components(), **subject.importance_weights()}
        sources = {f"{name}.source": source for name, source in subject.sources().items()}
        trace.append(
            {
                "tokens": subject.batch(step).cpu(),
                "terms": terms,
                "gradient": {name: _copied(weight.grad) for name, weight in weights.items() if weight.grad is not None},
                "state": {name: _copied(tensor) for name, tensor in {**weights, **sources}.items()},
                "slot": {
                    f"{name}.{key}": _copied(torch.as_tensor(slot))
                    for name, slots in subject.slots().items()
                    for key, slot in slots.items()
                },
                "device": next(iter(weights.values())).device.type,
            }
        )
    return trace


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)


def _differences(seen: Trace, right: Trace) -> Iterator[Difference]:
    """The differences between two ranks' steps, by quantity and tensor."""
    for actual, expected in zip(seen, right, strict=True):
        for name, value in expected["terms"].items():
            yield Difference("term", name, difference("term", actual["terms"].get(name, 0.0), value).ratio)
        for quantity in ("gradient", "state", "slot"):
            yield from differences(quantity, actual[quantity], expected[quantity])
