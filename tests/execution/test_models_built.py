"""What a trial's log says of the models that its code builds."""

from __future__ import annotations

import sys
import types

import pytest

from harness.execution.news import ModelsBuilt, tensors_of

torch = pytest.importorskip("torch")


class Net(torch.nn.Module):  # type: ignore[misc]
    """A model with a part, a tied and a frozen parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 5, bias=False)
        self.again = torch.nn.Linear(3, 5, bias=False)
        self.again.weight = self.first.weight
        self.scale = torch.nn.Parameter(torch.ones(2, dtype=torch.float16), requires_grad=False)

    def parameters(self, recurse: bool = True) -> object:  # type: ignore[override]
        """Would tell something else, if it were asked."""
        raise AssertionError("no method of a model is called")


@pytest.fixture
def models() -> ModelsBuilt:
    """They hear of modules as in a trial."""
    models = ModelsBuilt()
    models.listen()
    return models


def test_a_model_is_described_by_what_torch_made(models: ModelsBuilt) -> None:
    """A parameter that is used twice counts once. A part is no model of its own."""
    net = Net()
    ((text, kind),) = models.news()
    assert kind == "Net"
    assert text == ("Net: 17 parameters, 15 of them trained, 64 bytes, 3 modules, float16 and float32 on cpu")
    assert models.news() == []
    del net


def test_a_model_that_is_gone_is_not_described(models: ModelsBuilt) -> None:
    """The log does not keep models alive."""
    Net()
    assert models.news() == []


def test_the_tensors_of_a_subject_are_described() -> None:
    """Also those of a kernel's subject, which has no model."""

    class Kernel:
        def __init__(self) -> None:
            self.weights = torch.ones(2, 3, dtype=torch.bfloat16)
            self.name = "add"

    assert tensors_of(Kernel()) == ["weights: bfloat16[2, 3] on cpu"]
    assert tensors_of(3) == []


def test_something_else_in_the_place_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is silent on models then, and the trial goes on."""
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    for name in [name for name in sys.modules if name.startswith("torch.")]:
        monkeypatch.delitem(sys.modules, name)
    models = ModelsBuilt()
    models.listen()
    assert models.news() == []
