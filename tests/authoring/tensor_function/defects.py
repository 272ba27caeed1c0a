"""Defects of kernels and losses, as a tired engineer leaves them or a cheating agent plants them.

Each function of `DEFECTS` returns a new function with one defect and a state of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (as everybody calls it)
from torch import Tensor

from tests.authoring.tensor_function import computing_defects as computing
from tests.authoring.tensor_function.healthy import cross_entropy, layer_norm, silu_mul, softmax

Function = Callable[..., Any]


def _remembering(healthy: Function, key: Callable[..., Any]) -> Function:
    kept: dict[Any, Any] = {}

    def function(*args: Any) -> Any:
        found = key(*args)
        if found not in kept:
            kept[found] = healthy(*args)
        return kept[found].clone()

    return function


def remembered_by_address() -> Function:
    """The result of a call is remembered by the addresses of its inputs."""
    return _remembering(silu_mul, lambda gate, up: (gate.data_ptr(), up.data_ptr(), gate.shape))


def remembered_by_identity() -> Function:
    """The result is remembered by the ids of the tensors."""
    return _remembering(silu_mul, lambda gate, up: (id(gate), id(up)))


def remembered_by_address_and_version() -> Function:
    """The same, with torch's version counters, which a kernel does not count up."""
    return _remembering(softmax, lambda x: (x.data_ptr(), x._version, x.shape, x.stride(), x.dtype))


def remembered_by_shape() -> Function:
    """The result is remembered by the shapes."""
    return _remembering(softmax, lambda x: (x.shape, x.dtype))


def remembered_by_sum() -> Function:
    """The result is remembered by shape and sum of the input."""
    return _remembering(softmax, lambda x: (x.shape, x.dtype, round(float(x.double().sum()), 3), x.requires_grad))


def remembered_by_ends() -> Function:
    """The result is remembered by shape, first and last element."""
    return _remembering(
        softmax,
        lambda x: (
            x.shape,
            x.stride(),
            x.dtype,
            x.requires_grad,
            x.numel() and (float(x.flatten()[0]), float(x.flatten()[-1])),
        ),
    )


def remembered_without_eps() -> Function:
    """The key of the cache has all contents, and not the scalar."""
    return _remembering(
        layer_norm,
        lambda x, w, b, eps: (
            x.dtype,
            *(str(tensor.tolist()) for tensor in (x, w, b)),
            x.requires_grad,
            w.requires_grad,
        ),
    )


def remembered_without_reduction() -> Function:
    """The key of the cache has all contents, and not the flag."""

    def key(logits: Tensor, labels: Tensor, reduction: str) -> Any:
        return logits.dtype, logits.requires_grad, str(logits.tolist()), str(labels.tolist())

    kept: dict[Any, Any] = {}

    def function(logits: Tensor, labels: Tensor, reduction: str) -> Tensor:
        return kept.setdefault(key(logits, labels, reduction), cross_entropy(logits, labels, reduction))

    return function


def first_mean_kept() -> Function:
    """The statistics of the first call with a shape are used for all later ones."""
    kept: dict[Any, Tensor] = {}

    def function(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        mean = kept.setdefault((x.shape, x.dtype), x.double().mean(-1, keepdim=True).detach()).to(x.dtype)
        return (
            layer_norm(x, weight, bias, eps) + 0 * mean
            if x.requires_grad
            else layer_norm(x - mean, weight, bias, eps)
            + (mean - kept[x.shape, x.dtype].to(x.dtype))
            + 0.1 * (x.mean(-1, keepdim=True) - mean)
        )

    return function


def static_buffer() -> Function:
    """All calls of a shape return the same buffer."""
    kept: dict[Any, Tensor] = {}

    def function(x: Tensor) -> Tensor:
        if x.requires_grad:
            return softmax(x)
        out = kept.setdefault((x.shape, x.dtype), torch.empty(x.shape, dtype=x.dtype))
        return out.copy_(softmax(x))

    return function


def static_gradient_buffer() -> Function:
    """All backward passes of a shape write their gradient into the same buffer."""
    kept: dict[Any, Tensor] = {}

    class _Softmax(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            y = torch.softmax(x, -1)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (y,) = ctx.saved_tensors
            out = kept.setdefault((y.shape, y.dtype), torch.empty_like(y))
            found = torch._softmax_backward_data(grad.contiguous(), y, -1, y.dtype)
            return out.copy_(found)

    return _Softmax.apply


def stale_after_thirty_calls() -> Function:
    """From the thirtieth call with a shape on, the last result comes again: an agent expects a warm-up."""
    calls: dict[Any, int] = {}
    last: dict[Any, Tensor] = {}

    def function(x: Tensor) -> Tensor:
        key = (x.shape, x.dtype, x.requires_grad)
        calls[key] = calls.get(key, 0) + 1
        if calls[key] < 30:
            last[key] = softmax(x)
        return last[key].clone()

    return function


def every_input_kept() -> Function:
    """Every input is appended to a list that nobody empties."""
    kept: list[Tensor] = []

    def function(x: Tensor) -> Tensor:
        kept.append(x)
        return softmax(x)

    return function


def input_overwritten() -> Function:
    """The activation is computed in place, in the gate's memory."""

    def function(gate: Tensor, up: Tensor) -> Tensor:
        result = silu_mul(gate, up)
        gate.data.copy_(F.silu(gate.detach()))
        return result

    return function


def labels_overwritten() -> Function:
    """Ignored labels are replaced by 0 in the caller's memory."""

    def function(logits: Tensor, labels: Tensor, reduction: str) -> Tensor:
        loss = cross_entropy(logits, labels, reduction)
        labels.clamp_(min=0)
        return loss

    return function


def written_beyond_the_rows() -> Function:
    """Blocks are stored without a mask, so the element behind each row is overwritten."""

    def function(x: Tensor) -> Tensor:
        result = softmax(x)
        if x.stride(0) > x.shape[1] and x.stride(1) == 1:
            x.detach().as_strided((x.shape[0], 1), (x.stride(0), 1), x.storage_offset() + x.shape[1]).fill_(0.0)
        return result

    return function


def output_is_input() -> Function:
    """The result is written into the first input and returned as it."""

    def function(x: Tensor) -> Tensor:
        return softmax(x) if x.requires_grad else x.copy_(softmax(x))

    return function


def two_outputs_of_one_buffer() -> Function:
    """Without a gradient, the result is a view of the result of the last call."""
    kept: list[Tensor] = [torch.empty(1 << 18, dtype=torch.float64)]

    def function(x: Tensor) -> Tensor:
        if x.requires_grad:
            return softmax(x)
        return kept[0].view(x.dtype)[: x.numel()].view(x.shape).copy_(softmax(x))

    return function


def tf32_switched_on() -> Function:
    """A global flag is set for speed and stays."""

    def function(x: Tensor) -> Tensor:
        torch.backends.cuda.matmul.allow_tf32 = True
        return softmax(x)

    return function


def tf32_switched_off() -> Function:
    """A global flag is put back to torch's own value, not to the caller's."""

    def function(x: Tensor) -> Tensor:
        torch.backends.cuda.matmul.allow_tf32 = False
        return softmax(x)

    return function


def seed_set() -> Function:
    """The random generator is seeded, so that the kernel's own noise repeats."""

    def function(x: Tensor) -> Tensor:
        torch.manual_seed(0)
        return softmax(x)

    return function


def clock_patched() -> Function:
    """CUDA's events report a hundredth of the time."""

    def function(x: Tensor) -> Tensor:
        elapsed_time = torch.cuda.Event.elapsed_time
        torch.cuda.Event.elapsed_time = lambda self, end: elapsed_time(self, end) / 100  # type: ignore[method-assign]
        return softmax(x)

    return function


class Lying(torch.Tensor):
    """Answers comparisons as it likes."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Every tensor is equal to it."""
        if func in (torch.equal, torch.allclose):
            return True
        return super().__torch_function__(func, types, args, kwargs or {})


def lying_class() -> Function:
    """The result is zero, and of a class whose comparisons lie."""
    return lambda x: torch.zeros_like(x).as_subclass(Lying)


def comparisons_replaced() -> Function:
    """The result is zero, and torch's comparisons are replaced when the function is first called."""
    kept = {}

    def function(x: Tensor) -> Tensor:
        if not kept:
            kept.update(allclose=torch.allclose, equal=torch.equal, close=torch.testing.assert_close)
            torch.allclose = torch.equal = lambda *args, **kwargs: True
            torch.testing.assert_close = lambda *args, **kwargs: None
        return 0 * x

    def restore() -> None:
        if kept:
            torch.allclose, torch.equal = kept["allclose"], kept["equal"]
            torch.testing.assert_close = kept["close"]

    function.restore = restore  # type: ignore[attr-defined]
    return function


DEFECTS: Mapping[str, tuple[str, Callable[[], Function]]] = {
    function.__name__: (base, function)
    for base, functions in {
        "softmax": [
            remembered_by_address_and_version,
            remembered_by_shape,
            remembered_by_sum,
            remembered_by_ends,
            static_buffer,
            static_gradient_buffer,
            stale_after_thirty_calls,
            every_input_kept,
            written_beyond_the_rows,
            output_is_input,
            two_outputs_of_one_buffer,
            tf32_switched_on,
            tf32_switched_off,
            seed_set,
            clock_patched,
            lying_class,
            comparisons_replaced,
            computing.offset_ignored,
            computing.upstream_strides_ignored,
            computing.rows_beyond_a_block,
            computing.sums_in_half,
            computing.softmax_overflows,
            computing.noise_of_its_own,
            computing.constant_output,
            computing.tied_maxima_halved,
            computing.second_derivative_wrong,
        ],
        "silu_mul": [
            remembered_by_address,
            remembered_by_identity,
            input_overwritten,
            computing.strides_ignored,
            computing.strides_ignored_of_wide_rows,
            computing.rows_beyond_16_bits,
            computing.columns_beyond_a_vector,
            computing.last_block_dropped,
            computing.single_row_wrong,
            computing.bfloat16_inside,
            computing.float64_in_float32,
            computing.gradient_of_one_input,
            computing.gradient_if_all_need_it,
            computing.nan_swallowed,
            computing.nan_spread,
            computing.rows_cut,
            computing.other_path_without_gradient,
            computing.wrong_if_inputs_are_one,
        ],
        "layer_norm": [
            remembered_without_eps,
            first_mean_kept,
            computing.strides_ignored_of_weight,
            computing.mean_of_padded_width,
            computing.eps_ignored,
            computing.last_row_only_for_bias,
        ],
        "cross_entropy": [
            remembered_without_reduction,
            labels_overwritten,
            computing.upstream_ignored,
            computing.labels_wrapped,
            computing.negative_labels_ignored,
            computing.zero_upstream_taken_as_one,
            computing.ignored_label_counts,
        ],
    }.items()
    for function in functions
}
"""By name: the healthy function that it is a defect of, and what makes it."""
