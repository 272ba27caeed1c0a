"""The ignored rows with which torch.compile makes Liger's fused cross-entropy wrong; needs a GPU and liger-kernel.

python -m benchmarks.liger_compiled

The rows are four chunks of Liger's. Before each call, 64 freed tensors leave the number 7 in the memory from which the
loss of the rows is allocated. The table has the loss without and with torch.compile, and the sum of the gradients'
sizes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__: list[str] = []

_ROWS, _WIDTH, _VOCABULARY = 256, 1024, 4096
_IGNORED = {
    "none": slice(0, 0),
    "first chunk": slice(0, 64),
    "second chunk": slice(64, 128),
    "last chunk": slice(192, 256),
    "half of the first chunk": slice(0, 32),
    "every second": slice(0, 256, 2),
    "all but one": slice(0, 255),
    "all": slice(0, 256),
}


def main() -> None:
    """Print a line for each backend, with and without captured scalars, and each choice of rows."""
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    module = LigerFusedLinearCrossEntropyLoss(ignore_index=-1)
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(_ROWS, _WIDTH, generator=generator).cuda()
    weight = (torch.randn(_VOCABULARY, _WIDTH, generator=generator) / _WIDTH**0.5).cuda()
    targets = torch.randint(_VOCABULARY, (_ROWS,), generator=generator)

    def loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        return module(weight, hidden, targets)  # type: ignore[no-any-return]

    for backend in ("inductor", "aot_eager"):
        for captured in (False, True):
            for name, rows in _IGNORED.items():
                ignored = targets.clone()
                ignored[rows] = -1
                torch._dynamo.reset()
                with torch._dynamo.config.patch(capture_scalar_outputs=captured):
                    eager = _called(loss, hidden, weight, ignored.cuda())
                    compiled = _called(
                        torch.compile(loss, backend=backend, dynamic=False), hidden, weight, ignored.cuda()
                    )
                scalars = "captured" if captured else "by default"
                print(
                    f"{backend:10} {scalars:11} {name:24} {eager[0]:10.4f} {compiled[0]:10.4f}",
                    *eager[1:],
                    *compiled[1:],
                )


def _called(loss: Callable[..., Tensor], hidden: Tensor, weight: Tensor, targets: Tensor) -> tuple[float, float, float]:
    used = [torch.full((_ROWS,), 7.0, device="cuda") for _ in range(64)]
    del used
    leaves = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    value = loss(*leaves, targets)
    of_hidden, of_weight = torch.autograd.grad(value, leaves)
    return float(value.detach()), float(of_hidden.abs().sum()), float(of_weight.abs().sum())


if __name__ == "__main__":
    main()
