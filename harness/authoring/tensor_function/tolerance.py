"""What a function should return, in float64, and how far rounding alone can take each element from that.

The reference runs once in float64. Then it runs several times with random relative errors, and the deviations show
which error each element can have: Monte Carlo arithmetic (D. S. Parker, "Monte Carlo Arithmetic", UCLA CSD-970002,
1997). The gradients are those of autograd in the same runs.

- Each operation of torch that the reference calls rounds its result to the dtype of the case, as torch does it.
- Within an operation, numbers round to float32, or to float64 for float64: the inputs of one that is more than a sum, a
  product or a quotient are perturbed, and its result. The inputs of the function are perturbed, too.
- The terms of a sum or difference of two are perturbed as results of their own, since another implementation may not
  round both alike.
- Equal numbers round alike, so the errors of equal rows do not cancel.
- The error of a sum is as large as the sum of the absolute values of its summands, times the root of their number: the
  sizes of the summands decide, not that of the sum.

So the reference should call torch's own operation where there is one, such as `torch.softmax`: a formula of several
operations can be more exact than it, above all in its gradient. Integers and booleans are compared where all runs
agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from harness.authoring.tensor_function.call import Call, filled
from harness.authoring.tensor_function.known_operations import STEPS

__all__ = ["FACTORS", "Expected", "Truth", "UnfitReference", "truth"]

_RUNS: Final = 8
_MARGIN: Final = 16.0
"""Times the root mean square of the deviations. Healthy implementations stay below a half of that."""
_HIDDEN: Final = 4.0
"""Times the rounding of one number: an operation such as softmax has several intermediate results."""
FACTORS: Final = {"float32": 2.0**-24, "tf32": 2.0**-11, "bfloat16": 2.0**-9}
"""The largest relative error of a number that is rounded to each of these."""
_aten = torch.ops.aten


class UnfitReference(ValueError):
    """The reference gives no answer in float64. The text says why."""


@dataclass(frozen=True)
class Expected:
    """One tensor of the answer.

    Attributes:
        value: float64, or the reference's own dtype for integers and booleans.
        bound: how far each element may be away; NaN where it is not compared.
        is_demanded: where the reference is finite in float32 too, if the values are extreme; else everywhere.
    """

    value: Tensor
    bound: Tensor
    dtype: torch.dtype


@dataclass(frozen=True)
class Truth:
    """The right answer to a call: outputs, and gradients of the wanted tensors."""

    outputs: tuple[Expected, ...]
    gradients: tuple[Expected, ...]


class _Rounding(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Perturbs the result of every operation that rounds."""

    def __init__(self, unit: float, inner: float, generator: torch.Generator, step: float = 0.0) -> None:
        """Args:
        unit: relative error of the results of operations.
        inner: that of the numbers within them.
        step: from one of the smallest numbers to the next.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self._unit, self._inner, self._generator, self._step = unit, inner, generator, step
        self.inputs: set[int] = set()
        """The addresses of the function's own inputs, which have no rounding."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler, which takes seconds

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.is_view or func in _EXACT:
            return func(*args, **kwargs)
        if func in STEPS:
            with _Rounding(0.0, self._inner, self._generator) as within:
                within.inputs = self.inputs
                results = STEPS[func](*args, **kwargs)
        elif (sizes := self._summands(func, args, kwargs)) is not None:
            results = func(*args, **kwargs)
            self._add(results, sizes)
        else:
            count = max((arg.numel() for arg in args if isinstance(arg, Tensor)), default=1)
            unit = self._unit or self._inner
            size = unit if func in _DIFFERENCES else 0.0 if func in _SIMPLE else _HIDDEN * self._inner
            results = func(*[self._perturbed(arg, size, func in _DIFFERENCES) for arg in args], **kwargs)
            inner = self._inner * (1.0 if func in _SIMPLE | _DIFFERENCES else _HIDDEN)
            for result in _results(results):
                result.mul_(1.0 + inner * math.sqrt(max(1.0, count / max(1, result.numel()))) * self.noise(result))
        for result in _results(results) if self._unit else ():
            noise = self.noise(result)
            result.mul_(1.0 + self._unit * noise).add_(0.5 * self._step * noise * (result != 0))
        return results

    def _perturbed(self, value: Any, size: float, spares_inputs: bool) -> Any:
        if not size or not _is_real(value) or (spares_inputs and value.data_ptr() in self.inputs):
            return value
        return value * (1.0 + size * self.noise(value))

    def _summands(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor | None] | None:
        """For each result, the sum of the absolute values of the summands, times the root of their number."""
        if func not in _SUMS:
            return None
        absolute = [arg.abs() if isinstance(arg, Tensor) and arg.is_floating_point() else arg for arg in args]
        if func in _IN_PLACE:
            absolute[0] = absolute[0].clone()
        results = func(*absolute, **kwargs)
        numbers = [arg.numel() for arg in args if isinstance(arg, Tensor)]
        sums: list[Tensor | None] = []
        for result in results if isinstance(results, tuple) else (results,):
            if result is None or not result.is_floating_point():
                sums.append(None)
            elif func in _PRODUCTS:  # [m, k] and [k, n] have m k k n elements to the m n of the product
                sums.append(result * (numbers[0] * numbers[1] / max(1, result.numel())) ** 0.25)
            else:
                sums.append(result * (max(numbers) / max(1, result.numel())) ** 0.5)
        return sums

    def _add(self, results: Any, sizes: Sequence[Tensor | None]) -> None:
        for result, size in zip(results if isinstance(results, tuple) else (results,), sizes, strict=True):
            if size is not None:
                result.add_(self._inner * self.noise(result) * size)

    def noise(self, values: Tensor) -> Tensor:
        """A number from -1 to 1 for each value: drawn anew in each call, and the same for equal values."""
        first, factor = torch.randint(1 << 62, (2,), generator=self._generator).tolist()
        bits = values.detach().to(torch.float64).contiguous().view(torch.int64)
        for shift in (32, 29):  # a multiplication moves low bits up, a shift moves high bits down
            bits = (bits ^ first ^ (bits >> shift)) * (factor | 1)
        return (bits >> 11).to(torch.float64) / 2.0**52


def _overloads(*names: str) -> frozenset[Any]:
    packets = (getattr(_aten, name, None) for name in names)
    return frozenset(
        getattr(packet, overload) for packet in packets if packet is not None for overload in packet.overloads()
    )


def _results(results: Any) -> list[Tensor]:
    return [result for result in (results if isinstance(results, tuple | list) else (results,)) if _is_real(result)]


def _is_real(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


_PRODUCTS = _overloads("mm", "bmm", "convolution", "convolution_backward")
_IN_PLACE = _overloads("index_add_", "scatter_add_", "index_put_", "_index_put_impl_")
_SUMS = (
    _PRODUCTS
    | _IN_PLACE
    | _overloads("sum", "mean", "cumsum", "index_add", "scatter_add", "dot", "index_put", "embedding_dense_backward")
)
_DIFFERENCES = _overloads("add", "sub", "rsub")
_SIMPLE = _overloads("add_", "sub_", "mul", "mul_", "div", "div_", "reciprocal", "sqrt", "rsqrt", "square") | frozenset(
    overload for overload in _overloads("pow") if "Scalar" in overload._overloadname
)
_EXACT = _overloads(
    "neg", "abs", "sign", "sgn", "where", "relu", "clamp", "clamp_min", "clamp_max", "maximum", "minimum", "max", "min",
    "amax", "amin", "cat", "stack", "copy_", "copy", "clone", "_to_copy", "index", "index_select", "gather", "scatter",
    "scatter_", "masked_fill", "masked_fill_", "fill", "fill_", "zero_", "zeros", "zeros_like", "ones", "ones_like",
    "full", "full_like", "new_zeros", "new_ones", "new_full", "empty", "empty_like", "new_empty", "new_empty_strided",
    "empty_strided", "arange", "scalar_tensor", "lift_fresh", "detach", "sort", "topk", "flip", "roll", "tril", "triu",
    "embedding", "repeat", "constant_pad_nd", "threshold", "threshold_backward", "eq", "ne", "lt", "gt", "le", "ge",
    "select_backward", "slice_backward", "isnan", "isinf", "logical_not", "logical_and", "bitwise_and", "bitwise_or",
    "bitwise_not", "max_pool2d_with_indices", "_local_scalar_dense", "lift", "set_", "resize_", "as_strided", "floor",
    "ceil", "round", "trunc", "_unsafe_view", "masked_select", "nonzero", "slice_scatter", "select_scatter",
)  # fmt: skip


def truth(
    reference: Callable[..., Any], call: Call, dtype: str, *, factors: str = "float32", slack: float = 1.0
) -> Truth:
    """The right answer to a call, on the CPU.

    Args:
        dtype: that of the case, whose rounding is allowed.
        factors: what products may round their factors to, one of FACTORS.
        slack: times the bound.

    Raises:
        UnfitReference: it raises, returns no float64 for float64, or another number of outputs than upstream gradients.
    """
    kind = getattr(torch, dtype)
    unit = torch.finfo(kind).eps / 2
    inner = unit if kind == torch.float64 else FACTORS[factors]
    exact = _run(reference, call, None)
    noisy = []
    for number in range(_RUNS):
        generator = torch.Generator().manual_seed(number)
        noisy.append(_run(reference, call, _Rounding(unit, inner, generator, _smallest(kind))))
    outputs, gradients = (
        tuple(
            _expected(value, [run[group][place] for run in noisy], kind, slack)
            for place, value in enumerate(exact[group])
        )
        for group in (0, 1)
    )
    return Truth(outputs, gradients)


def _smallest(dtype: torch.dtype) -> float:
    """The step of the smallest numbers. Those of float16 keep their denormals, others flush them to zero."""
    info = torch.finfo(dtype)
    return float(info.tiny * (info.eps if dtype == torch.float16 else 1.0))


def _expected(value: Tensor, noisy: Sequence[Tensor], dtype: torch.dtype, slack: float) -> Expected:
    if not value.is_floating_point():
        agree = torch.stack([sample == value for sample in noisy]).all(dim=0)
        return Expected(value, torch.where(agree, 0.0, math.nan), value.dtype)
    if value.dtype != torch.float64:
        raise UnfitReference(f"the reference returns {value.dtype} for float64; let it compute in its inputs' dtype")
    spread = torch.stack([sample - value for sample in noisy]).square().mean(dim=0).sqrt()
    relative = spread / value.abs().clamp_min(1e-300)
    known = relative[(spread > 0) & relative.isfinite()]
    usual = float(known.median()) if known.numel() else 0.0
    info = torch.finfo(dtype)
    bound = _MARGIN * torch.maximum(spread, torch.where(spread > 0, usual * value.abs(), 0.0))
    bound = slack * (bound + info.eps * value.abs() + _smallest(dtype))
    return Expected(value, bound, dtype)


def _run(reference: Callable[..., Any], call: Call, mode: _Rounding | None) -> tuple[list[Tensor], list[Tensor]]:
    tensors = [_exact_copy(tensor, mode) for tensor in call.tensors]
    if call.twice:
        tensors[call.twice[1]] = tensors[call.twice[0]]
    for place in call.wanted:
        tensors[place].requires_grad_(True)
    args, kwargs = filled(call.arguments, tensors)
    try:
        if mode is None:
            return _outputs(reference, call, args, kwargs, tensors)
        mode.inputs = {tensor.data_ptr() for tensor in tensors}
        with mode:
            return _outputs(reference, call, args, kwargs, tensors)
    except UnfitReference:
        raise
    except Exception as error:
        raise UnfitReference(f"the reference raises in float64: {type(error).__name__}: {error}") from error


def _outputs(
    reference: Callable[..., Any], call: Call, args: list[Any], kwargs: dict[str, Any], tensors: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    outputs = _flat(reference(*args, **kwargs))
    shown = [output.detach() for output in outputs]
    if not (call.upstream and call.wanted):
        return shown, []
    upstream = [gradient.detach().to("cpu", torch.float64) for gradient in call.upstream]
    pairs = [(output, up) for output, up in zip(outputs, upstream, strict=False) if output.requires_grad]
    sources = [tensors[place] for place in call.wanted]
    if not pairs:
        return shown, [torch.zeros_like(source) for source in sources]
    again = bool(call.second)
    ends, ups = [output for output, _ in pairs], [up for _, up in pairs]
    grads: Sequence[Tensor | None]
    grads = torch.autograd.grad(ends, sources, ups, create_graph=again, allow_unused=True)
    if again:
        factors = [factor.detach().to("cpu", torch.float64) for factor in call.second]
        products = zip(grads, factors, strict=True)
        terms = [(grad * by).sum() for grad, by in products if grad is not None and grad.requires_grad]
        grads = [None] * len(sources)
        if terms:
            grads = torch.autograd.grad([torch.stack(terms).sum()], sources, allow_unused=True)
    both = zip(sources, grads, strict=True)
    gradients = [torch.zeros_like(source) if grad is None else grad.detach() for source, grad in both]
    return shown, gradients


def _exact_copy(tensor: Tensor, mode: _Rounding | None) -> Tensor:
    exact = tensor.detach().to("cpu", torch.float64 if tensor.is_floating_point() else tensor.dtype, copy=True)
    if mode is not None and exact.is_floating_point():
        exact.mul_(1.0 + mode._inner * mode.noise(exact))
    return exact


def _flat(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if value is None:
        return []
    if isinstance(value, int | float):
        return [torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in _flat(item)]
    if hasattr(value, "__dataclass_fields__"):
        return [tensor for name in value.__dataclass_fields__ for tensor in _flat(getattr(value, name))]
    return [tensor for item in value for tensor in _flat(item)]
