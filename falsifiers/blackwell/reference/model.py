"""A language model of such blocks that can be trained."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import Tensor, nn

from falsifiers.blackwell.reference.block import Block, new_weights
from falsifiers.blackwell.reference.shapes import BlockShape


class BlockModule(nn.Module):
    """A block's parameters, and its backward on the backend in place of autograd."""

    def __init__(self, block: Block, seed: int, device: torch.device) -> None:
        super().__init__()
        self.block = block
        self.names = tuple(block.shape.parameters())
        for name, weight in new_weights(block.shape, seed, dtype=torch.float32, device=device).items():
            self.register_parameter(name.replace(".", "_"), nn.Parameter(weight))

    def weights(self) -> dict[str, Tensor]:
        """The parameters, by the names that `Block` uses."""
        return {name: getattr(self, name.replace(".", "_")) for name in self.names}

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, shaped as x [batch, sequence, hidden]."""
        output: Tensor = _BlockFunction.apply(self.block, self.names, x, *self.weights().values())
        return output


class LanguageModel(nn.Module):
    """Embedding, blocks, a last norm, and the embedding again as head. Autograd does norm and head."""

    def __init__(
        self, shape: BlockShape, blocks: Sequence[Block], vocabulary: int, seed: int, device: torch.device
    ) -> None:
        """Draw all weights from the seed; each block may have a backend of its own."""
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        drawn = 0.02 * torch.randn(vocabulary, shape.hidden, generator=generator)
        self.shape = shape
        self.embedding = nn.Parameter(drawn.to(device))
        self.norm = nn.Parameter(torch.ones(shape.hidden, device=device))
        self.blocks = nn.ModuleList(
            BlockModule(block, seed * len(blocks) + index, device) for index, block in enumerate(blocks, 1)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [batch, sequence, vocabulary] for token ids [batch, sequence]."""
        x = F.embedding(tokens, self.embedding)
        for block in self.blocks:
            x = block(x)
        return F.rms_norm(x, (self.shape.hidden,), self.norm, self.shape.eps) @ self.embedding.T

    def loss(self, tokens: Tensor) -> Tensor:
        """Cross entropy of every next token of ids [batch, sequence + 1], in nats per token."""
        logits = self(tokens[:, :-1].contiguous())
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class _BlockFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, block: Block, names: tuple[str, ...], x: Tensor, *weights: Tensor) -> Tensor:
        output, ctx.saved = block.forward(x.contiguous(), dict(zip(names, weights, strict=True)))
        ctx.block, ctx.names = block, names
        ctx.save_for_backward(*weights)
        return output

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (grad_output,) = grad_outputs
        weights = dict(zip(ctx.names, ctx.saved_tensors, strict=True))
        grad_x, grad_weights = ctx.block.backward(ctx.saved, weights, grad_output.contiguous())
        ctx.saved = None  # free the large score workspace; a second backward is not supported
        return None, None, grad_x, *(grad_weights[name] for name in ctx.names)
