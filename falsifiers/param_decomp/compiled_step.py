"""F-PD-JAX-STEP-001: a step that JAX compiles for eight devices is the specified step."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from falsifiers.param_decomp.configuration import Configuration, configuration_of
from falsifiers.param_decomp.oracle.model import Masks, site_names
from falsifiers.param_decomp.oracle.step import Before, importances, shadow, source_of
from falsifiers.param_decomp.statistics import chi_square_p
from falsifiers.param_decomp.subject import CompiledTrainer
from falsifiers.param_decomp.watching import Watched, differences_of
from harness import Trial
from harness.authoring.shadow_step import Difference, worst

_BINS = 10
_ALIKE = 1e-9


class Placed(Protocol):
    """An array that knows its devices. A copy in another process could not."""

    def devices(self) -> set[Any]:
        """The devices that hold a part of the array."""
        ...


class PlacedTrainer(CompiledTrainer, Protocol):
    """A trainer whose arrays are read in place."""

    def components(self) -> Mapping[str, Placed]: ...


def falsify(trial: Trial[PlacedTrainer]) -> None:
    """Train, compute each step again in float64, and test the random draws and the placement of the state."""
    config = configuration_of(trial.parameters)
    names, subject = site_names(config), trial.subject
    differences: list[Difference] = []
    wrong, counts, drawn = list[str](), [], []
    for step in range(trial.parameters["watched"]):
        watched, masks = _step(trial, config, step)
        lower = importances(config, watched.before)
        expected = shadow(config, watched.before, masks)
        differences += differences_of(watched, expected)
        wrong += _wrong_chunks(config, names, step, masks)
        for forward in masks:
            counts.append(sum(route.double() for _, _, route in forward.values() if route is not None))
            drawn.append(torch.stack([source_of(mask, lower[name]) for name, (mask, _, _) in forward.items()]))
        trial.step(step, **watched.reported)
    largest = worst(differences)
    trial.measure(
        steps=trial.parameters["watched"],
        step_errors={name: difference.ratio for name, difference in largest.items()},
        worst_tensors={name: difference.tensor for name, difference in largest.items()},
        wrong_chunks=wrong,
        **_statistics(config, counts, drawn),
    )
    with trial.subject_fault():
        trial.measure(**_placed(subject))
        (platform,) = {device.platform for device in next(iter(subject.components().values())).devices()}
    trial.resolve(device=platform)


def _step(trial: Trial[PlacedTrainer], config: Configuration, step: int) -> tuple[Watched, list[Masks]]:
    """Make a step; return copies of the state before and after it, and the masks of its stochastic forwards."""
    subject = trial.subject
    with trial.subject_fault():
        before = Before(
            step,
            torch.from_numpy(np.array(subject.batch(step))).long(),
            _copies(subject.target_weights()),
            _copies(subject.components()),
            _copies(subject.importance_weights()),
            _copies(subject.sources()),
            {name: _copies(slot) for name, slot in subject.slots().items()},
        )
        reported = subject.step(step)
        sources = {f"{name}.source": source for name, source in subject.sources().items()}
        after = _copies({**subject.components(), **subject.importance_weights(), **sources})
        slots = {name: _copies(slot) for name, slot in subject.slots().items()}
        masks = [
            {name: (_copied(mask), _copied(delta), _copied(route) > 0) for name, (mask, delta, route) in draw.items()}
            for draw in reported.masks
        ]
        return Watched(before, (), (), reported.terms, _copies(reported.gradients), after, slots), masks


def _wrong_chunks(config: Configuration, names: Sequence[str], step: int, masks: Sequence[Masks]) -> list[str]:
    """The forwards that masked other sites than their chunk's, and a wrong number of forwards."""
    size = config.sites_per_chunk
    expected = [names[start : start + size] for start in range(0, len(names), size) for _ in range(config.samples)]
    wrong = [f"step {step}: {len(masks)} forwards"] if len(masks) != len(expected) else []
    pairs = enumerate(zip(masks, expected, strict=False))
    return wrong + [
        f"step {step}, forward {place}: {sorted(pair)}" for place, (pair, of) in pairs if sorted(pair) != sorted(of)
    ]


def _statistics(config: Configuration, counts: Sequence[Tensor], drawn: Sequence[Tensor]) -> dict[str, Any]:
    """Whether k at each position and the sources of each forward are uniform, and new each time.

    A source is known only where the importance is not 1; elsewhere the oracle gives 0.
    """
    k = torch.stack(list(counts)).long().flatten()
    expected = len(k) / config.sites_per_chunk
    histogram = torch.bincount(k, minlength=config.sites_per_chunk + 1).double()
    deviation = float(((histogram[1:] - expected) ** 2 / expected).sum())
    known = torch.cat([sources[sources != 0] for sources in drawn])
    bins = torch.histc(known, _BINS, 0.0, 1.0)
    even = len(known) / _BINS
    again = [
        float((((left - right).abs() < _ALIKE) & (left != 0)).double().mean()) for left, right in combinations(drawn, 2)
    ]
    return {
        "unrouted_positions": int(histogram[0]),
        "k_p": chi_square_p(deviation, config.sites_per_chunk - 1),
        "source_p": chi_square_p(float(((bins - even) ** 2 / even).sum()), _BINS - 1),
        "sources_outside": int(((known < -_ALIKE) | (known > 1 + _ALIKE)).sum()),
        "drawn_again": max(again),
    }


def _placed(subject: PlacedTrainer) -> dict[str, Any]:
    """The number of devices that hold a component, and the largest share of it or of one of its moments on a device."""
    slots = subject.slots()
    tensors = [
        tensor
        for name, weight in subject.components().items()
        for tensor in (weight, slots[name]["exp_avg"], slots[name]["exp_avg_sq"])
    ]
    return {
        "devices": min(len(tensor.devices()) for tensor in tensors),
        "largest_share": max(
            shard.data.size / tensor.size for tensor in tensors for shard in tensor.addressable_shards
        ),
    }


def _copies(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: _copied(array) for name, array in arrays.items()}


def _copied(array: Any) -> Tensor:
    return torch.from_numpy(np.array(array, dtype=np.float64))
