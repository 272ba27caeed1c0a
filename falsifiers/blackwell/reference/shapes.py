"""Sizes of the blocks in the claims."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

PROJECTIONS: Final = ("q", "k", "v", "o", "gate", "up", "down")
"""The seven matrix products of a block, in order of use. SPEC-BLACKWELL-FIX-001 moves their backward to cuBLAS."""

_WITH_BIAS: Final = frozenset({"q", "k", "v"})


@dataclass(frozen=True)
class BlockShape:
    """A Qwen2 decoder block.

    Attributes:
        hidden: features of a token.
        heads: query heads.
        kv_heads: key and value heads; each serves `heads // kv_heads` query heads.
        intermediate: features inside the feed-forward part.
        eps: added to the mean square inside RMSNorm; 1e-6 in Qwen2.
        theta: base of the rotary embedding's wavelengths.
    """

    hidden: int
    heads: int
    kv_heads: int
    intermediate: int
    eps: float = 1e-6
    theta: float = 1_000_000.0

    @property
    def head_dim(self) -> int:
        """Features of one head."""
        return self.hidden // self.heads

    @property
    def group(self) -> int:
        """Query heads that share one key and value head."""
        return self.heads // self.kv_heads

    def projection(self, name: str) -> tuple[int, int]:
        """Input and output features of a projection; KeyError if it is not in PROJECTIONS."""
        kv = self.kv_heads * self.head_dim
        return {
            "q": (self.hidden, self.hidden),
            "k": (self.hidden, kv),
            "v": (self.hidden, kv),
            "o": (self.hidden, self.hidden),
            "gate": (self.hidden, self.intermediate),
            "up": (self.hidden, self.intermediate),
            "down": (self.intermediate, self.hidden),
        }[name]

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """The shape of every parameter: `<projection>.weight` [out, in], `<projection>.bias` [out] and two norms."""
        shapes: dict[str, tuple[int, ...]] = {"input_norm": (self.hidden,), "post_norm": (self.hidden,)}
        for name in PROJECTIONS:
            size_in, size_out = self.projection(name)
            shapes[f"{name}.weight"] = (size_out, size_in)
            if name in _WITH_BIAS:
                shapes[f"{name}.bias"] = (size_out,)
        return shapes


SHAPES: Final[Mapping[str, BlockShape]] = MappingProxyType(
    {
        # Qwen2's proportions, small enough for an interpreter of GPU kernels.
        "qwen2-tiny": BlockShape(hidden=64, heads=4, kv_heads=2, intermediate=176),
        # Wider and longer than the kernels' tiles and workgroups, and a multiple of none of them.
        "qwen2-ragged": BlockShape(hidden=264, heads=4, kv_heads=2, intermediate=528),
        "qwen2-0.5b": BlockShape(hidden=896, heads=14, kv_heads=2, intermediate=4864),
        "qwen2-1.5b": BlockShape(hidden=1536, heads=12, kv_heads=2, intermediate=8960),
    }
)
"""Block shapes by model name."""
