"""The block agrees with transformers' Qwen2 and with autograd, in float64."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import Qwen2Config
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RotaryEmbedding

from falsifiers.blackwell.measuring.operation_cases import LARGEST, LARGEST_BATCH, product_errors
from falsifiers.blackwell.reference.block import Block, new_weights
from falsifiers.blackwell.reference.model import LanguageModel
from falsifiers.blackwell.reference.shapes import PROJECTIONS, SHAPES, BlockShape
from falsifiers.blackwell.reference.torch_backend import CublasBackend, TorchBackend
from harness.base.vocabulary import Outcome
from harness.contract.project import Project
from tests.falsifiers.in_process import judged

_SHAPES = [SHAPES["qwen2-tiny"], BlockShape(hidden=48, heads=6, kv_heads=2, intermediate=20, eps=1e-3, theta=100.0)]
_THEIRS = {"input_norm": "input_layernorm.weight", "post_norm": "post_attention_layernorm.weight"} | {
    f"{name}.{kind}": f"{'mlp' if name in ('gate', 'up', 'down') else 'self_attn'}.{name}_proj.{kind}"
    for name in PROJECTIONS
    for kind in ("weight", "bias")
}


def qwen2(shape: BlockShape, weights: dict[str, Tensor]) -> tuple[Qwen2DecoderLayer, Qwen2RotaryEmbedding]:
    """The block of transformers with our weights, in float64."""
    config = Qwen2Config(
        hidden_size=shape.hidden,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        intermediate_size=shape.intermediate,
        rms_norm_eps=shape.eps,
        rope_parameters={"rope_type": "default", "rope_theta": shape.theta},
        attn_implementation="eager",
    )
    layer = Qwen2DecoderLayer(config, 0).double()
    layer.load_state_dict({_THEIRS[name]: weight for name, weight in weights.items()})
    return layer, Qwen2RotaryEmbedding(config)


@pytest.mark.parametrize("shape", _SHAPES)
def test_output_and_gradients_are_qwen2s(shape: BlockShape) -> None:
    """The tolerance is 1e-6, because transformers computes rotations in float32."""
    weights = new_weights(shape, 1, dtype=torch.float64)
    theirs, rotary = qwen2(shape, weights)
    x = torch.randn(3, 10, shape.hidden, dtype=torch.float64, requires_grad=True)
    gradient = torch.randn(3, 10, shape.hidden, dtype=torch.float64)
    mask = torch.full((10, 10), float("-inf"), dtype=torch.float64).triu(1)
    expected = theirs(x, attention_mask=mask, position_embeddings=rotary(x, torch.arange(10).unsqueeze(0)))
    expected.backward(gradient)

    block = Block(shape, TorchBackend())
    output, saved = block.forward(x.detach(), weights)
    of_x, of_weights = block.backward(saved, weights, gradient)

    torch.testing.assert_close(output, expected.detach(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(of_x, x.grad, rtol=1e-6, atol=1e-6)
    assert of_weights.keys() == shape.parameters().keys()
    for name, found in of_weights.items():
        torch.testing.assert_close(found, theirs.get_parameter(_THEIRS[name]).grad, rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("shape", _SHAPES)
def test_the_backward_is_that_of_the_forward(shape: BlockShape) -> None:
    """Autograd through our own forward pass gives the written backward pass, to rounding."""
    weights = {name: w.requires_grad_() for name, w in new_weights(shape, 2, dtype=torch.float64).items()}
    x = torch.randn(2, 7, shape.hidden, dtype=torch.float64, requires_grad=True)
    gradient = torch.randn(2, 7, shape.hidden, dtype=torch.float64)
    block = Block(shape, TorchBackend())
    output, saved = block.forward(x, weights)
    expected = torch.autograd.grad(output, [x, *weights.values()], gradient)
    with torch.no_grad():
        of_x, of_weights = block.backward(saved, weights, gradient)
    for found, wanted in zip([of_x, *(of_weights[name] for name in weights)], expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


def test_a_model_of_blocks_learns() -> None:
    """In twenty steps on a text that repeats, the loss falls and every parameter moves."""
    shape = SHAPES["qwen2-tiny"]
    model = LanguageModel(shape, [Block(shape, TorchBackend())] * 2, 16, seed=3, device=torch.device("cpu"))
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = torch.arange(33).remainder(11).unsqueeze(0)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = model.loss(tokens)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
    assert all(not torch.equal(weight, before[name]) for name, weight in model.named_parameters())


def test_the_score_workspace_is_what_the_post_mortem_says() -> None:
    """heads * S^2 * 4 bytes are 56 GiB for each block at Qwen2's longest sequence (aprender #1808).

    No memory is allocated.
    """
    shape = SHAPES["qwen2-0.5b"]
    weights = {name: torch.empty(size, device="meta") for name, size in shape.parameters().items()}
    _, saved = Block(shape, TorchBackend()).forward(torch.empty(1, 32_768, shape.hidden, device="meta"), weights)
    assert saved.probabilities.nbytes == 60_129_542_144


def test_cublas_refuses_what_it_would_not_serve() -> None:
    """On a CPU another library would multiply, so the backend refuses."""
    with pytest.raises(RuntimeError, match="CUDA device"):
        CublasBackend().matmul(torch.ones(2, 2), torch.ones(2, 2))


def test_shapes_are_qwen2s() -> None:
    """24 blocks of Qwen2-0.5B with the embedding and the last norm have 494,032,768 parameters."""
    sizes = [torch.Size(size).numel() for size in SHAPES["qwen2-0.5b"].parameters().values()]
    assert 24 * sum(sizes) + 151_936 * 896 + 896 == 494_032_768


class Largest(TorchBackend):
    """Records the elements of the largest batch, and computes nothing."""

    elements = 0

    def matmul(
        self, a: torch.Tensor, b: torch.Tensor, *, transpose_a: bool = False, transpose_b: bool = False
    ) -> torch.Tensor:
        result = torch.empty(a.shape[0], a.shape[2 if transpose_a else 1], b.shape[1 if transpose_b else 2])
        self.elements = max(self.elements, a.numel(), b.numel(), result.numel())
        return result


def test_the_largest_batch_is_named() -> None:
    """Seed 20 draws this batch. An adapter with room for two matrices refused it, and a healthy subject failed."""
    backend = Largest()
    product_errors(backend, 20, "cpu")
    assert backend.elements == LARGEST_BATCH > 2 * LARGEST


_CONTRACT = Project.find(Path(__file__).parent).contract("F-BLACKWELL-ABLATION-001")


def test_the_cap_is_the_fix(tmp_path: Path) -> None:
    """Four blocks are enough to run out of memory."""
    assert not judged(_CONTRACT, _CONTRACT.subject, tmp_path, blocks=4).with_outcome(Outcome.FAIL)


@pytest.mark.parametrize("name", ["workspace-by-kernels", "every-second-attempt-fails"])
def test_a_mutant_fails_its_clauses(tmp_path: Path, name: str) -> None:
    """Two causes that are needed together, and a failure without a cause."""
    (mutant,) = (mutant for mutant in _CONTRACT.mutants if mutant.id == name)
    judgment = judged(_CONTRACT, mutant.subject, tmp_path, mutant, blocks=4)
    assert set(mutant.violates) <= {clause.id for clause in judgment.with_outcome(Outcome.FAIL)}
