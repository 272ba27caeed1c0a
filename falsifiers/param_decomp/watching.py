"""Records a step as executed: every forward of the target, and every site call in it.

Hooks on the modules read their arguments; nothing relies on the subject's reports. Weights, gradients and slots are
live tensors, copied before and after the step.
"""

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from falsifiers.param_decomp.configuration import Configuration, configuration_of
from falsifiers.param_decomp.oracle.model import Masks, site_names
from falsifiers.param_decomp.oracle.step import Before, Shadow, shadow
from falsifiers.param_decomp.subject import Masking, Trainer
from harness import Trial
from harness.authoring.shadow_step import Difference, difference, differences, worst


@dataclass(frozen=True)
class Call:
    """One call of a site with a masking."""

    site: str
    x: Tensor
    masking: Masking
    output: Tensor


@dataclass
class Forward:
    """One forward of the target.

    Attributes:
        calls: the calls of masked sites, in order.
    """

    calls: list[Call] = field(default_factory=list)

    @property
    def masks(self) -> Masks:
        """By site, mask, delta and route of its call, in float64."""
        return {
            call.site: (call.masking.mask.double(), call.masking.delta.double(), call.masking.route)
            for call in self.calls
        }


@dataclass(frozen=True)
class Watched:
    """An executed step.

    Attributes:
        before: copies from before it.
        forwards: the forwards of the step, in order; the clean one has no calls.
        again: calls that the backward pass repeated.
        reported: the terms that the subject reported.
        gradients: what the optimizers applied, by name; zero if there was none.
        after: components, importance weights and sources (`SITE.source`) after it.
        slots: Adam's slots after it.
    """

    before: Before
    forwards: Sequence[Forward]
    again: Sequence[Call]
    reported: Mapping[str, float]
    gradients: Mapping[str, Tensor]
    after: Mapping[str, Tensor]
    slots: Mapping[str, Mapping[str, Tensor]]

    def adversarial(self, sites: int) -> list[Forward]:
        """The forwards with all sites masked and routed everywhere."""
        return [forward for forward in self.forwards if forward.calls and _is_everywhere(forward, sites)]

    def stochastic(self, sites: int) -> list[Forward]:
        """The other masked forwards."""
        return [forward for forward in self.forwards if forward.calls and not _is_everywhere(forward, sites)]


def _is_everywhere(forward: Forward, sites: int) -> bool:
    routes = [call.masking.route for call in forward.calls]
    return len(routes) == sites and all(route is None or bool(route.all()) for route in routes)


def watched_step(trial: Trial[Any], subject: Trainer, step: int, rows: int | None = None) -> Watched:
    """Run a step of the subject on a batch of the falsifier, and record it.

    Args:
        rows: of the batch; by default, as many as are configured.
    """
    config = configuration_of(trial.parameters)

    def batch(step: int) -> Tensor:
        generator = torch.Generator().manual_seed(trial.seed * 1_000_003 + step)
        return torch.randint(config.vocabulary, (rows or config.batch, config.sequence), generator=generator)

    with trial.subject_fault():
        if list(subject.sites) != site_names(config):
            raise ValueError("the sites are not the configured ones, in their order")
        subject.batch = lambda step: batch(step).to(trial.device)
        before = _before(subject, step, batch(step))
        forwards: list[Forward] = []
        again: list[Call] = []
        with _hooked(subject, forwards, again):
            terms = dict(subject.step(step))
        weights = {**subject.components(), **subject.importance_weights()}
        gradients = {
            name: torch.zeros_like(weight, dtype=torch.float64) if weight.grad is None else _copied(weight.grad)
            for name, weight in weights.items()
        }
        sources = {f"{name}.source": source for name, source in subject.sources().items()}
        after = {name: _copied(tensor) for name, tensor in {**weights, **sources}.items()}
        return Watched(before, forwards, again, terms, gradients, after, _slots(subject))


def differences_of(watched: Watched, expected: Shadow) -> list[Difference]:
    """The differences between the executed and the expected step, by quantity and tensor.

    `term`, `gradient` and `slot` are relative to the expected value, `update` to the expected movement, and `source` to
    1: a source is a number in [0, 1].
    """
    result = [
        Difference("term", name, difference("term", watched.reported.get(name, 0.0), value).ratio)
        for name, value in expected.terms.items()
    ]
    result += differences("gradient", watched.gradients, expected.gradients)
    old = {**watched.before.components, **watched.before.importance}
    seen = {name: watched.after[name] - tensor for name, tensor in old.items()}
    moved = {name: expected.after[name] - tensor for name, tensor in old.items()}
    result += differences("update", seen, moved)
    for name in watched.before.sources:
        error = float((watched.after[f"{name}.source"] - expected.after[f"{name}.source"]).abs().max())
        result.append(Difference("source", name, math.inf if math.isnan(error) else error))
    for name, slots in expected.slots.items():
        result += [
            Difference("slot", f"{name}.{difference.tensor}", difference.ratio)
            for difference in differences("slot", watched.slots.get(name, {}), slots)
        ]
    return result


def measure_steps(trial: Trial[Any], subject: Trainer, steps: Sequence[int]) -> list[tuple[Watched, Shadow]]:
    """Run these steps, compute each again, and record the largest difference of each quantity."""
    config = configuration_of(trial.parameters)
    all_differences: list[Difference] = []
    pairs = []
    for step in steps:
        watched = watched_step(trial, subject, step)
        expected = shadow(
            config, watched.before, [difference.masks for difference in watched.stochastic(len(subject.sites))]
        )
        all_differences += differences_of(watched, expected)
        all_differences.append(Difference("chunks", "", float(len(wrong_chunks(config, watched)))))
        pairs.append((watched, expected))
        trial.step(step, **watched.reported)
    largest = worst(all_differences)
    trial.measure(
        steps=len(pairs),
        step_errors={name: difference.ratio for name, difference in largest.items()},
        worst_tensors={name: difference.tensor for name, difference in largest.items()},
    )
    resolve(trial, subject)
    return pairs


def wrong_chunks(config: Configuration, watched: Watched) -> list[str]:
    """The stochastic forwards that masked other sites than their chunk's, and the number of missing forwards."""
    names, size = site_names(config), config.sites_per_chunk
    expected = [names[start : start + size] for start in range(0, len(names), size) for _ in range(config.samples)]
    # A target calls its sites in its own order; each must be called once.
    live = [[call.site for call in forward.calls] for forward in watched.stochastic(len(names))]
    pairs = enumerate(zip_longest(live, expected, fillvalue=[]))
    return [
        f"step {watched.before.step}, forward {place}: {len(pair)} sites, first {pair[:1]}"
        for place, (pair, other) in pairs
        if sorted(pair) != sorted(other)
    ]


def drawn_steps(trial: Trial[Any]) -> list[int]:
    """The first step, the last of the sources' warm-up, and random ones: `watched` steps in ascending order.

    Each claim draws its own.
    """
    config = configuration_of(trial.parameters)
    claim = zlib.crc32(repr(sorted(trial.parameters.items())).encode())
    generator = torch.Generator().manual_seed(claim + trial.seed)
    drawn = torch.randperm(config.steps, generator=generator).tolist()
    steps = dict.fromkeys([0, int(config.steps * config.source_warmup), *drawn])
    return sorted([*steps][: trial.parameters["watched"]])


def resolve(trial: Trial[Any], subject: Trainer) -> None:
    """Record the device and dtype of the components."""
    trial.resolve(device=next(iter(subject.components().values())).device.type)


def executed_rates(watched: Watched) -> dict[str, float]:
    """The executed learning rate of each weight: its movement relative to Adam's update from its slots."""
    rates = {}
    for name, before in {**watched.before.components, **watched.before.importance}.items():
        slots = watched.slots[name]
        first, second = (
            slots[key] / (1 - beta ** float(slots["step"])) for key, beta in (("exp_avg", 0.9), ("exp_avg_sq", 0.999))
        )
        direction = first / (second.sqrt() + 1e-8)
        rates[name] = float(((before - watched.after[name]) * direction).sum() / (direction * direction).sum())
    return rates


@contextmanager
def _hooked(subject: Trainer, forwards: list[Forward], again: list[Call]) -> Iterator[None]:
    """Record every forward and every site call until the block ends."""

    def starts(module: Module, arguments: Any) -> None:
        if not _in_backward():
            forwards.append(Forward())

    def calls(site: str) -> Callable[..., None]:
        def kept(module: Module, arguments: tuple[Any, ...], output: Tensor) -> None:
            if len(arguments) == 1 or arguments[1] is None:
                return
            masking: Masking = arguments[1]
            call = Call(
                site,
                _copied(arguments[0]),
                Masking(
                    _on_host(masking.mask),
                    _on_host(masking.delta),
                    None if masking.route is None else _on_host(masking.route),
                ),
                _copied(output),
            )
            (again if _in_backward() else forwards[-1].calls).append(call)

        return kept

    with ExitStack() as stack:
        stack.callback(subject.target.register_forward_pre_hook(starts).remove)
        for name, site in subject.sites.items():
            stack.callback(site.register_forward_hook(calls(name)).remove)
        yield


def _in_backward() -> bool:
    """Whether autograd is running: a layer that is called now is recomputed."""
    return torch._C._current_graph_task_id() != -1


def _before(subject: Trainer, step: int, tokens: Tensor) -> Before:
    def copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: _copied(tensor) for name, tensor in tensors.items()}

    return Before(
        step,
        tokens,
        copies(subject.target_weights()),
        copies(subject.components()),
        copies(subject.importance_weights()),
        copies(subject.sources()),
        _slots(subject),
    )


def _slots(subject: Trainer) -> dict[str, dict[str, Tensor]]:
    return {
        name: {key: _copied(torch.as_tensor(slot)) for key, slot in slots.items()}
        for name, slots in subject.slots().items()
    }


def _on_host(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", torch.float64, copy=True)
