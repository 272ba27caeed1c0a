"""The oracle shares no code with the subjects, and its target is the decoder of transformers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from falsifiers.param_decomp.configuration import configuration_of
from falsifiers.param_decomp.oracle import model
from tests.falsifiers.distill.oracle.test_independence import reached

ORACLE = Path(__file__).parents[3] / "falsifiers" / "param_decomp" / "oracle"


def test_the_oracle_reaches_no_subject() -> None:
    """The oracle imports neither the reference nor a mutant, directly or through another module."""
    found = reached(sorted(ORACLE.glob("*.py")))
    assert "falsifiers.param_decomp.oracle.terms" in found
    assert [name for name in sorted(found) if {"reference", "mutants"} & set(name.split("."))] == []


def test_the_target_is_a_llama_decoder() -> None:
    """Its clean logits equal those of transformers' Llama with the same weights, in float64."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = dataclasses.replace(configuration_of({"configuration": "toy"}), layers=2)
    theirs = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocabulary,
            hidden_size=config.hidden,
            intermediate_size=config.intermediate,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
            tie_word_embeddings=False,
        )
    ).double()
    state = theirs.state_dict()
    weights = {
        name.removeprefix("model.").removesuffix(".weight"): one.mT
        for name, one in state.items()
        if name.startswith("model.layers") and "norm" not in name
    }
    weights |= {"embedding": state["model.embed_tokens.weight"], "head": state["lm_head.weight"].T}
    tokens = torch.arange(12).reshape(2, 6)
    with torch.no_grad():
        logits, residual = model.clean_forward(dataclasses.replace(config, first_layer=1), weights, tokens)
        expected = theirs(tokens, output_hidden_states=True)
    torch.testing.assert_close(logits, expected.logits, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(residual, expected.hidden_states[1], rtol=1e-6, atol=1e-6)
