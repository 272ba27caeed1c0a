"""Our attention against the reference, as examples/hstu/test/hstu_attn/test_fbgemm_hstu_smoke.py of recsys-examples.

The environment says on which GPU the test pretends to run, and how large the batch is: HSTU_CAPABILITY is the major
compute capability, HSTU_SIZES are batch, longest sequence and heads.
"""

import os

import pytest
import torch
from torch import Tensor

from falsifiers.recsys.attention_cases import question
from falsifiers.recsys.oracle.hstu import in_low_precision, truth
from falsifiers.recsys.reference.fused_attention import mask_of
from falsifiers.recsys.reference.hstu_attention import hstu_attention

CAPABILITY = int(os.environ.get("HSTU_CAPABILITY", "9"))
BATCH, LONGEST, HEADS = map(int, os.environ.get("HSTU_SIZES", "32 200 4").split())
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def hstu_close(actual: Tensor, low: Tensor, exact: Tensor, multiple: float) -> bool:
    """Return whether the largest error is at most so many times that of a computation in low precision."""
    largest, allowed = ((tensor.double() - exact).abs().max() for tensor in (actual, low))
    return bool(largest <= multiple * allowed)


@pytest.mark.parametrize("contextuals", [0, 4])
@pytest.mark.parametrize("head_dim", [32, 64, 128])
def test_hstu_smoke(head_dim: int, contextuals: int) -> None:
    """The output and the three gradients are as close to float64 as they can be."""
    if CAPABILITY == 10 and head_dim not in (64, 128):
        pytest.skip(f"no operator for sm_100 has heads of {head_dim}")
    if CAPABILITY == 10 and contextuals > 0:
        pytest.skip("no operator for sm_100 has contextual rows")
    generator = torch.Generator().manual_seed(head_dim + contextuals)
    lengths = torch.randint(LONGEST // 2, LONGEST + 1, (BATCH,), generator=generator)
    inputs = question(
        {
            "dtype": "bfloat16", "lengths": lengths.tolist(), "heads": HEADS, "width": head_dim,
            "value_width": head_dim, "targets": 3, "group": 1, "contextuals": contextuals or None, "window": 0,
            "full": 0, "causal": True, "scaling": 1.0, "layout": "contiguous", "seed": head_dim,
        },
        DEVICE,
    )  # fmt: skip
    exact, low = truth(inputs), in_low_precision(inputs)
    q, k, v = (tensor.detach().requires_grad_() for tensor in (inputs.q, inputs.k, inputs.v))
    out = hstu_attention(
        q, k, v, inputs.offsets, inputs.max_seqlen, alpha=inputs.alpha, scaling_seqlen=inputs.scaling_seqlen,
        mask=mask_of(inputs),
    )  # fmt: skip
    assert hstu_close(out, low[0], exact.out.value, 2)
    out.backward(inputs.grad_output)
    assert hstu_close(q.grad, low[1], exact.dq.value, 5)
    assert hstu_close(k.grad, low[2], exact.dk.value, 5)
    assert hstu_close(v.grad, low[3], exact.dv.value, 5)
