"""The target and the importance model as functions of weights, in plain operations."""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from falsifiers.param_decomp.configuration import Configuration

Weights = Mapping[str, Tensor]
Masks = Mapping[str, tuple[Tensor, Tensor, Tensor | None]]
"""By site: mask [rows, sequence, C], delta [rows, sequence], and the route [rows, sequence]; None routes everywhere."""

_ATTENTION = ("q", "k", "v", "o")


def site_names(config: Configuration) -> list[str]:
    """The decomposed sites: by layer, and in a layer in the order of the configured kinds."""
    return [
        _name(layer, kind)
        for layer in range(config.first_layer, config.last_layer + 1)
        for kind in config.kinds
    ]  # fmt: skip


def site_output(x: Tensor, weight: Tensor, v: Tensor, u: Tensor, masks: tuple[Tensor, Tensor, Tensor | None]) -> Tensor:
    """The output of a masked site: the masked components plus the masked residual, where it is routed."""
    mask, delta, route = masks
    components = (mask * (x @ v)) @ u
    residual = delta[..., None] * (x @ weight - x @ v @ u)
    if route is None:
        return components + residual
    return torch.where(route[..., None], components + residual, x @ weight)


def clean_forward(config: Configuration, weights: Weights, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Logits, and the residual stream before the first decomposed layer."""
    taps: list[Tensor] = []
    logits = _forward(config, weights, tokens, lambda name, x: x @ weights[name], taps)
    return logits, taps[config.first_layer]


def masked_forward(
    config: Configuration, weights: Weights, components: Weights, tokens: Tensor, masks: Masks
) -> Tensor:
    """Logits with the sites of `masks` decomposed, and all others frozen."""

    def apply(name: str, x: Tensor) -> Tensor:
        if name not in masks:
            return x @ weights[name]
        return site_output(x, weights[name], components[f"{name}.V"], components[f"{name}.U"], masks[name])

    return _forward(config, weights, tokens, apply, [])


def importance_logits(config: Configuration, weights: Weights, residual: Tensor) -> dict[str, Tensor]:
    """The importance logits [rows, sequence, C] by site."""
    eps = torch.finfo(torch.float32).eps
    h = _normed(residual, eps) @ weights["input.weight"].T + weights["input.bias"]
    for block in range(config.importance_blocks):
        part = {name: weights[f"blocks.{block}.{name}.weight"].T for name in ("q", "k", "v", "o", "up", "down")}
        x = _normed(h, eps)
        q, k, v = (_heads(x @ part[name], config.importance_heads) for name in "qkv")
        everywhere = torch.zeros(x.shape[1], x.shape[1], dtype=x.dtype)
        h = h + _attend(_turned(q, 10000.0), _turned(k, 10000.0), v, everywhere) @ part["o"]
        inner = _normed(h, eps) @ part["up"] + weights[f"blocks.{block}.up.bias"]
        inner = 0.5 * inner * (1 + torch.erf(inner / math.sqrt(2.0)))
        h = h + inner @ part["down"] + weights[f"blocks.{block}.down.bias"]
    logits = h @ weights["output.weight"].T + weights["output.bias"]
    size = config.components
    return {name: logits[..., i * size : (i + 1) * size] for i, name in enumerate(site_names(config))}


def _forward(
    config: Configuration,
    weights: Weights,
    tokens: Tensor,
    apply: Callable[[str, Tensor], Tensor],
    taps: list[Tensor],
) -> Tensor:
    """A Llama decoder whose norms have no weights; `taps` receives the residual stream before each layer."""
    x = weights["embedding"][tokens]
    length = tokens.shape[1]
    causal = torch.full((length, length), -math.inf, dtype=x.dtype).triu(1)
    for layer in range(config.layers):
        taps.append(x)
        h = _normed(x, 1e-5)
        q, k, v = (apply(_name(layer, kind), h) for kind in "qkv")
        q, k, v = _heads(q, config.heads), _heads(k, config.kv_heads), _heads(v, config.kv_heads)
        shared = config.heads // config.kv_heads
        k, v = (tensor.repeat_interleave(shared, dim=1) for tensor in (k, v))
        x = x + apply(_name(layer, "o"), _attend(_turned(q, 500000.0), _turned(k, 500000.0), v, causal))
        h = _normed(x, 1e-5)
        gate = apply(_name(layer, "gate"), h)
        x = x + apply(_name(layer, "down"), gate / (1 + torch.exp(-gate)) * apply(_name(layer, "up"), h))
    return _normed(x, 1e-5) @ weights["head"]


def _name(layer: int, kind: str) -> str:
    return f"layers.{layer}.{'self_attn' if kind in _ATTENTION else 'mlp'}.{kind}_proj"


def _normed(x: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + eps)


def _heads(x: Tensor, heads: int) -> Tensor:
    """[rows, sequence, heads * width] as [rows, heads, sequence, width]."""
    rows, length, size = x.shape
    return x.reshape(rows, length, heads, size // heads).permute(0, 2, 1, 3)


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Attention, with its heads concatenated."""
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1]) + bias
    mixed = torch.einsum("bhqk,bhkd->bqhd", torch.softmax(scores, dim=-1), v)
    return mixed.reshape(*mixed.shape[:2], -1)


def _turned(x: Tensor, base: float) -> Tensor:
    """Rotary position embedding: dimension i is rotated with dimension i + width / 2."""
    half = x.shape[-1] // 2
    speeds = base ** -(torch.arange(0, 2 * half, 2, dtype=x.dtype) / (2 * half))
    angles = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * speeds
    turn = torch.complex(angles.cos(), angles.sin())
    turned = torch.complex(x[..., :half].contiguous(), x[..., half:].contiguous()) * turn
    return torch.cat((turned.real, turned.imag), dim=-1)
