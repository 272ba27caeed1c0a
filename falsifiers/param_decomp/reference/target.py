"""The frozen target: a Llama decoder whose matrices can be sites of a decomposition."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from falsifiers.param_decomp.configuration import Configuration
from falsifiers.param_decomp.subject import Masking

Maskings = Callable[[str], Masking | None]
"""The masking of a site in one forward; None for a site that is not masked."""

_NORM_EPS = 1e-5
_ROPE_BASE = 500000.0
_PARTS = {"q": "self_attn", "k": "self_attn", "v": "self_attn", "o": "self_attn"}


def no_masking(site: str) -> None:
    """No masking, for the clean forward."""


class Site(nn.Module):
    """One matrix W [d_in, d_out] of the target, and its components if it is decomposed."""

    def __init__(self, name: str, weight: Tensor, components: int) -> None:
        """Args: components: C; 0 for a matrix that is not decomposed."""
        super().__init__()
        self.name = name
        self.W = nn.Parameter(weight, requires_grad=False)
        if components:
            d_in, d_out = weight.shape
            self.V = nn.Parameter(torch.empty(d_in, components, device=weight.device))
            self.U = nn.Parameter(torch.empty(components, d_out, device=weight.device))

    def delta(self) -> Tensor:
        """The residual of the components: W - VU, in their dtype."""
        return self.W.to(self.V.dtype) - self.V @ self.U

    def forward(self, x: Tensor, masking: Masking | None = None) -> Tensor:
        """x @ W; where a masking routes, ((x @ V) * mask) @ U + (x @ (W - VU)) * delta."""
        if masking is None:
            return x @ self.W
        components = ((x @ self.V.to(x.dtype)) * masking.mask) @ self.U.to(x.dtype)
        decomposed = components + (x @ self.delta().to(x.dtype)) * masking.delta.unsqueeze(-1)
        if masking.route is None:
            return decomposed
        return torch.where(masking.route.unsqueeze(-1), decomposed, x @ self.W)


class _Block(nn.Module):
    """One layer of the decoder."""

    def __init__(self, config: Configuration, layer: int, draw: Callable[[int, int], Tensor]) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        width = config.hidden // config.heads * config.kv_heads
        shapes = {
            "q": (config.hidden, config.hidden),
            "k": (config.hidden, width),
            "v": (config.hidden, width),
            "o": (config.hidden, config.hidden),
            "gate": (config.hidden, config.intermediate),
            "up": (config.hidden, config.intermediate),
            "down": (config.intermediate, config.hidden),
        }
        decomposed = config.kinds if config.first_layer <= layer <= config.last_layer else ()
        self.linears = nn.ModuleDict(
            {
                kind: Site(
                    f"layers.{layer}.{_PARTS.get(kind, 'mlp')}.{kind}_proj",
                    draw(*shape),
                    config.components if kind in decomposed else 0,
                )
                for kind, shape in shapes.items()
            }
        )

    def _apply_site(self, kind: str, x: Tensor, maskings: Maskings) -> Tensor:
        site = self.linears[kind]
        masking = maskings(site.name)
        output: Tensor = site(x) if masking is None else site(x, masking)
        return output

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], maskings: Maskings) -> Tensor:
        """The residual stream [rows, sequence, hidden] after this layer."""
        h = _normed(x)
        q, k, v = (self._apply_site(kind, h, maskings) for kind in ("q", "k", "v"))
        q, k = rotated(_split(q, self.heads), rotation), rotated(_split(k, self.kv_heads), rotation)
        v = _split(v, self.kv_heads)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self._apply_site("o", attended.transpose(1, 2).flatten(2), maskings)
        h = _normed(x)
        gated = functional.silu(self._apply_site("gate", h, maskings)) * self._apply_site("up", h, maskings)
        return x + self._apply_site("down", gated, maskings)


class Target(nn.Module):
    """Embedding, layers, norm and head. The norms have no weights, because their initial weights are 1."""

    def __init__(self, config: Configuration, draw: Callable[[int, int], Tensor]) -> None:
        """Args: draw: makes a matrix [d_in, d_out]."""
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(draw(config.vocabulary, config.hidden), requires_grad=False)
        self.blocks = nn.ModuleList(_Block(config, layer, draw) for layer in range(config.layers))
        self.head = nn.Parameter(draw(config.hidden, config.vocabulary), requires_grad=False)

    def matrices(self) -> Iterator[Site]:
        """All matrices of the layers, in the order of their use."""
        for block in self.blocks:
            yield from block.linears.values()

    def forward(self, tokens: Tensor, maskings: Maskings = no_masking, *, taps: dict[int, Tensor] | None = None) -> Any:
        """Logits [rows, sequence, vocabulary].

        Args:
            tokens: token ids [rows, sequence].
            maskings: the masking of each site.
            taps: receives the residual stream before each layer that is one of its keys.
        """
        x = self.embedding[tokens]
        rotation = rotations(x, self.config.hidden // self.config.heads, _ROPE_BASE)
        for layer, block in enumerate(self.blocks):
            if taps is not None and layer in taps:
                taps[layer] = x
            if self.config.remat and torch.is_grad_enabled():
                # A block's draws have their own seeds.
                x = checkpoint(block, x, rotation, maskings, use_reentrant=False, preserve_rng_state=False)
            else:
                x = block(x, rotation, maskings)
        return _normed(x) @ self.head


def _normed(x: Tensor) -> Tensor:
    return functional.rms_norm(x, x.shape[-1:], eps=_NORM_EPS)


def _split(x: Tensor, heads: int) -> Tensor:
    """[rows, sequence, heads * width] as [rows, heads, sequence, width]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def rotations(x: Tensor, width: int, base: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines [sequence, width] of rotary embeddings, in the dtype of x [rows, sequence, …].

    Half precision is computed in float32.
    """
    precise = torch.promote_types(x.dtype, torch.float32)
    exponents = torch.arange(0, width, 2, device=x.device, dtype=precise) / width
    angles = torch.outer(torch.arange(x.shape[1], device=x.device, dtype=precise), base**-exponents)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def rotated(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding of queries or keys [rows, heads, sequence, width], by halves and not by pairs."""
    cosines, sines = rotation
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat((-second, first), dim=-1) * sines
