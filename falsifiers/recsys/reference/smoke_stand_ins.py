"""A pytest plugin for the source's smoke test: it simulates a GPU, and replaces FBGEMM's attention.

A test's folder names the compute capability and the wrong result of the attention: `right_on_9`, `dq_on_10`. All other
imports of the test are the source's.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from falsifiers.recsys.reference.dense_attention import Float64Attention
from falsifiers.recsys.subject import Answer, Question

__all__: list[str] = []

_WRONG_BY = 1.25
"""The factor of a wrong result. The source's test allows five times bfloat16's error, about 0.02 of the maximum."""
_pretended = SimpleNamespace(major=0, minor=0)
_wrong = SimpleNamespace(part="right")
_library = torch.library.Library("fbgemm", "FRAGMENT")
_OPERATORS = {
    "asynchronous_complete_cumsum": "(Tensor lengths) -> Tensor",
    "jagged_to_padded_dense": "(Tensor values, Tensor[] offsets, int[] max_lengths, float padding_value=0) -> Tensor",
    "dense_to_jagged": "(Tensor dense, Tensor[] x_offsets, int? total_L=None) -> (Tensor, Tensor[])",
}


class _Attention(torch.autograd.Function):
    """The attention of this project in float64, rounded to the dtype of its inputs."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, options: tuple[Any, ...]) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.options = options
        return _given(_answer(q, k, v, v, options), "out")

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        answer = _answer(*ctx.saved_tensors, gradients[0], ctx.options)
        return _given(answer, "dq"), _given(answer, "dk"), _given(answer, "dv"), None


def _answer(q: Tensor, k: Tensor, v: Tensor, gradient: Tensor, options: tuple[Any, ...]) -> Answer:
    offsets, longest, scaling, alpha, causal, targets, group, contexts = options
    question = Question(
        q, k, v, gradient, offsets.long(), longest, scaling, alpha, causal, targets, group, contexts, 0, 0
    )
    return Float64Attention(None)(question)  # type: ignore[arg-type]


def _given(answer: Answer, part: str) -> Tensor:
    tensor: Tensor = getattr(answer, part)
    return tensor * _WRONG_BY if part == _wrong.part else tensor


def _varlen(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, *rest: Any, **named: Any) -> Tensor:
    _, _, _, longest, _, scaling, contexts, targets = rest
    causal = named["window_size"][1] == 0
    options = starts, longest, scaling, named["alpha"], causal, targets, named["target_group_size"], contexts
    output: Tensor = _Attention.apply(q, k, v, options)  # type: ignore[no-untyped-call]
    return output


def _sums(lengths: Tensor) -> Tensor:
    return torch.nn.functional.pad(lengths.cumsum(0), (1, 0))


def _padded(values: Tensor, offsets: list[Tensor], longest: list[int], padding: float = 0.0) -> Tensor:
    valid = torch.arange(longest[0], device=values.device) < offsets[0].diff()[:, None]
    places = (valid.flatten().cumsum(0) - 1).clamp(min=0).reshape(valid.shape)
    return torch.where(valid[..., None], values[places], values.new_full((), padding))


def _jagged(dense: Tensor, offsets: list[Tensor], total: int | None = None) -> tuple[Tensor, list[Tensor]]:
    valid = torch.arange(dense.shape[1], device=dense.device) < offsets[0].diff()[:, None]
    return dense[valid], offsets


def _module(name: str, **given: Any) -> None:
    sys.modules[name] = ModuleType(name)
    vars(sys.modules[name]).update({"__path__": [], **given})


def pytest_configure() -> None:
    """Define FBGEMM's operators, and packages whose own imports need CUDA."""
    for (name, schema), function in zip(_OPERATORS.items(), (_sums, _padded, _jagged), strict=True):
        _library.define(name + schema)
        _library.impl(name, function, "CompositeImplicitAutograd")
    _module("fbgemm_gpu")
    _module("hstu", hstu_attn_varlen_func=_varlen)
    commons = find_spec("commons")
    assert commons is not None
    _module("commons.utils", __path__=[f"{place}/utils" for place in commons.submodule_search_locations or ()])
    torch.cuda.get_device_properties = lambda *_: _pretended
    torch.cuda.synchronize = lambda *_: None


@pytest.fixture(autouse=True)
def _folder(request: pytest.FixtureRequest) -> None:
    """Read capability and part from the folder, and seed the random numbers."""
    _wrong.part, _, capability = request.path.parent.name.partition("_on_")
    _pretended.major = int(capability)
    torch.manual_seed(0)
