"""The kernel paths of a step, which nanochat/kernels.py selects, and a path with our own fused loss.

| path | normalisation | loss |
|---|---|---|
| current | torch | whole logits in float32 |
| liger | Liger | Liger's fused loss |
| triton | torch | Liger's fused loss |
| own | torch | our fused loss |

Liger's kernels need a GPU. On a CPU, torch operations replace its normalisation, and our loss in chunks of the same
size replaces its loss.

If the parameter `compiled` is true, torch.compile compiles the blocks and the loss of the path "current". The fused
losses consist of kernels already.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
from torch import Tensor
from torch._inductor import config as inductor

from falsifiers.nanochat.reference.linear_cross_entropy import linear_cross_entropy
from falsifiers.nanochat.reference.model import (
    EPSILON,
    IGNORED,
    SOFTCAP,
    Gpt,
    HeadLoss,
    Norm,
    Shape,
    plain_loss,
    plain_norm,
)  # fmt: skip
from falsifiers.nanochat.reference.tokens import batch, encoded, torch_text, train_tokenizer
from falsifiers.nanochat.subject import Batch, Parts
from harness import Setting


class KernelPaths:
    """Steps of one model on the paths. Every path begins with the same weights. See `Paths`."""

    def __init__(self, setting: Setting) -> None:
        self.settings: Mapping[str, Any] = setting.parameters
        self.device, self.seed = setting.device, setting.seed
        names = ("layers", "width", "heads", "vocabulary", "sequence")
        self.shape = Shape(**{name: self.settings[name] for name in names})
        self.is_compiled = self.settings.get("compiled", False)
        if self.is_compiled:
            inductor.compile_threads = 1  # few kernels need no pool of compiler processes

    def batch(self) -> Batch:
        """Rows of PyTorch's own sources."""
        text = torch_text(["nn/utils"] if self.device == "cpu" else ["_dynamo"])
        stream = encoded(train_tokenizer(text, self.shape.vocabulary), text)
        tokens, targets = batch(stream, self.settings["rows"], self.shape.sequence, self.seed)
        targets[:, : round(self.settings["ignored"] * self.shape.sequence)] = IGNORED
        return Batch(tokens.to(self.device), targets.to(self.device))

    def loss(self, path: str) -> HeadLoss:
        if path in ("liger", "triton"):
            return _liger_loss if self.device != "cpu" else _in_chunks_of_liger
        if path == "own":
            return fused_loss
        return torch.compile(plain_loss, dynamic=False) if self.is_compiled else plain_loss

    def norm(self, path: str) -> Norm:
        if path != "liger":
            return plain_norm
        return _liger_norm if self.device != "cpu" else _RowNorm.apply

    def model(self, path: str) -> torch.nn.Module:
        torch.manual_seed(self.seed)
        with torch.device(self.device):
            model = Gpt(self.shape, self.loss(path), self.norm(path))
            torch.nn.init.normal_(model.head.weight, std=self.shape.width**-0.5)  # zeros would hide what a step does
            for block in model.blocks:
                torch.nn.init.normal_(block.output.weight, std=self.shape.width**-0.5)
                torch.nn.init.normal_(block.down.weight, std=self.shape.width**-0.5)
        model = model.to(getattr(torch, self.settings["dtype"]))
        if self.is_compiled:
            for block in model.blocks:  # all blocks of all models share the code of the first
                block.compile(dynamic=False)
        return model

    def forward(self, model: torch.nn.Module, batch: Batch) -> Tensor:
        loss: Tensor = model(batch.tokens, batch.targets)
        return loss

    def parts(
        self, path: str, batch: Batch, steps: int, synchronize: Callable[[], object], clock: Callable[[], float]
    ) -> Parts:
        """The clock is read only after all launched work is done."""
        model, seconds = self.model(path), {"data": 0.0, "forward": 0.0, "backward": 0.0}

        def lap(name: str, work: Callable[[], Any]) -> Any:
            synchronize()
            started = clock()
            done = work()
            synchronize()
            seconds[name] += clock() - started
            return done

        for _ in range(steps):
            moved = lap("data", lambda: Batch(batch.tokens.clone(), batch.targets.clone()))
            loss = lap("forward", lambda moved=moved: self.forward(model, moved))
            lap("backward", loss.backward)
            model.zero_grad()
        whole = sum(seconds.values())
        return {name: 100.0 * part / whole for name, part in seconds.items()}


def fused_loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return linear_cross_entropy(hidden, weight, targets, ignore_index=IGNORED, softcap=SOFTCAP)


def _liger_loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy as liger

    loss: Tensor = liger(hidden.flatten(0, -2), weight, targets.flatten(), ignore_index=IGNORED, softcap=SOFTCAP)
    return loss


def _in_chunks_of_liger(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Use as many rows per chunk as Liger does: its logits are as large as the hidden states, to a power of two."""
    rows = triton.next_power_of_2(triton.cdiv(targets.numel(), triton.cdiv(*weight.shape)))
    return linear_cross_entropy(hidden, weight, targets, ignore_index=IGNORED, softcap=SOFTCAP, chunk_rows=rows)


def _liger_norm(values: Tensor) -> Tensor:
    from liger_kernel.transformers.functional import liger_rms_norm

    ones = torch.ones(values.shape[-1], dtype=values.dtype, device=values.device)
    normed: Tensor = liger_rms_norm(values, ones, EPSILON)
    return normed


class _RowNorm(torch.autograd.Function):
    """Keeps the root mean square of each row for the backward pass, as Liger does."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        scale = (values.square().mean(dim=-1, keepdim=True) + EPSILON).rsqrt()
        normed = values * scale
        ctx.save_for_backward(normed, scale)
        return normed

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Tensor:
        normed, scale = ctx.saved_tensors
        return scale * (grad_outputs[0] - normed * (normed * grad_outputs[0]).mean(dim=-1, keepdim=True))
