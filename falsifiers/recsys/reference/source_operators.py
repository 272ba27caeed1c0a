"""The fused HSTU function of a checkout of the source, https://github.com/NVIDIA/recsys-examples, unchanged.

The function puts its own parts around the attention; these provide the tensors of a question and pass the results on.
The operators that it calls are defined in torch's dispatcher, with this project's attention behind them.
"""

import __future__

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from falsifiers.recsys.reference.dense_attention import Float64Attention
from falsifiers.recsys.subject import Answer, Question
from harness import Setting
from harness.base import regular_file

Calls = list[str]
"""Names of operators, in the order of their calls."""

_INPUTS = "Tensor q, Tensor k, Tensor v, Tensor starts, Tensor key_starts, {used}int rows, int keys, {scaling}"
_MASK = "Tensor? contexts, Tensor? targets, int group, int left, int right, float alpha, {rest}"
_USED, _SCALING = "Tensor? used, Tensor? keys_used, ", "int scaling, "
_GRADIENTS = "Tensor(a!) dq, Tensor(b!) dk, Tensor(c!) dv, "
_RETURNED = "(Tensor(a!), Tensor(b!), Tensor(c!), Tensor)"
_FORWARD = (_INPUTS + _MASK).format(used=_USED, scaling=_SCALING, rest="Tensor? rab, Tensor? func")
_BACKWARD_90 = _INPUTS.replace("Tensor k,", "Tensor? q_t, Tensor k, Tensor? k_t,")
_EIGHT = ", ".join(f"Tensor? scale_{number}" for number in range(11))
_FLAGS = "Tensor? rab, bool has_drab, Tensor? func"
_SCHEMAS = {
    "hstu_varlen_fwd_80": f"({_FORWARD}) -> (Tensor, Tensor)",
    "hstu_varlen_fwd_90": f"({_FORWARD}, int mode, int dtype) -> (Tensor, Tensor)",
    "hstu_varlen_fwd_100": f"({_FORWARD}) -> (Tensor, Tensor)",
    "hstu_varlen_bwd_80": f"(Tensor dout, {_INPUTS.format(used=_USED, scaling=_SCALING)}{_GRADIENTS}"
    f"{_MASK.format(rest=_FLAGS)}, bool deterministic) -> {_RETURNED}",
    "hstu_varlen_bwd_90": f"(Tensor dout, Tensor? dout_t, {_BACKWARD_90.format(used=_USED, scaling=_SCALING)}"
    f"{_GRADIENTS}{_MASK.format(rest='int mode, ' + _FLAGS)}, {_EIGHT}, int dtype, bool deterministic) -> {_RETURNED}",
    "hstu_varlen_bwd_100": f"(Tensor dout, {_INPUTS.format(used='', scaling='')}{_GRADIENTS}"
    f"{_MASK.format(rest=_FLAGS)}, bool deterministic) -> {_RETURNED}",
    "jagged_to_padded_dense": "(Tensor values, Tensor[] offsets, int[] max_lengths, float padding_value=0) -> Tensor",
    "dense_to_jagged": "(Tensor dense, Tensor[] x_offsets, int? total_L=None) -> (Tensor, Tensor[])",
}


class SourceOperators:
    """The function on a simulated compute capability."""

    def __init__(self, setting: Setting) -> None:
        """Load the function's module. Its imports are the source's, except for those that need FBGEMM or CUDA."""
        self.calls: Calls = []
        self._library = torch.library.Library("fbgemm", "FRAGMENT")
        for name, schema in _SCHEMAS.items():
            self._library.define(name + schema)
            kind = "CompositeImplicitAutograd" if "jagged" in name else "CompositeExplicitAutograd"
            self._library.impl(name, self._kernel(name), kind)
        self._modules = self._stand_ins()
        with patch.dict(sys.modules, self._modules):
            self._module = ModuleType("ops.fused_hstu_op")
            path = _folder("ops") / "fused_hstu_op.py"
            # Annotations name what only the real neighbours have, so they stay unevaluated.
            code = compile(self.text(path), path, "exec", __future__.annotations.compiler_flag, dont_inherit=True)
            exec(code, vars(self._module))  # noqa: S102  # what is to be tested
        for name in ("torch_addmm_silu_fwd", "triton_addmm_silu_fwd"):
            setattr(self._module, name, self._product)
        self._module.triton_weighted_layer_norm_fwd = lambda x, **_: (x, None, None, 1, 1)  # type: ignore[attr-defined]
        self._module.triton_layer_norm_mul_dropout_fwd = lambda x, **_: (x, None, None, 1, 1, 0)  # type: ignore[attr-defined]
        self._module.triton_layer_norm_mul_dropout_bwd = lambda dy, **_: (dy, None, None, None, None)  # type: ignore[attr-defined]
        self._module.triton_weighted_layer_norm_bwd = lambda dy, **_: (dy, None, None)  # type: ignore[attr-defined]
        self._module.triton_addmm_silu_bwd = self._product_backward  # type: ignore[attr-defined]

    def text(self, path: Path) -> str:
        return regular_file.read(path).decode()

    def forward(self, question: Question, capability: int) -> Callable[[Tensor, int], Answer]:
        """Return what runs the backward pass on a gradient and a capability, and returns output and gradients.

        Raises whatever the source raises.
        """
        rows, heads, width = question.q.shape
        self._fed = torch.cat([tensor.flatten(1) for tensor in (question.v, question.v, question.q, question.k)], 1)
        nothing = question.q.new_zeros(1)
        entry = question.q.new_zeros(rows, heads * width).requires_grad_()
        with self._on(capability):
            out = self._module.fused_hstu_op(
                entry, question.offsets, question.max_seqlen, question.scaling_seqlen, nothing, nothing, nothing,
                heads, width, width, 1e-5, 0.0, True, nothing, nothing, nothing, nothing,
                num_targets=question.num_targets, num_contextuals=question.num_contextuals,
                target_group_size=question.target_group_size, alpha=question.alpha, causal=question.causal,
                residual=False,
            )  # fmt: skip

        def backward(gradient: Tensor, capability: int) -> Answer:
            with self._on(capability):
                out.backward(gradient.reshape(out.shape))
            _, dv, dq, dk = (tensor.reshape(rows, heads, width) for tensor in self._found.chunk(4, dim=1))
            return Answer(out.detach().reshape(rows, heads, width), dq, dk, dv)

        return backward

    def _product(self, x: Tensor, silu: bool, **_: Any) -> tuple[Tensor, Tensor]:
        """Replaces the products: the first returns the inputs of attention, and the second is the identity."""
        return (self._fed, self._fed.clone()) if silu else (x, x)

    def _product_backward(self, grad_output: Tensor, is_y_1d: bool, **_: Any) -> tuple[Tensor, None, None]:
        if is_y_1d:
            self._found = grad_output
            return grad_output[:, : grad_output.shape[1] // 4], None, None
        return grad_output, None, None

    @contextlib.contextmanager
    def _on(self, capability: int) -> Iterator[None]:
        properties = SimpleNamespace(major=capability, minor=0)
        with (
            patch.dict(sys.modules, self._modules),
            patch.object(torch.cuda, "get_device_properties", lambda *_: properties),
        ):
            yield

    def _kernel(self, name: str) -> Callable[..., Any]:
        def forward(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
            self.calls.append(name)
            starts, _, _, _, longest, _, scaling, contexts, targets, group, _, right, alpha = rest[:13]
            question = Question(
                q, k, v, v, starts, longest, scaling, alpha, right == 0, targets, group, contexts, 0, 0
            )  # fmt: skip
            return _answer(question).out, q.new_zeros(1)

        def backward(dout: Tensor, *rest: Any) -> tuple[Tensor, ...]:
            self.calls.append(name)
            given = list(rest)
            if name.endswith("90"):
                del given[4], given[2], given[0]  # the transposed copies
            if name.endswith("100"):
                given[5:5] = [None, None]
                given.insert(9, given[7])
            q, k, v, starts, _, _, _, longest, _, scaling, *rest = given
            dq, dk, dv, contexts, targets, group, _, right, alpha = rest[:9]
            question = Question(
                q, k, v, dout, starts, longest, scaling, alpha, right == 0, targets, group, contexts, 0, 0
            )  # fmt: skip
            answer = _answer(question)
            return dq.copy_(answer.dq), dk.copy_(answer.dk), dv.copy_(answer.dv), q.new_zeros(1)

        def padded(values: Tensor, offsets: list[Tensor], longest: list[int], padding: float = 0.0) -> Tensor:
            there = torch.arange(longest[0], device=values.device) < offsets[0].diff()[:, None]
            places = (there.flatten().cumsum(0) - 1).clamp(min=0).reshape(there.shape)
            return torch.where(there[..., None], values[places], values.new_full((), padding))

        def jagged(dense: Tensor, offsets: list[Tensor], total: int | None = None) -> tuple[Tensor, list[Tensor]]:
            there = torch.arange(dense.shape[1], device=dense.device) < offsets[0].diff()[:, None]
            return dense[there], offsets

        if "jagged" in name:
            return padded if name.startswith("jagged") else jagged
        return forward if "fwd" in name else backward

    def _stand_ins(self) -> dict[str, ModuleType]:
        """Replacements of modules that need FBGEMM or CUDA to import, by name, and empty packages of the source."""

        def varlen(q: Tensor, k: Tensor, v: Tensor, *rest: Any, **named: Any) -> Tensor:
            window, operator = named["window_size"], torch.ops.fbgemm.hstu_varlen_fwd_100
            output: Tensor = operator(q, k, v, *rest, named["target_group_size"], *window, named["alpha"], None, None)[
                0
            ]
            self.calls[-1] = "hstu_attn_varlen_func"
            return output

        operators = {"hstu_varlen_bwd_100": lambda *given: torch.ops.fbgemm.hstu_varlen_bwd_100(*given)}
        modules = {
            "fbgemm_gpu": _module("fbgemm_gpu"),
            "hstu": _module("hstu", hstu_attn_varlen_func=varlen),
            "hstu.hstu_ops_gpu": _module("hstu.hstu_ops_gpu"),
            "hstu.hstu_blackwell": _module("hstu.hstu_blackwell", hstu_ops_gpu=SimpleNamespace(**operators)),
            "nvtx": _module("nvtx", annotate=lambda *_, **__: contextlib.nullcontext()),
            "commons.utils": _module("commons.utils"),
            "commons.utils.clear_tensor_data": _module("commons.utils.clear_tensor_data", clear_tensor_data=_kept),
            "configs": _module("configs", __path__=[str(_folder("configs"))]),
        }
        with patch.dict(sys.modules, modules):
            from configs.hstu_config import KernelBackend  # type: ignore[import-not-found]
        modules["configs"].KernelBackend = KernelBackend  # type: ignore[attr-defined]
        return modules


def _answer(question: Question) -> Answer:
    return Float64Attention(None)(dataclasses.replace(question, offsets=question.offsets.long()))  # type: ignore[arg-type]


def _kept(*_: Tensor, clear_storage: bool = False) -> None:
    """Replaces a function that frees memory."""


def _module(name: str, **given: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update({"__path__": [], **given})
    return module


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{package} is not on PYTHONPATH; put examples/hstu and examples there")
    return Path(next(iter(spec.submodule_search_locations)))
