"""The oracle of LoRA against autograd through the definition."""

from __future__ import annotations

import pytest
import torch

from falsifiers.distill.oracle.adapters import Adapters
from falsifiers.distill.oracle.qwen2 import NotTheModel


def test_gradients_are_those_of_the_definition() -> None:
    """Of A, of B, and of a weight that is trained whole; the loss is a sum of squares of a product."""
    generator = torch.Generator().manual_seed(0)
    base = {"q.weight": torch.randn(5, 7, generator=generator), "norm.weight": torch.ones(5)}
    trained = {
        "q.lora_A.weight": torch.randn(2, 7, generator=generator),
        "q.lora_B.weight": torch.randn(5, 2, generator=generator),
        "norm.weight": torch.randn(5, generator=generator),
    }
    inputs = torch.randn(7, 3, generator=generator).double()

    def loss(matrix: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
        return ((matrix @ inputs) * norm[:, None]).square().sum()

    own = {name: weight.double().requires_grad_() for name, weight in trained.items()}
    matrix = base["q.weight"].double() + 2.5 * own["q.lora_B.weight"] @ own["q.lora_A.weight"]
    loss(matrix, own["norm.weight"]).backward()

    adapters = Adapters(base, 2.5)
    merged = {name: weight.clone().requires_grad_() for name, weight in adapters.merged(trained).items()}
    torch.testing.assert_close(merged["q.weight"].detach(), matrix.detach())
    loss(merged["q.weight"], merged["norm.weight"]).backward()
    found = adapters.gradients(trained, {name: weight.grad for name, weight in merged.items()})  # type: ignore[misc]
    assert found.keys() == trained.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, own[name].grad)


@pytest.mark.parametrize("name", ["q.lora_A.weight", "other.lora_A.weight"])
def test_half_an_adapter_is_no_model(name: str) -> None:
    with pytest.raises(NotTheModel, match="lora_A"):
        Adapters({"q.weight": torch.ones(2, 2)}, 1.0).merged({name: torch.ones(1, 2)})
