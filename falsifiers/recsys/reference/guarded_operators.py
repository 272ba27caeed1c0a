"""The dispatch and the guards of examples/hstu/ops/fused_hstu_op.py.

All operators run our kernels, so only the table and the guards correspond to the named GPUs. Forward and backward have
the same guard.
"""

import torch
from torch import Tensor

from falsifiers.recsys.reference.fused_attention import mask_of
from falsifiers.recsys.reference.hstu_attention import hstu_attention, passes_for
from falsifiers.recsys.subject import Question, Way
from harness import Setting

_OPERATORS = {
    8: {"forward": "hstu_varlen_fwd_80", "backward": "hstu_varlen_bwd_80"},
    9: {"forward": "hstu_varlen_fwd_90", "backward": "hstu_varlen_bwd_90"},
    10: {"forward": "hstu_attn_varlen_func", "backward": "hstu_varlen_bwd_100"},
}
_WIDTHS = {8: (32, 64, 128), 9: (32, 64, 128), 10: (64, 128)}


class GuardedOperators:
    """The dispatch table, and its guards before our kernels."""

    def __init__(self, setting: Setting) -> None: ...

    def operator(self, way: Way, capability: int) -> str:
        if capability not in _OPERATORS:
            raise ValueError(f"no operator is for compute capability {capability}; there are those for {[*_OPERATORS]}")
        return _OPERATORS[capability][way]

    def forward(self, question: Question, capability: int) -> Tensor:
        self.guard(question, capability, "forward")
        with torch.no_grad():
            return hstu_attention(
                question.q, question.k, question.v, question.offsets, question.max_seqlen, alpha=question.alpha,
                scaling_seqlen=question.scaling_seqlen, mask=mask_of(question),
            )  # fmt: skip

    def backward(self, question: Question, capability: int) -> tuple[Tensor, Tensor, Tensor]:
        self.guard(question, capability, "backward")
        mask, tensors = mask_of(question), (question.q, question.k, question.v, question.offsets)
        passes = passes_for(
            *tensors, question.max_seqlen, alpha=question.alpha, scaling_seqlen=question.scaling_seqlen, mask=mask
        )
        return passes.backward(question.grad_output, *tensors, mask)

    def guard(self, question: Question, capability: int, way: Way) -> None:
        """Raise ValueError for inputs that the GPU does not support."""
        self.operator(way, capability)
        width = question.q.shape[2]
        if width not in _WIDTHS[capability]:
            raise ValueError(f"heads are {width} wide; compute capability {capability} supports {_WIDTHS[capability]}")
        if question.q.dtype not in (torch.bfloat16, torch.float16):
            raise ValueError(f"q is {question.q.dtype}; give bfloat16 or float16")
        contextuals = question.num_contextuals
        if capability == 10 and contextuals is not None and bool(contextuals.any()):
            raise ValueError("compute capability 10 does not support contextual tokens")
