"""A step of the decomposition as one function for JAX to compile, from state to state.

All randomness follows from a key. Rows may be sharded over the axis `rows` of a mesh: the compiler then makes the sums
over them global.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from falsifiers.param_decomp.configuration import Configuration
from falsifiers.param_decomp.reference import jax_model
from falsifiers.param_decomp.reference.jax_model import Masks

Array = jax.Array
Tensors = Mapping[str, Any]

ROWS = "rows"
"""The mesh axis over which rows, components and importance weights are divided."""
_BETAS, _SOURCE_BETAS, _EPS = (0.9, 0.999), (0.5, 0.99), 1e-8


class State(NamedTuple):
    """Everything that a step changes.

    Attributes:
        components, importance, sources: weights by name, in the master dtype.
        slots: Adam's by `components`, `importance` and `sources`: first and second moments by name.
        steps, ascents: the number of updates of the optimizers and of the adversary.
    """

    components: Tensors
    importance: Tensors
    sources: Tensors
    slots: Mapping[str, tuple[Tensors, Tensors]]
    steps: Array
    ascents: Array


class Seen(NamedTuple):
    """Intermediate results of a step.

    Attributes:
        terms: each term before its coefficient, and their `total`.
        gradients: what the optimizers applied to components and importance weights.
        masks: those of each stochastic forward.
    """

    terms: Mapping[str, Array]
    gradients: Tensors
    masks: list[Masks]


def train_step(
    config: Configuration, mesh: Mesh, state: State, target: Tensors, residual: Array, step: Array, key: Array
) -> tuple[State, Seen]:
    names = jax_model.sites(config)
    compute, precise = jnp.dtype(config.compute_dtype), jnp.dtype(config.dtype)
    over_rows = partial(_over_rows, mesh)
    residual = over_rows(residual)

    def forward(components: Tensors, masks: Masks) -> Array:
        return over_rows(jax_model.suffix(config, target, components, masks, residual))

    kept_forward = jax.checkpoint(forward) if config.remat else forward
    clean = jax.lax.stop_gradient(forward({}, {}))

    def importances(weights: Tensors) -> tuple[dict[str, Array], dict[str, Array]]:
        logits = jax_model.importance_logits(config, _cast(weights, compute), residual)
        gates = {name: jax_model.gates(logit) for name, logit in logits.items()}
        return tuple({name: over_rows(pair[which]) for name, pair in gates.items()} for which in (0, 1))  # type: ignore[return-value]

    def adversarial(components: Tensors, lower: Tensors, sources: Tensors, forward: Callable[..., Array]) -> Array:
        masks = {name: _masked(lower[name], sources[name].astype(compute)) for name in names}
        return jax_model.divergence(forward(components, masks), clean, precise)

    sources, slots, ascents = state.sources, dict(state.slots), state.ascents
    source_rate = _warmed_up(config, step)
    if config.adversarial:
        still = jax.lax.stop_gradient((_cast(state.components, compute), importances(state.importance)[0]))

        def ascend(carry: Any, _: None) -> tuple[Any, None]:
            sources, moments, count = carry
            upward = jax.grad(lambda sources: adversarial(*still, sources, forward))(sources)
            return _ascended(sources, upward, moments, count, source_rate), None

        carry = (sources, slots["sources"], ascents)
        (sources, slots["sources"], ascents), _ = jax.lax.scan(ascend, carry, None, length=config.ascents)

    drawn = [
        _drawn(config, jax.random.fold_in(key, place), residual.shape[:2], chunk)
        for place, chunk in enumerate(_forwards(config))
    ]

    def objective(components: Tensors, importance: Tensors, sources: Tensors) -> tuple[Array, Any]:
        lower, upper = importances(importance)
        live = _cast(components, compute)
        terms = {"faithfulness": jax_model.faithfulness(target, components, names)}
        p = config.p_start + (config.p_end - config.p_start) * step / config.steps
        terms["minimality"], terms["frequency"] = jax_model.minimality(upper, p, config.eps, precise)
        masks = [
            {name: _masked(lower[name], source, route) for name, (source, route) in draw.items()} for draw in drawn
        ]
        divergences = [jax_model.divergence(kept_forward(live, mask), clean, precise) for mask in masks]
        terms["stochastic"] = sum(divergences) / len(divergences)
        if config.adversarial:
            terms["adversarial"] = adversarial(live, lower, sources, kept_forward)
        total = sum(getattr(config, name) * term for name, term in terms.items())
        return total, ({**terms, "total": total}, masks)

    weights = (state.components, state.importance, sources)
    pulled, (terms, masks) = jax.grad(objective, argnums=(0, 1, 2), has_aux=True)(*weights)
    components, importance, upward = pulled
    components = _clipped(components, config.gradient_norm)

    share = _cosine(config, step) * (config.batch / config.reference_batch) ** 0.25
    moved = {}
    for name, old, gradient, rate in (
        ("components", state.components, components, config.component_rate),
        ("importance", state.importance, importance, config.importance_rate),
    ):
        change, slots[name] = _adam(gradient, slots[name], state.steps + 1, _BETAS)
        moved[name] = jax.tree.map(lambda weight, by, rate=rate: weight - share * rate * by, old, change)
    if config.adversarial:
        upward = jax.tree.map(lambda gradient: gradient / config.adversarial, upward)
        sources, slots["sources"], ascents = _ascended(sources, upward, slots["sources"], ascents, source_rate)
    new = State(moved["components"], moved["importance"], sources, slots, state.steps + 1, ascents)
    return new, Seen(terms, {**components, **importance}, masks)


def _over_rows(mesh: Mesh, x: Array) -> Array:
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec(ROWS)))


def _cast(tensors: Tensors, dtype: Any) -> Tensors:
    return jax.tree.map(lambda tensor: tensor.astype(dtype), tensors)


def _masked(lower: Array, source: Array, route: Array | None = None) -> tuple[Array, Array, Array | None]:
    """A component's mask is 1 at an importance of 1; the last channel of a source is the residual's mask."""
    return lower + (1 - lower) * source[..., :-1], jnp.broadcast_to(source[..., -1], lower.shape[:-1]), route


def _forwards(config: Configuration) -> list[list[str]]:
    """The masked sites of each stochastic forward: `samples` forwards per chunk, in order."""
    names, size = jax_model.sites(config), config.sites_per_chunk
    return [names[start : start + size] for start in range(0, len(names), size) for _ in range(config.samples)]


def _drawn(
    config: Configuration, key: Array, lead: tuple[int, ...], chunk: Sequence[str]
) -> dict[str, tuple[Array, Array]]:
    """For each site of a chunk, a uniform source [rows, sequence, C + 1], and its route.

    At each position, k of the sites are routed, with k uniform in 1 to all.
    """
    for_sources, for_k, for_order = jax.random.split(key, 3)
    shape = (len(chunk), *lead, config.components + 1)
    sources = jax.random.uniform(for_sources, shape, jnp.dtype(config.compute_dtype))
    k = jax.random.randint(for_k, lead, 1, len(chunk) + 1)
    ranks = jax.random.uniform(for_order, (len(chunk), *lead)).argsort(axis=0).argsort(axis=0)
    return {name: (sources[place], ranks[place] < k) for place, name in enumerate(chunk)}


def _clipped(gradients: Tensors, norm: float) -> Tensors:
    """Gradients, scaled together to a norm of at most `norm`."""
    total = jnp.sqrt(sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(gradients)))
    return jax.tree.map(lambda gradient: gradient * jnp.minimum(1.0, norm / (total + 1e-6)), gradients)


def _adam(
    gradients: Tensors, slots: tuple[Tensors, Tensors], count: Array, betas: tuple[float, float]
) -> tuple[Tensors, tuple[Tensors, Tensors]]:
    """Adam's updates for a rate of 1, and its new moments."""
    first = jax.tree.map(lambda old, new: betas[0] * old + (1 - betas[0]) * new, slots[0], gradients)
    second = jax.tree.map(lambda old, new: betas[1] * old + (1 - betas[1]) * new * new, slots[1], gradients)

    def change(mean: Array, square: Array) -> Array:
        precise = count.astype(mean.dtype)
        mean, square = mean / (1 - betas[0] ** precise), square / (1 - betas[1] ** precise)
        return mean / (jnp.sqrt(square) + _EPS)

    return jax.tree.map(change, first, second), (first, second)


def _ascended(
    sources: Tensors, upward: Tensors, slots: tuple[Tensors, Tensors], count: Array, rate: Array
) -> tuple[Tensors, tuple[Tensors, Tensors], Array]:
    """The sources after one projected ascent."""
    change, slots = _adam(upward, slots, count + 1, _SOURCE_BETAS)
    sources = jax.tree.map(lambda x, by: jnp.clip(x + (rate * by).astype(x.dtype), 0.0, 1.0), sources, change)
    return sources, slots, count + 1


def _cosine(config: Configuration, step: Array) -> Array:
    progress = step / max(1, config.steps - 1)
    return config.final_rate + (1 - config.final_rate) * 0.5 * (1 + jnp.cos(math.pi * progress))


def _warmed_up(config: Configuration, step: Array) -> Array:
    rising = int(config.steps * config.source_warmup)
    return config.source_rate * jnp.minimum(1.0, step / rising) if rising else jnp.asarray(config.source_rate)
