"""The oracle of the Blackwell claims is transformers' Qwen2, and shares no code with the subjects."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from falsifiers.blackwell.measuring.block_cases import block_case
from falsifiers.blackwell.oracle.qwen2 import SHAPES, Shape, TrueBlock, TrueModel
from falsifiers.blackwell.reference import shapes as reference
from tests.falsifiers.distill.oracle.test_step import reached

ROOT = Path(__file__).parents[4]
SMALL = Shape(24, heads=4, kv_heads=2, intermediate=40)


def test_the_oracle_reaches_no_subject() -> None:
    found = reached(sorted((ROOT / "falsifiers" / "blackwell" / "oracle").glob("*.py")))
    assert [name for name in sorted(found) if {"reference", "mutants"} & set(name.split("."))] == []


def test_its_model_is_that_of_transformers() -> None:
    """The losses agree to about 1e-6, because transformers rounds to float32 in norms and rotary tables."""
    config = Qwen2Config(
        vocab_size=19, hidden_size=SMALL.hidden, intermediate_size=SMALL.intermediate, num_hidden_layers=2,
        num_attention_heads=SMALL.heads, num_key_value_heads=SMALL.kv_heads, rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6}, tie_word_embeddings=True,
    )  # fmt: skip
    theirs = Qwen2ForCausalLM(config).double().eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(parameter.numel()))
    named = dict(theirs.named_parameters())
    order = [
        named["model.embed_tokens.weight"], named["model.norm.weight"],
        *(
            named[f"model.layers.{layer}.{name}"]
            for layer in range(2)
            for name in (
                "input_layernorm.weight", "post_attention_layernorm.weight",
                "self_attn.q_proj.weight", "self_attn.q_proj.bias", "self_attn.k_proj.weight", "self_attn.k_proj.bias",
                "self_attn.v_proj.weight", "self_attn.v_proj.bias", "self_attn.o_proj.weight",
                "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight",
            )
        ),
    ]  # fmt: skip
    tokens = torch.randint(19, (3, 8), generator=torch.Generator().manual_seed(1))
    loss, gradients = TrueModel(SMALL, 2, 19).gradients(order, tokens)
    logits = theirs(tokens[:, :-1]).logits
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    assert loss == pytest.approx(float(expected.detach()), rel=1e-5)
    for found, right in zip(gradients, torch.autograd.grad(expected, order), strict=True):
        torch.testing.assert_close(found, right, rtol=1e-3, atol=1e-5)


def test_a_steep_case_overflows_a_softmax_without_its_maximum() -> None:
    """Half of the scores are above 89, whose exponential is infinite in float32, and half are below -104."""
    case, size = block_case(SMALL, (2, 9), 0, "cpu", steep=True), SMALL.head_dim
    normed = case.x * (case.x.square().mean(-1, keepdim=True) + SMALL.eps).rsqrt() * case.weights["input_norm"]
    q, k = ((normed @ case.weights[f"{name}.weight"].T + case.weights[f"{name}.bias"]) for name in "qk")
    offset = (q[..., :size] * k[..., :size]).sum(-1) / size**0.5
    assert 100 < float(offset.min()) < float(offset.median()) < 140
    assert (offset > 200).sum(-1).tolist() == [1, 1]  # one key of each sequence has scores far above all others
    assert -140 < float(((q[..., -size:] * k[..., -size:]).sum(-1) / size**0.5).max()) < -104
    assert 0.05 < SMALL.eps / float(case.x.square().mean(-1).median()) < 0.2


@pytest.mark.parametrize("model", SHAPES)
def test_the_shapes_agree_with_the_references(model: str) -> None:
    assert TrueBlock(SHAPES[model]).parameters == reference.SHAPES[model].parameters()
