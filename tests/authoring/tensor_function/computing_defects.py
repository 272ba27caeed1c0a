"""Defects of what is computed: strides, sizes, dtypes, gradients, values. See `defects.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (as everybody calls it)
from torch import Tensor

from tests.authoring.tensor_function.healthy import cross_entropy, layer_norm, silu_mul, softmax

Function = Callable[..., Any]


def _dense(x: Tensor) -> Tensor:
    """The memory from the first element on, as if it were contiguous."""
    if not x.numel():
        return x
    size = min(x.numel(), x.untyped_storage().nbytes() // x.element_size() - x.storage_offset())
    flat = x.as_strided((size,), (1,), x.storage_offset())
    return F.pad(flat, (0, x.numel() - size)).view(x.shape)


def strides_ignored() -> Function:
    """A kernel gets the pointer, and reads the rows as if they were contiguous."""
    return lambda gate, up: silu_mul(_dense(gate), up)


def strides_ignored_of_wide_rows() -> Function:
    """The fast path for rows of whole vectors ignores strides."""
    return lambda gate, up: silu_mul(_dense(gate) if gate.shape[-1] % 16 == 0 else gate, up)


def rows_beyond_16_bits() -> Function:
    """The number of a row is kept in 16 bits, so later rows are not written."""
    return lambda gate, up: torch.cat([silu_mul(gate[: 2**15], up[: 2**15]), torch.zeros_like(gate[2**15 :])])


def columns_beyond_a_vector() -> Function:
    """Columns from the 32nd on are not computed."""
    return lambda gate, up: torch.cat([silu_mul(gate[:, :32], up[:, :32]), torch.zeros_like(gate[:, 32:])], dim=1)


def strides_ignored_of_weight() -> Function:
    """The weight of the norm is read as if it were contiguous."""
    return lambda x, weight, bias, eps: layer_norm(x, _dense(weight), bias, eps)


def offset_ignored() -> Function:
    """A kernel gets the pointer of the storage, not that of the first element."""
    return lambda x: softmax(x.as_strided(x.shape, x.stride(), 0) if x.storage_offset() else x)


class _UpstreamDense(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(y := torch.softmax(x, -1))
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return torch._softmax_backward_data(_dense(grad), y, -1, y.dtype)


def upstream_strides_ignored() -> Function:
    """The backward kernel reads the upstream gradient as if it were contiguous."""
    return _UpstreamDense.apply


def last_block_dropped() -> Function:
    """Elements behind the last whole block of 128 stay zero."""

    def function(gate: Tensor, up: Tensor) -> Tensor:
        result = silu_mul(gate, up)
        width = gate.shape[-1]
        if width > 128 and width % 128:
            keep = (torch.arange(width) < width - width % 128).to(result.dtype)
            return result * keep
        return result

    return function


def rows_beyond_a_block() -> Function:
    """The grid has 1024 programs at most; further rows are those of the first."""

    def function(x: Tensor) -> Tensor:
        result = softmax(x)
        return torch.cat([result[:1024], result[: max(0, x.shape[0] - 1024)]])

    return function


def mean_of_padded_width() -> Function:
    """The mean is taken over the block, which is padded to a power of two, beyond 64 elements."""

    def function(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        width = x.shape[-1]
        padded = 1 << max(0, width - 1).bit_length()
        if width <= 64:
            return layer_norm(x, weight, bias, eps)
        centred = x.double() - x.double().sum(-1, keepdim=True) / padded
        normal = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
        return (normal * weight + bias).to(x.dtype)

    return function


def single_row_wrong() -> Function:
    """A batch of one row takes a path of its own, with a doubled scale."""
    return lambda gate, up: silu_mul(gate, up) * (2.0 if gate.shape[0] == 1 else 1.0)


def sums_in_half() -> Function:
    """The norm of a softmax in half precision is summed in half precision, one element after the other."""

    def function(x: Tensor) -> Tensor:
        if x.dtype not in (torch.float16, torch.bfloat16):
            return softmax(x)
        powers = (x.float() - x.float().amax(-1, keepdim=True)).exp().to(x.dtype)
        norm = torch.zeros_like(powers[..., :1])
        for part in powers.split(1, dim=-1):
            norm = norm + part
        return powers / norm

    return function


def bfloat16_inside() -> Function:
    """Everything is computed in bfloat16 for speed, and returned in the input's dtype."""
    return lambda gate, up: silu_mul(gate.bfloat16(), up.bfloat16()).to(gate.dtype)


def float64_in_float32() -> Function:
    """A kernel loads as float32, whatever it gets."""
    return lambda gate, up: silu_mul(gate.float(), up.float()).to(gate.dtype)


def gradient_of_one_input() -> Function:
    """The second input gets no gradient."""
    return lambda gate, up: silu_mul(gate, up.detach())


def gradient_if_all_need_it() -> Function:
    """The gradient of the second input is computed only if the first needs one, too."""
    return lambda gate, up: silu_mul(gate, up if gate.requires_grad else up.detach() + 0 * up)


class _UpstreamIgnored(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, reduction: str) -> Tensor:
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            loss = cross_entropy(leaf, labels, reduction)
            (found,) = torch.autograd.grad(loss.sum(), [leaf])
        ctx.save_for_backward(found)
        return loss.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return ctx.saved_tensors[0], None, None


def upstream_ignored() -> Function:
    """The gradient is computed in the forward pass, and the upstream gradient never multiplied."""
    return _UpstreamIgnored.apply


def eps_ignored() -> Function:
    """One keyword is accepted and never used."""
    return lambda x, weight, bias, eps: layer_norm(x, weight, bias, 1e-5)


def last_row_only_for_bias() -> Function:
    """The gradient of the bias is that of the last row: each row's is stored, not added."""

    class _Add(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
            return x + bias

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return grad, grad[-1].clone()

    return lambda x, weight, bias, eps: _Add.apply(layer_norm(x, weight, torch.zeros_like(bias), eps), bias)


def nan_swallowed() -> Function:
    """NaN becomes 0 before the kernel, since it looked bad in a log."""
    return lambda gate, up: silu_mul(torch.nan_to_num(gate), up)


def nan_spread() -> Function:
    """A sum over everything takes part, times 0."""
    return lambda gate, up: silu_mul(gate, up) + 0.0 * gate.sum()


def rows_cut() -> Function:
    """Rows that the other input lacks are left out silently."""

    def function(gate: Tensor, up: Tensor) -> Tensor:
        rows = min(len(gate), len(up))
        return silu_mul(gate[:rows], up[:rows])

    return function


def softmax_overflows() -> Function:
    """The largest element is not taken out first."""

    def function(x: Tensor) -> Tensor:
        wide = x.double() if x.dtype == torch.float64 else x.float()
        return (wide.exp() / wide.exp().sum(-1, keepdim=True)).to(x.dtype)

    return function


def labels_wrapped() -> Function:
    """Labels beyond the vocabulary are taken modulo its size."""
    return lambda logits, labels, reduction: cross_entropy(
        logits, torch.where(labels == -100, labels, labels % logits.shape[1]), reduction
    )


def negative_labels_ignored() -> Function:
    """Every negative label is ignored, not only the one that says so."""
    return lambda logits, labels, reduction: cross_entropy(logits, torch.where(labels < 0, -100, labels), reduction)


def zero_upstream_taken_as_one() -> Function:
    """Where nothing comes from above, the gradient is that of a one."""

    class _Same(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            return torch.where(grads[0] == 0, 1.0, grads[0])

    return lambda logits, labels, reduction: _Same.apply(cross_entropy(logits, labels, reduction))


def ignored_label_counts() -> Function:
    """Ignored rows count in the mean."""

    def function(logits: Tensor, labels: Tensor, reduction: str) -> Tensor:
        loss = cross_entropy(logits, labels, "sum" if reduction == "mean" else reduction)
        return loss / len(labels) if reduction == "mean" else loss

    return function


def other_path_without_gradient() -> Function:
    """Without gradients, an approximation is used."""

    def function(gate: Tensor, up: Tensor) -> Tensor:
        return silu_mul(gate, up) if torch.is_grad_enabled() else F.hardswish(gate) * up

    return function


def wrong_if_inputs_are_one() -> Function:
    """If both inputs are one tensor, it is squared before the activation."""
    return lambda gate, up: silu_mul(gate * up, torch.ones_like(up)) if gate is up else silu_mul(gate, up)


def noise_of_its_own() -> Function:
    """The order of an atomic sum shows in the last bits, though equal bits are declared."""
    state = [0]

    def function(x: Tensor) -> Tensor:
        state[0] += 1
        return softmax(x) * (1.0 + torch.finfo(x.dtype).eps * (state[0] % 2))

    return function


def constant_output() -> Function:
    """The mean of a softmax's result is known, so it is returned at once."""
    return lambda x: torch.full_like(x, 1.0 / max(1, x.shape[-1])) + 0 * x


def tied_maxima_halved() -> Function:
    """An online softmax counts the maximum twice where the row's last element equals it."""

    def function(x: Tensor) -> Tensor:
        result = softmax(x)
        if x.shape[-1] < 2:
            return result
        ties = (x[..., -1:] == x[..., :-1].amax(-1, keepdim=True)).to(result.dtype)
        return result * (1.0 - 0.5 * ties)

    return function


class _WrongTwice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.exp() / x.exp().sum(-1, keepdim=True) if x.dtype == torch.float64 else torch.softmax(x, -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        y = torch.softmax(x, -1)
        return y * grad - y * (y.detach() * grad).sum(-1, keepdim=True)


def second_derivative_wrong() -> Function:
    """A part of the backward pass is detached, so that differentiating it gives something else."""
    return _WrongTwice.apply
