"""The Triton kernels for the falsifiers."""

import torch

from falsifiers.recsys.reference.hstu_attention import HstuMask, hstu_attention
from falsifiers.recsys.subject import Answer, Question
from harness import Setting


def mask_of(question: Question) -> HstuMask:
    return HstuMask(
        question.causal, question.num_targets, question.target_group_size, question.num_contextuals,
        question.max_attn_len, question.min_full_attn_seq_len,
    )  # fmt: skip


class FusedAttention:
    """HSTU attention in Triton."""

    def __init__(self, setting: Setting) -> None: ...

    def __call__(self, question: Question) -> Answer:
        leaves = tuple(tensor.detach().requires_grad_() for tensor in (question.q, question.k, question.v))
        stated = {"scaling_seqlen": question.scaling_seqlen} if question.scaling_seqlen != question.max_seqlen else {}
        with torch.enable_grad():
            out = hstu_attention(
                *leaves, question.offsets, question.max_seqlen, alpha=question.alpha, mask=mask_of(question), **stated
            )
        return Answer(out.detach(), *torch.autograd.grad(out, leaves, question.grad_output))
