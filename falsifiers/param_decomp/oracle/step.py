"""A whole training step, computed again from the state before it.

Random draws cannot be predicted. They are derived from the masks of the site calls: a mask and the importances, which
are computed here, determine the source.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from falsifiers.param_decomp.configuration import Configuration
from falsifiers.param_decomp.oracle import terms
from falsifiers.param_decomp.oracle.model import Masks, clean_forward, importance_logits, masked_forward

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Before:
    """Copies in float64 of everything that determines a step.

    Attributes:
        step: its number, from 0.
        tokens: the batch [rows, sequence].
        target, components, importance, sources: weights by name, as the subject shows them.
        slots: Adam's slots by name; missing before a tensor's first step.
    """

    step: int
    tokens: Tensor
    target: Tensors
    components: Tensors
    importance: Tensors
    sources: Tensors
    slots: Mapping[str, Tensors]


@dataclass(frozen=True)
class Shadow:
    """The expected step.

    Attributes:
        terms: the value of each term, before its coefficient.
        logits: the importance logits of each site.
        gradients: by name of a component or importance weight, what the optimizer must apply.
        after: components, importance weights and sources (`SITE.source`) after the step.
        slots: Adam's slots after the step.
        ascents: the sources by site of each adversarial forward; the last is that of the loss.
    """

    terms: Mapping[str, float]
    logits: Tensors
    gradients: Tensors
    after: Tensors
    slots: Mapping[str, Tensors]
    ascents: Sequence[Tensors]


def shadow(config: Configuration, before: Before, drawn: Sequence[Masks]) -> Shadow:
    """The step from `before`.

    Args:
        drawn: the masks of the stochastic forwards, from the site calls.
    """
    components = {name: component.clone().requires_grad_() for name, component in before.components.items()}
    importance = {name: tensor.clone().requires_grad_() for name, tensor in before.importance.items()}
    clean, residual = clean_forward(config, before.target, before.tokens)
    logits = importance_logits(config, importance, residual)
    lower = {name: terms.lower_gate(logit.detach()).requires_grad_() for name, logit in logits.items()}
    upper = {name: terms.upper_gate(logit.detach()).requires_grad_() for name, logit in logits.items()}

    sources, slots = dict(before.sources), {name: dict(slot) for name, slot in before.slots.items()}
    fixed = {name: component.detach() for name, component in before.components.items()}
    ascents = []
    for _ in range(config.ascents if config.adversarial else 0):
        ascents.append(dict(sources))
        leaves = {name: source.clone().requires_grad_() for name, source in sources.items()}
        constant = {name: tensor.detach() for name, tensor in lower.items()}
        value = adversarial_value(config, before, fixed, constant, leaves, clean)
        _ascend(config, before.step, sources, slots, _gradients(value, leaves))
    ascents.append(dict(sources))

    leaves = {name: source.clone().requires_grad_() for name, source in sources.items()}
    values = {"faithfulness": terms.faithfulness(before.target, components)}
    p = config.p_start + (config.p_end - config.p_start) * before.step / config.steps
    values["minimality"], values["frequency"] = terms.minimality(upper, p, config.eps)
    forwards = []
    for masks in drawn:
        live = {
            name: (lower[name] + (1 - lower[name]) * source_of(mask[0], lower[name].detach()), *mask[1:])
            for name, mask in masks.items()
        }
        forwards.append(terms.divergence(masked_forward(config, before.target, components, before.tokens, live), clean))
    values["stochastic"] = sum(forwards, torch.zeros((), dtype=torch.float64)) / max(1, len(forwards))
    if config.adversarial:
        values["adversarial"] = adversarial_value(config, before, components, lower, leaves, clean)

    total = sum((getattr(config, name) * value for name, value in values.items()), torch.zeros(()))
    gradient = _gradients(total, {**components, **_named("lower", lower), **_named("upper", upper)})
    back = {
        name: terms.gate_gradient(logit.detach(), gradient[f"{name}.lower"], gradient[f"{name}.upper"])
        for name, logit in logits.items()
    }
    pulled = torch.autograd.grad(list(logits.values()), list(importance.values()), list(back.values()))
    applied = dict(zip(importance, pulled, strict=True))
    norm = math.sqrt(sum(float((gradient[name] ** 2).sum()) for name in components))
    applied |= {name: min(1.0, config.gradient_norm / (norm + 1e-6)) * gradient[name] for name in components}

    after: dict[str, Tensor] = {}
    scale = (config.batch / config.reference_batch) ** 0.25
    for weights, rate in ((before.components, config.component_rate), (before.importance, config.importance_rate)):
        for name, weight in weights.items():
            moved = _adam(slots, name, applied[name], (0.9, 0.999))
            after[name] = weight - cosine(config, before.step) * scale * rate * moved
    if config.adversarial:
        _ascend(config, before.step, sources, slots, _gradients(values["adversarial"], leaves))
    after |= {f"{name}.source": source for name, source in sources.items()}
    reported = {name: float(value.detach()) for name, value in values.items()}
    return Shadow(reported, {name: logit.detach() for name, logit in logits.items()}, applied, after, slots, ascents)


def importances(config: Configuration, before: Before) -> dict[str, Tensor]:
    """The lower gate of each site's importance logits."""
    _, residual = clean_forward(config, before.target, before.tokens)
    return {
        name: terms.lower_gate(importance_logit)
        for name, importance_logit in importance_logits(config, before.importance, residual).items()
    }


def source_of(mask: Tensor, lower: Tensor) -> Tensor:
    """The source that gave a mask; 0 where an importance of 1 hides it."""
    room = 1 - lower
    return torch.where(room > 0, (mask - lower) / torch.where(room > 0, room, 1.0), 0.0)


def adversarial_value(
    config: Configuration, before: Before, components: Tensors, lower: Tensors, sources: Tensors, clean: Tensor
) -> Tensor:
    """The divergence with every site masked by its source."""
    masks: Masks = {
        name: (
            importance + (1 - importance) * sources[name][..., :-1],
            sources[name][..., -1].expand(importance.shape[:2]),
            None,
        )
        for name, importance in lower.items()
    }
    return terms.divergence(masked_forward(config, before.target, components, before.tokens, masks), clean)


def cosine(config: Configuration, step: int) -> float:
    """The share of the learning rate at a step: half a cosine from 1 to `final_rate`, reached at the last step."""
    share = step / max(1, config.steps - 1)
    return config.final_rate + (1 - config.final_rate) * (1 + math.cos(math.pi * share)) / 2


def _ascend(
    config: Configuration, step: int, sources: dict[str, Tensor], slots: dict[str, dict[str, Tensor]], up: Tensors
) -> None:
    """One projected ascent of all sources."""
    rising = int(config.steps * config.source_warmup)
    rate = config.source_rate * min(1.0, step / rising if rising else 1.0)
    for name, source in sources.items():
        moved = _adam(slots, f"{name}.source", up[name], (0.5, 0.99))
        sources[name] = torch.clamp(source + rate * moved, 0.0, 1.0)


def _adam(slots: dict[str, dict[str, Tensor]], name: str, gradient: Tensor, betas: tuple[float, float]) -> Tensor:
    """Adam's update of a tensor for a rate of 1; its slots are replaced."""
    old = slots.get(name) or {"exp_avg": torch.zeros_like(gradient), "exp_avg_sq": torch.zeros_like(gradient)}
    count = float(old.get("step", 0.0)) + 1
    first = betas[0] * old["exp_avg"] + (1 - betas[0]) * gradient
    second = betas[1] * old["exp_avg_sq"] + (1 - betas[1]) * gradient**2
    slots[name] = {"exp_avg": first, "exp_avg_sq": second, "step": torch.tensor(count, dtype=torch.float64)}
    return first / (1 - betas[0] ** count) / ((second / (1 - betas[1] ** count)) ** 0.5 + 1e-8)


def _gradients(value: Tensor, leaves: Tensors) -> dict[str, Tensor]:
    """The gradient of each leaf; zero if the value does not depend on it."""
    gradients = torch.autograd.grad(value, list(leaves.values()), allow_unused=True, retain_graph=True)
    return {
        name: torch.zeros_like(leaf) if gradient is None else gradient
        for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True)
    }


def _named(suffix: str, tensors: Tensors) -> dict[str, Tensor]:
    return {f"{name}.{suffix}": tensor for name, tensor in tensors.items()}
