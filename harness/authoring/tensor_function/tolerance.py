"""The expected result of a function in float64, and a bound on the rounding error of each element.

The reference runs once in float64, then several times with random relative errors. The deviations give the error bound
of each element: Monte Carlo arithmetic (D. S. Parker, "Monte Carlo Arithmetic", UCLA CSD-970002, 1997). Autograd
computes the gradients in the same runs.

- The result of each torch operation is perturbed as if rounded to the dtype of the case, as torch rounds it.
- Within an operation, intermediate results round to float32 (float64 for float64). So an operation beyond a sum,
  product or quotient has its inputs and its result perturbed. The function's own inputs are perturbed too.
- Both operands of an addition or subtraction are perturbed independently, because implementations may round them
  differently.
- Equal numbers get equal errors, so the errors of equal rows do not cancel.
- The error of a reduction is proportional to the sum of the absolute values of its terms, times the square root of
  their number. It does not depend on the size of the result.

So the reference should call torch's operation where one exists, such as `torch.softmax`. A formula of several
operations can be more accurate, above all in its gradient, and the bound would then be too tight. Integers and booleans
are compared only where all runs agree.
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
from harness.authoring.tensor_function.hosting import tensors_of
from harness.authoring.tensor_function.known_operations import STEPS

__all__ = ["FACTORS", "Expected", "Truth", "UnfitReference", "truth"]

_RUNS: Final = 8
_MARGIN: Final = 16.0
"""The bound in multiples of the root mean square deviation. Correct implementations stay below half of it."""
_HIDDEN: Final = 4.0
"""Error within an operation such as softmax, in multiples of one rounding: it has several intermediate results."""
FACTORS: Final = {"float32": 2.0**-24, "tf32": 2.0**-11, "bfloat16": 2.0**-9}
"""Unit roundoff (largest relative rounding error) by format."""
_aten = torch.ops.aten


class UnfitReference(ValueError):
    """The reference cannot be evaluated in float64. The text states the reason."""


@dataclass(frozen=True)
class Expected:
    """One expected tensor.

    Attributes:
        value: in float64, or in the reference's dtype for integers and booleans.
        bound: the absolute error bound of each element; NaN for elements that are not compared.
        dtype: the dtype of the case, or that of `value` for integers and booleans.
    """

    value: Tensor
    bound: Tensor
    dtype: torch.dtype


@dataclass(frozen=True)
class Truth:
    """The expected outputs of a call, and the gradients of `Call.grad_inputs`."""

    outputs: tuple[Expected, ...]
    gradients: tuple[Expected, ...]


class _Rounding(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Perturbs the result of every operation that rounds."""

    def __init__(self, unit: float, inner: float, generator: torch.Generator, step: float = 0.0) -> None:
        """Args:
        unit: relative error of the results of operations.
        inner: relative error of intermediate results within operations.
        step: the spacing of the smallest numbers of the dtype.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self._unit, self._inner, self._generator, self._step = unit, inner, generator, step
        self.inputs: set[int] = set()
        """Addresses of the function's inputs, which are already rounded."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # with True torch imports its compiler, which takes seconds

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
        """Return for each result the sum of absolute terms times the square root of their number; None for no sum."""
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
            elif func in _PRODUCTS:  # (m·k · k·n / (m·n)) ** 0.25 is the square root of k
                sums.append(result * (numbers[0] * numbers[1] / max(1, result.numel())) ** 0.25)
            else:
                sums.append(result * (max(numbers) / max(1, result.numel())) ** 0.5)
        return sums

    def _add(self, results: Any, sizes: Sequence[Tensor | None]) -> None:
        for result, size in zip(results if isinstance(results, tuple) else (results,), sizes, strict=True):
            if size is not None:
                result.add_(self._inner * self.noise(result) * size)

    def noise(self, values: Tensor) -> Tensor:
        """Return pseudorandom numbers from -1 to 1: other ones in each call, but equal ones for equal values."""
        first, factor = torch.randint(1 << 62, (2,), generator=self._generator).tolist()
        bits = values.detach().to(torch.float64).contiguous().view(torch.int64)
        for shift in (32, 29):  # mixes high bits into low ones by shifts, low ones into high ones by multiplication
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
    """Compute the expected answer to a call on the CPU, with error bounds.

    Args:
        dtype: the dtype of the case, whose rounding the bounds allow.
        factors: the precision of the factors of products, a key of `FACTORS`.
        slack: a factor for the bounds.

    Raises:
        UnfitReference: the reference raises, or does not return float64 for float64 inputs.
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
            _expected(value, [run[group][index] for run in noisy], kind, slack)
            for index, value in enumerate(exact[group])
        )
        for group in (0, 1)
    )
    return Truth(outputs, gradients)


def _smallest(dtype: torch.dtype) -> float:
    """Return the spacing of the smallest numbers. float16 has denormals; other dtypes may flush them to zero."""
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
    median = float(known.median()) if known.numel() else 0.0
    info = torch.finfo(dtype)
    bound = _MARGIN * torch.maximum(spread, torch.where(spread > 0, median * value.abs(), 0.0))
    bound = slack * (bound + info.eps * value.abs() + _smallest(dtype))
    return Expected(value, bound, dtype)


def _run(reference: Callable[..., Any], call: Call, mode: _Rounding | None) -> tuple[list[Tensor], list[Tensor]]:
    tensors = [_exact_copy(tensor, mode) for tensor in call.tensors]
    if call.twice:
        tensors[call.twice[1]] = tensors[call.twice[0]]
    for index in call.grad_inputs:
        tensors[index].requires_grad_(True)
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
    outputs = tensors_of(reference(*args, **kwargs))
    detached = [output.detach() for output in outputs]
    if not (call.upstream and call.grad_inputs):
        return detached, []
    upstream = [gradient.detach().to("cpu", torch.float64) for gradient in call.upstream]
    pairs = [(output, up) for output, up in zip(outputs, upstream, strict=False) if output.requires_grad]
    sources = [tensors[index] for index in call.grad_inputs]
    if not pairs:
        return detached, [torch.zeros_like(source) for source in sources]
    is_double_backward = bool(call.second)
    ends, upstream_used = [output for output, _ in pairs], [up for _, up in pairs]
    grads: Sequence[Tensor | None]
    grads = torch.autograd.grad(ends, sources, upstream_used, create_graph=is_double_backward, allow_unused=True)
    if is_double_backward:
        factors = [factor.detach().to("cpu", torch.float64) for factor in call.second]
        products = zip(grads, factors, strict=True)
        terms = [(grad * by).sum() for grad, by in products if grad is not None and grad.requires_grad]
        grads = [None] * len(sources)
        if terms:
            grads = torch.autograd.grad([torch.stack(terms).sum()], sources, allow_unused=True)
    both = zip(sources, grads, strict=True)
    gradients = [torch.zeros_like(source) if grad is None else grad.detach() for source, grad in both]
    return detached, gradients


def _exact_copy(tensor: Tensor, mode: _Rounding | None) -> Tensor:
    exact = tensor.detach().to("cpu", torch.float64 if tensor.is_floating_point() else tensor.dtype, copy=True)
    if mode is not None and exact.is_floating_point():
        exact.mul_(1.0 + mode._inner * mode.noise(exact))
    return exact
