"""The fused loss for the falsifiers."""

import torch

from falsifiers.nanochat.head_question import HeadQuestion
from falsifiers.nanochat.reference.linear_cross_entropy import linear_cross_entropy
from falsifiers.nanochat.subject import Answer
from harness import Setting

_DEFAULTS = {
    "ignore_index": -100, "label_smoothing": 0.0, "z_loss": 0.0, "softcap": 0.0, "reduction": "mean",
    "accumulate_float32": False, "chunk_rows": None,
}  # fmt: skip
"""The documented defaults of the loss's options."""
_MANY = 256
"""From this many rows on, 32 chunks."""


def chunk_rows(rows: int) -> int:
    """Return the rows of a chunk: 1/32 of 256 rows or more, as Liger has 32 chunks for 65,536 rows."""
    return max(8, -(-rows // 32))


class FusedLoss:
    """Our loss, in up to 32 chunks; if a few rows are summed in float32, it chooses the chunks itself."""

    def __init__(self, setting: Setting) -> None: ...

    def __call__(self, question: HeadQuestion) -> Answer:
        """Options with default values are not passed, as other callers do."""
        options = {name: getattr(question, name, None) for name in _DEFAULTS}
        options["accumulate_float32"] = question.float32_sums
        rows = len(question.targets)
        options["chunk_rows"] = None if question.float32_sums and rows < _MANY else chunk_rows(rows)
        hidden = question.hidden.detach().requires_grad_(question.frozen != "hidden")
        weight = question.weight.detach().requires_grad_(question.frozen != "weight")
        with torch.enable_grad():
            loss = linear_cross_entropy(
                hidden,
                weight,
                question.targets,
                **{name: value for name, value in options.items() if value != _DEFAULTS[name]},
            )
        trained = [tensor for tensor in (hidden, weight) if tensor.requires_grad]
        gradients = iter(torch.autograd.grad(loss, trained, question.upstream.to(loss.dtype)))
        grad_hidden, grad_weight = (
            next(gradients) if tensor.requires_grad else torch.zeros_like(tensor) for tensor in (hidden, weight)
        )
        return Answer(loss.detach(), grad_hidden, grad_weight)
