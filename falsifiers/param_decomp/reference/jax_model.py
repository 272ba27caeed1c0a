"""The target, the importance model and the terms of the objective in JAX, as functions of weights by name.

Norms, attention scores, angles and terms are computed in the master dtype, the rest in the compute dtype. All matrices,
also those of the importance model, are [d_in, d_out]. A site's components are `SITE.V` and `SITE.U`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from falsifiers.param_decomp.configuration import Configuration

Array = jax.Array
Weights = Mapping[str, Any]
Masks = Mapping[str, tuple[Array, Array, Array | None]]
"""By site: mask [rows, sequence, C], delta [rows, sequence], and the route [rows, sequence]; None routes everywhere."""

_ALPHA = 0.01
_NORM_EPS = 1e-5
_ROPE_BASE, _IMPORTANCE_ROPE_BASE = 500000.0, 10000.0
_ATTENTION = ("q", "k", "v", "o")


def _matrix(layer: int, kind: str) -> str:
    return f"layers.{layer}.{'self_attn' if kind in _ATTENTION else 'mlp'}.{kind}_proj"


def sites(config: Configuration) -> list[str]:
    """The decomposed matrices, by layer and then in the order of the configured kinds."""
    layers = range(config.first_layer, config.last_layer + 1)
    return [_matrix(layer, kind) for layer in layers for kind in config.kinds]


def target_shapes(config: Configuration) -> dict[str, tuple[int, int]]:
    """The shapes of the frozen weights by name, in the order in which a forward uses them."""
    hidden, inner = config.hidden, config.intermediate
    narrow = hidden // config.heads * config.kv_heads
    kinds = {
        "q": (hidden, hidden),
        "k": (hidden, narrow),
        "v": (hidden, narrow),
        "o": (hidden, hidden),
        "gate": (hidden, inner),
        "up": (hidden, inner),
        "down": (inner, hidden),
    }
    matrices = {_matrix(layer, kind): shape for layer in range(config.layers) for kind, shape in kinds.items()}
    return {"embedding": (config.vocabulary, hidden), **matrices, "head": (hidden, config.vocabulary)}


def importance_shapes(config: Configuration) -> dict[str, tuple[int, ...]]:
    """The shapes of the importance model's weights by name."""
    width, inner = config.importance_width, config.importance_hidden
    shapes: dict[str, tuple[int, ...]] = {"input.weight": (config.hidden, width), "input.bias": (width,)}
    for block in range(config.importance_blocks):
        shapes |= {f"blocks.{block}.{kind}.weight": (width, width) for kind in _ATTENTION}
        shapes |= {f"blocks.{block}.up.weight": (width, inner), f"blocks.{block}.up.bias": (inner,)}
        shapes |= {f"blocks.{block}.down.weight": (inner, width), f"blocks.{block}.down.bias": (width,)}
    logits = len(sites(config)) * config.components
    return {**shapes, "output.weight": (width, logits), "output.bias": (logits,)}


def prefix(config: Configuration, target: Weights, tokens: Array) -> Array:
    """The residual stream [rows, sequence, hidden] before the first decomposed layer."""
    x = target["embedding"][tokens]
    for layer in range(config.first_layer):
        x = _layer(config, layer, x, lambda name, h: h @ target[name])
    return x


def suffix(config: Configuration, target: Weights, components: Weights, masks: Masks, x: Array) -> Array:
    """Logits [rows, sequence, vocabulary] from the residual stream; the sites of `masks` run decomposed."""

    def apply(name: str, h: Array) -> Array:
        if name not in masks:
            return h @ target[name]
        return _site(h, target[name], components[f"{name}.V"], components[f"{name}.U"], *masks[name])

    for layer in range(config.first_layer, config.layers):
        x = _layer(config, layer, x, apply)
    return _normed(config, x, _NORM_EPS) @ target["head"]


def _site(h: Array, w: Array, v: Array, u: Array, mask: Array, delta: Array, route: Array | None) -> Array:
    decomposed = ((h @ v) * mask) @ u + (h @ (w - v @ u)) * delta[..., None]
    return decomposed if route is None else jnp.where(route[..., None], decomposed, h @ w)


def _layer(config: Configuration, layer: int, x: Array, apply: Callable[[str, Array], Array]) -> Array:
    h = _normed(config, x, _NORM_EPS)
    q, k, v = (apply(_matrix(layer, kind), h) for kind in "qkv")
    q, k, v = _heads(q, config.heads), _heads(k, config.kv_heads), _heads(v, config.kv_heads)
    q, k = _rotated(config, q, _ROPE_BASE), _rotated(config, k, _ROPE_BASE)
    x = x + apply(_matrix(layer, "o"), _attended(config, q, k, v, causal=True))
    h = _normed(config, x, _NORM_EPS)
    gated = jax.nn.silu(apply(_matrix(layer, "gate"), h)) * apply(_matrix(layer, "up"), h)
    return x + apply(_matrix(layer, "down"), gated)


def importance_logits(config: Configuration, weights: Weights, residual: Array) -> dict[str, Array]:
    """Logits [rows, sequence, C] by site, from the residual stream [rows, sequence, hidden]."""
    eps = float(jnp.finfo(jnp.float32).eps)
    h = _normed(config, residual, eps) @ weights["input.weight"] + weights["input.bias"]
    for block in range(config.importance_blocks):
        part = {name: weights[f"blocks.{block}.{name}.weight"] for name in (*_ATTENTION, "up", "down")}
        x = _normed(config, h, eps)
        q, k, v = (_heads(x @ part[kind], config.importance_heads) for kind in "qkv")
        q, k = _rotated(config, q, _IMPORTANCE_ROPE_BASE), _rotated(config, k, _IMPORTANCE_ROPE_BASE)
        h = h + _attended(config, q, k, v, causal=False) @ part["o"]
        inner = _normed(config, h, eps) @ part["up"] + weights[f"blocks.{block}.up.bias"]
        h = h + jax.nn.gelu(inner, approximate=False) @ part["down"] + weights[f"blocks.{block}.down.bias"]
    logits = h @ weights["output.weight"] + weights["output.bias"]
    names = sites(config)
    return dict(zip(names, jnp.split(logits, len(names), axis=-1), strict=True))


@jax.custom_vjp
def _lower(x: Array) -> Array:
    return jnp.clip(x, 0.0, 1.0)


def _lower_forward(x: Array) -> tuple[Array, Array]:
    return _lower(x), x


def _lower_backward(x: Array, gradient: Array) -> tuple[Array]:
    """Below 0, a gradient that would increase the importance passes scaled; above 1, none passes."""
    leaked = jnp.where(gradient < 0, _ALPHA * gradient, 0.0)
    return (jnp.where(x <= 0, leaked, jnp.where(x <= 1, gradient, 0.0)),)


_lower.defvjp(_lower_forward, _lower_backward)


def gates(logits: Array) -> tuple[Array, Array]:
    """The lower gate, for masks, and the upper gate, for importance minimality."""
    # Not clip: at exactly 0 and 1 it passes half of the gradient.
    within = jnp.where((logits >= 0) & (logits <= 1), logits, jnp.where(logits < 0, 0.0, 1.0))
    return _lower(logits), jnp.where(logits > 1, 1 + _ALPHA * (logits - 1), within)


def divergence(masked: Array, clean: Array, precise: Any) -> Array:
    """KL(softmax(clean) || softmax(masked)), a mean over rows and sequence, computed in the dtype `precise`."""
    q, p = (jax.nn.log_softmax(tensor.astype(precise), axis=-1) for tensor in (masked, clean))
    return (jnp.exp(p) * (p - q)).sum() / math.prod(clean.shape[:-1])


def faithfulness(target: Weights, components: Weights, names: Sequence[str]) -> Array:
    """The mean square of all entries of W - VU, of all sites together."""
    squares: Any = 0.0
    count = 0
    for name in names:
        v, u = components[f"{name}.V"], components[f"{name}.U"]
        squares += jnp.square(target[name].astype(v.dtype) - v @ u).sum()
        count += target[name].size
    return squares / count


def minimality(upper: Mapping[str, Array], p: Array, eps: float, precise: Any) -> tuple[Array, Array]:
    """The sums over components of f and of f * log2(1 + tokens * f), where f is the mean of (importance + eps)^p.

    They are computed in the dtype `precise`.
    """
    plain: Any = 0.0
    logarithmic: Any = 0.0
    for importance in upper.values():
        tokens = math.prod(importance.shape[:-1])
        f = ((importance.astype(precise) + eps) ** p).sum(axis=(0, 1)) / tokens
        plain += f.sum()
        logarithmic += (f * jnp.log2(1 + tokens * f)).sum()
    return plain, logarithmic


def _normed(config: Configuration, x: Array, eps: float) -> Array:
    precise = x.astype(config.dtype)
    return (precise * jax.lax.rsqrt(jnp.square(precise).mean(axis=-1, keepdims=True) + eps)).astype(x.dtype)


def _heads(x: Array, heads: int) -> Array:
    """[rows, sequence, heads * width] as [rows, sequence, heads, width]."""
    return x.reshape(*x.shape[:2], heads, -1)


def _rotated(config: Configuration, x: Array, base: float) -> Array:
    """Rotary embedding of [rows, sequence, heads, width]: halves are rotated, not pairs."""
    precise, width = jnp.dtype(config.dtype), x.shape[-1]
    speeds = base ** -(jnp.arange(0, width, 2, dtype=precise) / width)
    angles = jnp.outer(jnp.arange(x.shape[1], dtype=precise), speeds)[:, None, :]
    cosines, sines = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate((first * cosines - second * sines, second * cosines + first * sines), axis=-1)


def _attended(config: Configuration, q: Array, k: Array, v: Array, *, causal: bool) -> Array:
    """Grouped-query attention of [rows, sequence, heads, width], with heads concatenated."""
    q = q.reshape(*q.shape[:2], k.shape[2], -1, q.shape[-1])
    scores = jnp.einsum("bqhgd,bkhd->bhgqk", q, k).astype(config.dtype) / math.sqrt(q.shape[-1])
    if causal:
        length = scores.shape[-1]
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
    shares = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    return jnp.einsum("bhgqk,bkhd->bqhgd", shares, v).reshape(*q.shape[:2], -1)
