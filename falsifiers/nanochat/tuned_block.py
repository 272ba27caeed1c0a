"""Compiles a block of nanochat with its gradients in a process whose environment sets how products are tuned.

As in the changelog's trainer, the environment is set before torch is imported; then Inductor's `is_big_gpu` is patched
to return True.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

import torch
import torch._inductor.utils as inductor
from torch import Tensor, nn
from torch._inductor import config

from falsifiers.nanochat.reference.model import Gpt, Shape
from falsifiers.nanochat.small_gpu import gpu_of, of_triton

_DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def seen(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether Inductor is set to tune and, with rows, how it tuned each product and how far gradients are off.

    Args:
        given: `multiprocessors` that the GPU pretends to have, `rows` of a batch or 0, the `seed`, and `sequence`,
            `width` and `heads` of a model with one block.
    """
    result: dict[str, Any] = {"is_set": bool(config.max_autotune_gemm)}
    if not given["rows"]:
        return result
    from torch._inductor import select_algorithm

    choices: list[int] = []
    select_algorithm.add_feedback_saver(lambda timings, *_: choices.append(of_triton(timings)))
    torch.manual_seed(given["seed"])
    with gpu_of(given["multiprocessors"]), config.patch(force_disable_caches=True):
        inductor.is_big_gpu = lambda index=0: True  # the changelog's line
        shape = Shape(1, given["width"], given["heads"], vocabulary=256, sequence=given["sequence"])
        model = Gpt(shape).to(_DEVICE, torch.bfloat16)
        for weight in model.parameters():
            nn.init.normal_(weight, std=0.02)
        tokens = torch.randint(256, (given["rows"], given["sequence"]), device=_DEVICE)
        plain = _gradients(model, model.hidden(tokens))
        tuned = _gradients(model, torch.compile(model.hidden)(tokens))
    distances = [float((gradient - right).norm() / right.norm()) for gradient, right in zip(tuned, plain, strict=True)]
    return {**result, "choices": choices, "gradient_error": max(distances)}


def _gradients(model: Gpt, hidden: Tensor) -> list[Tensor]:
    weights = [*model.blocks.parameters()]
    generator = torch.Generator(_DEVICE).manual_seed(1)
    aim = torch.randn(hidden.shape, device=_DEVICE, generator=generator, dtype=hidden.dtype)
    return [gradient.float() for gradient in torch.autograd.grad(hidden, weights, aim)]


if __name__ == "__main__":
    print(json.dumps(seen(json.loads(sys.argv[1]))))
