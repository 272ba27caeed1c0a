"""The truth about Qwen2's decoder block and a language model of such blocks: transformers and autograd in float64.

Two parts of transformers round to float32 in any dtype, the norm and the rotary table. Here `torch.nn.RMSNorm` and a
table in float64 take their place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import Tensor, nn
from torch.func import functional_call
from transformers import Qwen2Config
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

_NAMES: Final = {
    "input_norm": "input_layernorm.weight",
    "post_norm": "post_attention_layernorm.weight",
    "q.weight": "self_attn.q_proj.weight",
    "q.bias": "self_attn.q_proj.bias",
    "k.weight": "self_attn.k_proj.weight",
    "k.bias": "self_attn.k_proj.bias",
    "v.weight": "self_attn.v_proj.weight",
    "v.bias": "self_attn.v_proj.bias",
    "o.weight": "self_attn.o_proj.weight",
    "gate.weight": "mlp.gate_proj.weight",
    "up.weight": "mlp.up_proj.weight",
    "down.weight": "mlp.down_proj.weight",
}
"""The names of the claims' weights, in the claims' order, with transformers' names."""


@dataclass(frozen=True)
class Shape:
    """The numbers that make one block of Qwen2 differ from another."""

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


SHAPES: Final[Mapping[str, Shape]] = MappingProxyType(
    {
        "qwen2-tiny": Shape(64, heads=4, kv_heads=2, intermediate=176),
        # Longer than 256 threads and 512 summands, wider than a tile in every projection, and a multiple of no tile.
        "qwen2-ragged": Shape(264, heads=4, kv_heads=2, intermediate=528),
        # https://huggingface.co/Qwen/Qwen2-0.5B/blob/main/config.json and Qwen2-1.5B
        "qwen2-0.5b": Shape(896, heads=14, kv_heads=2, intermediate=4864),
        "qwen2-1.5b": Shape(1536, heads=12, kv_heads=2, intermediate=8960),
    }
)
"""The shape that a value of parameter `model` names."""


class TrueBlock:
    """One decoder block. It holds no weights: they are arguments, by the names of `parameters`."""

    def __init__(self, shape: Shape) -> None:
        """Build the layer on the device `meta`, where it takes no memory."""
        config = Qwen2Config(
            hidden_size=shape.hidden,
            intermediate_size=shape.intermediate,
            num_hidden_layers=1,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv_heads,
            use_sliding_window=False,
            attention_dropout=0.0,
        )
        config._attn_implementation = "sdpa"  # transformers' other implementation has its softmax in float32
        with torch.device("meta"):
            layer = Qwen2DecoderLayer(config, layer_idx=0)
            layer.input_layernorm = nn.RMSNorm(shape.hidden, eps=shape.eps)
            layer.post_attention_layernorm = nn.RMSNorm(shape.hidden, eps=shape.eps)
        self.shape = shape
        self._layer = layer.eval()

    @property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """The shape of every weight, in the order of the claims."""
        sizes = dict(self._layer.named_parameters())
        return {name: tuple(sizes[their_name].shape) for name, their_name in _NAMES.items()}

    def output(self, x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        """The output, shaped as x [batch, sequence, hidden]; both float64."""
        named = {_NAMES[name]: weight for name, weight in weights.items()}
        turns = self._turns(x.shape[1], x.device)
        output: Tensor = functional_call(self._layer, named, (x,), {"position_embeddings": turns}, strict=True)
        return output

    def gradients(self, x: Tensor, weights: Mapping[str, Tensor], grad_output: Tensor) -> dict[str, Tensor]:
        """In float64: "output", the gradient of "x", and that of every weight by its name.

        Args:
            x, grad_output: input and incoming gradient [batch, sequence, hidden], of any dtype.
        """
        leaves = {name: _leaf(tensor) for name, tensor in {"x": x, **weights}.items()}
        with torch.enable_grad():
            output = self.output(leaves["x"], {name: leaves[name] for name in weights})
        gradients = torch.autograd.grad(output, list(leaves.values()), grad_output.double())
        return {"output": output.detach(), **dict(zip(leaves, gradients, strict=True))}

    def _turns(self, sequence: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cosine and sine [1, sequence, d] of position * theta^(-2i / d), for the pairs (i, i + d / 2)."""
        size = self.shape.head_dim
        rates = self.shape.theta ** -(torch.arange(0, size, 2, dtype=torch.float64, device=device) / size)
        angles = torch.outer(torch.arange(sequence, dtype=torch.float64, device=device), rates)
        both = torch.cat([angles, angles], dim=-1).unsqueeze(0)
        return both.cos(), both.sin()


class TrueModel:
    """Embedding, blocks, a last norm, and the embedding again as head; it holds no weights."""

    def __init__(self, shape: Shape, layers: int, vocabulary: int) -> None:
        self._block, self._layers = TrueBlock(shape), layers
        self.parameters: dict[str, tuple[int, ...]] = {
            "embedding": (vocabulary, shape.hidden),
            "norm": (shape.hidden,),
            **{
                f"blocks.{layer}.{name}": size
                for layer in range(layers)
                for name, size in self._block.parameters.items()
            },
        }
        """The shape of every weight, in the order of the claims."""

    def gradients(self, weights: Sequence[Tensor], tokens: Tensor) -> tuple[float, list[Tensor]]:
        """The loss in nats per token, and the gradient of every weight in float64.

        One sequence after the other, so that the logits of a whole batch need no memory.

        Args:
            weights: in the order of `parameters`.
            tokens: ids [batch, sequence + 1]; every token but the first is to be predicted.
        """
        leaves = dict(zip(self.parameters, map(_leaf, weights), strict=True))
        total = 0.0
        for token in tokens:
            with torch.enable_grad():
                loss = self._loss(leaves, token.unsqueeze(0)) / len(tokens)
                loss.backward()
            total += float(loss.detach())
        return total, [gradient for leaf in leaves.values() if (gradient := leaf.grad) is not None]

    def _loss(self, weights: Mapping[str, Tensor], tokens: Tensor) -> Tensor:
        x = F.embedding(tokens[:, :-1], weights["embedding"])
        for layer in range(self._layers):
            prefix = f"blocks.{layer}."
            of_block = {
                name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)
            }
            x = self._block.output(x, of_block)
        x = F.rms_norm(x, x.shape[-1:], weights["norm"], self._block.shape.eps)
        return F.cross_entropy((x @ weights["embedding"].T).flatten(0, 1), tokens[:, 1:].flatten())


def _leaf(tensor: Tensor) -> Tensor:
    """A copy in float64 that gets a gradient."""
    return tensor.detach().double().clone().requires_grad_()
