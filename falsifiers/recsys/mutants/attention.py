"""An attention whose defect is too large for a patch."""

import dataclasses

import torch

from falsifiers.recsys.reference.dense_attention import Float64Attention
from falsifiers.recsys.subject import Answer, Question


class NextSequenceSeen(Float64Attention):
    """The last row of a sequence attends to the first row of the next one too."""

    def __call__(self, question: Question) -> Answer:
        """Add the contribution of that key to the output and to the value's gradient."""
        answer = super().__call__(question)
        ends = question.offsets[1:-1]
        ends = ends[(ends > 0) & (ends < len(question.q))]
        q, k, v, grad_output = (
            tensor.double() for tensor in (question.q, question.k, question.v, question.grad_output)
        )
        scores = (q[ends - 1] * k[ends]).sum(dim=-1, keepdim=True) * question.alpha
        weights = torch.nn.functional.silu(scores) / question.scaling_seqlen
        out, dv = answer.out.double(), answer.dv.double()
        out[ends - 1] += weights * v[ends]
        dv[ends] += weights * grad_output[ends - 1]
        return dataclasses.replace(answer, out=out.to(answer.out.dtype), dv=dv.to(answer.dv.dtype))
