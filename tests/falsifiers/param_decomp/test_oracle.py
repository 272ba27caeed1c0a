"""The oracle shares no code with the subjects, and its target is the decoder of transformers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from falsifiers.param_decomp.chunk_forwards import chunks_of_first_step
from falsifiers.param_decomp.configuration import configuration_of
from falsifiers.param_decomp.oracle import model
from falsifiers.param_decomp.peak import LiveStorage, TooMuch
from falsifiers.param_decomp.reference.trainer import Decomposition
from falsifiers.param_decomp.statistics import chi_square_p, share_repeated, uniform_p
from harness import Setting
from tests.falsifiers.distill.oracle.test_step import reached

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
        name.removeprefix("model.").removesuffix(".weight"): tensor.mT
        for name, tensor in state.items()
        if name.startswith("model.layers") and "norm" not in name
    }
    weights |= {"embedding": state["model.embed_tokens.weight"], "head": state["lm_head.weight"].T}
    tokens = torch.arange(12).reshape(2, 6)
    with torch.no_grad():
        logits, residual = model.clean_forward(dataclasses.replace(config, first_layer=1), weights, tokens)
        expected = theirs(tokens, output_hidden_states=True)
    torch.testing.assert_close(logits, expected.logits, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(residual, expected.hidden_states[1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("statistic", "freedom", "p"), [(3.841, 1, 0.05), (15.507, 8, 0.05), (20.09, 8, 0.01)])
def test_chi_square_has_the_tables_values(statistic: float, freedom: int, p: float) -> None:
    """The values are the percentage points of the chi-square distribution."""
    assert chi_square_p(statistic, freedom) == pytest.approx(p, rel=2e-3)


def test_uniform_numbers_are_told_from_others() -> None:
    """A grid is too uniform to be refused. Squares of uniform numbers are refused."""
    grid = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000
    assert uniform_p(grid) == 1.0
    assert uniform_p(grid**2) < 1e-30


def test_repeated_numbers_are_counted() -> None:
    """If each number occurs twice, half of them are repeated."""
    grid = torch.arange(100, dtype=torch.float64) / 100
    assert share_repeated(grid) == 0.0
    assert share_repeated(grid.repeat(2)) == 0.5


class LastAlways(Decomposition):
    """Masks the last chunk in each forward."""

    def stochastic_maskings(self, chunk: list[str], *rest: Any) -> Any:
        """Take other names."""
        return super().stochastic_maskings(list(self.sites)[-len(chunk) :], *rest)


class Whole(Decomposition):
    """Masks all sites in each forward, each routed at some positions."""

    def stochastic_maskings(self, chunk: list[str], *rest: Any) -> Any:
        """Take all names."""
        return super().stochastic_maskings(list(self.sites), *rest)


def chunks(subject: type[Decomposition], folder: Path, **changes: Any) -> dict[str, Any]:
    parameters = {"configuration": "nine-layers-toy", "samples": 2, "adversarial": 0.0, **changes}
    return chunks_of_first_step(subject(Setting(parameters, "cpu", 0, folder, folder)), parameters)


@pytest.mark.parametrize("storage", ["real", "meta"])
@pytest.mark.parametrize("remat", [False, True])
def test_stochastic_forwards_are_seen(storage: str, remat: bool, tmp_path: Path) -> None:
    """The step has a clean forward too, and a backward pass that computes layers again."""
    found = chunks(Decomposition, tmp_path, storage=storage, remat=remat)
    assert found == {"components_at_size": [4], "sites_at_size": [9] * 6, "wrong_chunks_at_size": []}


@pytest.mark.parametrize(("subject", "sites", "wrong"), [(LastAlways, 9, 4), (Whole, 27, 6)])
def test_other_chunks_are_found(subject: type[Decomposition], sites: int, wrong: int, tmp_path: Path) -> None:
    found = chunks(subject, tmp_path, storage="meta")
    assert (found["sites_at_size"], len(found["wrong_chunks_at_size"])) == ([sites] * 6, wrong)


def test_what_lives_at_once_is_the_peak() -> None:
    """The peak is two of three tensors. A storage that was freed before does not count."""
    with LiveStorage() as storage:
        first = torch.ones(1000)
        second = first + 1
        del first
        third = second * 2
    assert storage.peak == 8000
    assert storage.live == 8000
    del second, third
    assert storage.live == 0


def test_views_and_results_in_place_are_no_new_storage() -> None:
    """Views, results in place, and storages from before the block do not count."""
    old = torch.ones(1000)
    with LiveStorage() as storage:
        old.add_(1).reshape(10, 100).mul_(2)
        old[:5].zero_()
    assert storage.peak == 0


def test_the_backward_pass_counts() -> None:
    """The gradient of a leaf stays alive."""
    leaf = torch.ones(1000, requires_grad=True)
    with LiveStorage() as storage:
        (leaf * leaf).sum().backward()
    assert storage.peak >= 8000
    assert storage.live == 4000


def test_an_operation_beyond_the_cap_is_refused() -> None:
    """An operation that reaches the cap exactly is allowed."""
    with LiveStorage(4000):
        torch.ones(1000)
    with pytest.raises(TooMuch), LiveStorage(3999):
        torch.ones(1000)
