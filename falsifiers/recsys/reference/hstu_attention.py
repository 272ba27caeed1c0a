"""HSTU attention over jagged sequences, forward and backward, by our Triton kernels.

    out = hstu_attention(q, k, v, offsets, max_seqlen, alpha=128 ** -0.5, num_targets=targets)

The weights are silu(alpha q k) over a scaling length, times a mask, without a softmax ("Actions speak louder than
words", 2024). The host waits for nothing: grids come from `max_seqlen`. Results repeat bit by bit.

On a CPU, the kernels run in Triton's interpreter, for tests. It truncates to bfloat16 instead of rounding, so bfloat16
is computed in float32 there.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy
import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from falsifiers.recsys.reference import hstu_kernels

__all__ = ["Blocks", "HstuMask", "Passes", "Plan", "hstu_attention", "passes_for", "plan_for", "side_by_side"]

WIDTHS = (32, 64, 128)
"""Of q and k, and of v."""
DTYPES = (torch.bfloat16, torch.float16)
_PASSES: dict[tuple[object, ...], Passes] = {}
_REMEMBERED = 1024
_THREAD = threading.local()
_SORTED = 64
"""Up to so many sequences, programs of the longest ones start first."""


@dataclass(frozen=True)
class HstuMask:
    """Which rows of a sequence attend to which keys.

    Attributes:
        causal: a row attends to earlier keys only, and to itself.
        num_targets: [batch], how many of the last rows of each sequence are targets; they do not see other groups.
        target_group_size: how many targets make a group.
        num_contextuals: of each sequence, how many of the first rows are contextual; they see all that is no target.
        max_attn_len: the farthest distance that a row attends to; 0 for any.
        min_full_attn_seq_len: the last so many rows of the history, and the targets, are free of that limit.
    """

    causal: bool = True
    num_targets: Tensor | None = None
    target_group_size: int = 1
    num_contextuals: int | Tensor | None = None
    max_attn_len: int = 0
    min_full_attn_seq_len: int = 0


class Blocks(NamedTuple):
    """How a kernel is cut into programs.

    Attributes:
        rows, keys: of a block.
        warps: of a program.
        stages: loads in flight.
        tma: whole blocks are loaded by the tensor memory accelerator.
        edges: where masked blocks are; see `hstu_kernels`.
        together: heads that take turns; 0 to begin with the longest sequences, head by head.
    """

    rows: int
    keys: int
    warps: int
    stages: int
    tma: bool = True
    edges: int = 0
    together: int = 0


class Plan(NamedTuple):
    """The blocks of the three kernels: of the output, of the gradient of q, and of those of k and v."""

    out: Blocks
    of_q: Blocks
    of_kv: Blocks


_CAUSAL = HstuMask()
_WIDE, _TALL = Blocks(16, 32, 4, 1, tma=False), Blocks(32, 16, 4, 1, tma=False)
_INTERPRETED = Plan(_TALL, _TALL, _WIDE)


def plan_for(width: int, value_width: int, max_seqlen: int, device: torch.device) -> Plan:
    """Return the blocks that were fastest on an H200, or small ones for the interpreter."""
    if device.type != "cuda":
        return _INTERPRETED
    short = {"edges": 1, "together": side_by_side(max_seqlen, width, value_width)}
    if max(width, value_width) < 128:
        plan = Plan(Blocks(64, 64, 4, 3, **short), Blocks(64, 64, 4, 3, **short), Blocks(32, 64, 4, 3, **short))
    elif max_seqlen < 2048:
        plan = Plan(Blocks(64, 64, 4, 3, **short), Blocks(64, 64, 4, 2, **short), Blocks(64, 64, 4, 2, **short))
    else:
        plan = Plan(Blocks(64, 64, 4, 3), Blocks(128, 64, 8, 3), Blocks(64, 64, 4, 2))
    tma = torch.cuda.get_device_capability(device)[0] >= 9
    return plan if tma else Plan(*(one._replace(tma=False) for one in plan))


def side_by_side(max_seqlen: int, width: int, value_width: int) -> int:
    """Return how many heads may take turns: their keys and values fill a third of an H200's cache, 16 MiB."""
    return max(1, (16 << 20) // (max_seqlen * (width + value_width) * 2))


def hstu_attention(
    q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, max_seqlen: int, *, alpha: float, scaling_seqlen: int = -1,
    mask: HstuMask | None = None, plan: Plan | None = None,
) -> Tensor:  # fmt: skip
    """Return the attention of each sequence to itself; its gradient reaches q, k and v.

    Args:
        q, k: [rows of all sequences, heads, width] in bfloat16 or float16; any strides, but each head contiguous.
        v: [rows, heads, value width].
        offsets: [batch + 1], int32 or int64: where each sequence starts, and the end.
        max_seqlen: no sequence is longer; this is not checked, because the host would wait.
        alpha: the factor of the scores.
        scaling_seqlen: what silu is divided by; -1 for max_seqlen.

    Returns:
        [rows, heads, value width].

    Raises:
        ValueError: shapes, dtypes or the mask are not supported. No kernel has run then.
    """
    mask = mask or _CAUSAL
    passes = passes_for(q, k, v, offsets, max_seqlen, alpha=alpha, scaling_seqlen=scaling_seqlen, mask=mask, plan=plan)
    out: Tensor = _Attention.apply(q, k, v, offsets, mask, passes)
    return out


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, mask: HstuMask, passes: Passes) -> Tensor:
        ctx.save_for_backward(q, k, v, offsets)
        ctx.rest = mask, passes
        return passes.forward(q, k, v, offsets, mask)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        mask, passes = ctx.rest
        return (*passes.backward(above[0], *ctx.saved_tensors, mask), None, None, None)


def passes_for(
    q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, max_seqlen: int, *, alpha: float, scaling_seqlen: int = -1,
    mask: HstuMask | None = None, plan: Plan | None = None,
) -> Passes:  # fmt: skip
    """Return both passes, without autograd, for all tensors that are laid out like these.

    What a kernel needs besides addresses is put together once for each layout: it takes longer than a short kernel.
    """
    mask = mask or _CAUSAL
    targets, contextuals = mask.num_targets, mask.num_contextuals
    key = (
        q.device, k.device, v.device, offsets.device, q.dtype, k.dtype, v.dtype,
        q.shape[1:], k.shape[1:], v.shape[1:], len(q) == len(k) == len(v),
        q.stride(), k.stride(), v.stride(), offsets.shape, offsets.dtype, max_seqlen, alpha, scaling_seqlen, plan,
        mask.causal, mask.target_group_size, mask.max_attn_len, mask.min_full_attn_seq_len,
        None if targets is None else (targets.shape, targets.dtype, targets.device),
        (contextuals.shape, contextuals.dtype, contextuals.device) if isinstance(contextuals, Tensor) else contextuals,
    )  # fmt: skip
    passes = _PASSES.get(key)
    if passes is None:
        _require(q, k, v, offsets, mask)
        if scaling_seqlen == 0 or scaling_seqlen < -1 or max_seqlen < 1:
            raise ValueError(f"max_seqlen is {max_seqlen}, scaling_seqlen {scaling_seqlen}; both are at least 1, or -1")
        if len(_PASSES) >= _REMEMBERED:
            _PASSES.clear()
        scale = 1.0 / (max_seqlen if scaling_seqlen == -1 else scaling_seqlen)
        plan = plan or plan_for(q.shape[2], v.shape[2], max_seqlen, q.device)
        _PASSES[key] = passes = Passes(max_seqlen, alpha, scale, plan)
    return passes


class Passes:
    """The forward and the backward pass for tensors of one layout. See `hstu_attention` for their arguments."""

    def __init__(self, longest: int, alpha: float, scale: float, plan: Plan) -> None:
        """Nothing is launched before the first call, which brings tensors."""
        self._longest, self._alpha, self._scale, self._plan = longest, alpha, scale, plan
        self._out: _Launch | None = None
        self._gradients: dict[tuple[int, ...], tuple[_Launch, _Launch]] = {}

    def forward(self, q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, mask: HstuMask) -> Tensor:
        """Return the output."""
        out = v.new_empty(v.shape)
        counts, tensors = _counts(mask, offsets), (q, k, v, v, out)
        if self._out is None:
            blocks = self._plan.out
            self._out = self._launch("over_keys", tensors, (k, v), counts, mask, blocks, (self._scale,), gradient=False)
        self._out(tensors, (k, v), counts)
        return out

    def backward(
        self, above: Tensor, q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, mask: HstuMask
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of q, k and v. `above` [rows, heads, value width] is that of the output."""
        if above.stride(-1) != 1:
            above = above.contiguous()
        of_q, of_k, of_v = q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)
        counts, by_rows, by_keys = _counts(mask, offsets), (q, k, v, above, of_k, of_v), (q, k, v, above, of_q)
        launches = self._gradients.get(above.stride())
        if launches is None:
            scale = self._scale * self._alpha / 2.0
            launches = self._gradients[above.stride()] = (
                self._launch("over_rows", by_rows, (q, above), counts, mask, self._plan.of_kv, (scale, self._scale)),
                self._launch("over_keys", by_keys, (k, v), counts, mask, self._plan.of_q, (scale,), gradient=True),
            )
        launches[0](by_rows, (q, above), counts)
        launches[1](by_keys, (k, v), counts)
        return of_q, of_k, of_v

    def _launch(
        self, name: str, tensors: tuple[Tensor, ...], tiled: tuple[Tensor, Tensor], counts: tuple[Tensor, ...],
        mask: HstuMask, blocks: Blocks, scales: tuple[float, ...], **constants: Any,
    ) -> _Launch:  # fmt: skip
        """Put together a kernel's arguments but for addresses."""
        q, _, v, *_ = tensors
        batch, heads, contextuals = len(counts[0]) - 1, q.shape[1], mask.num_contextuals
        count = triton.cdiv(self._longest, blocks.rows if name == "over_keys" else blocks.keys)
        numbers = (
            *(stride for one in tensors for stride in one.stride()[:2]), self._alpha / 2.0, *scales,
            contextuals if isinstance(contextuals, int) else 0, mask.target_group_size, mask.max_attn_len,
            mask.min_full_attn_seq_len, heads, batch, count, max(blocks.together, 1),
        )  # fmt: skip
        constants |= {
            "causal": mask.causal, "has_targets": mask.num_targets is not None,
            "context_kind": 2 if isinstance(contextuals, Tensor) else 1 if contextuals else 0,
            "has_window": mask.max_attn_len > 0,
            "has_full": mask.max_attn_len > 0 and mask.min_full_attn_seq_len > 0,
            "fast": q.is_cuda and q.dtype is torch.bfloat16,
            "pad": triton.next_power_of_2(batch) if 1 < batch <= _SORTED and not blocks.together else 0,
            "width": q.shape[2], "value_width": v.shape[2], "row_block": blocks.rows, "key_block": blocks.keys,
            "stages": blocks.stages, "edges": blocks.edges,
        }  # fmt: skip
        tma = blocks.tma and all(stride * one.element_size() % 16 == 0 for one in tiled for stride in one.stride()[:2])
        steady = all(stride % 16 == 0 and stride < 1 << 31 for one in tensors for stride in one.stride()[:2])
        tile = blocks.keys if name == "over_keys" else blocks.rows
        return _Launch(name, count * heads * batch, numbers, constants, blocks.warps, tma, tile, steady)


@dataclass
class _Launch:
    """A kernel with all its arguments but the tensors.

    Triton's own launcher takes longer to find a compiled kernel than a short one runs, so `run` keeps what it found. It
    looks at nothing else than what is fixed here, as long as addresses and strides are multiples of 16.

    Attributes:
        numbers: the arguments behind the tensors.
        tma: the tensor memory accelerator can load blocks of `tile` rows; it needs such addresses as well.
        steady: the strides are such multiples, and 32-bit numbers.
        behind: the constants as `run` takes them, behind the numbers.
    """

    name: str
    programs: int
    numbers: tuple[float, ...]
    constants: dict[str, Any]
    warps: int
    tma: bool
    tile: int
    steady: bool
    run: Callable[..., object] | None = None
    behind: tuple[Any, ...] = ()

    def __call__(self, tensors: tuple[Tensor, ...], tiled: tuple[Tensor, Tensor], counts: tuple[Tensor, ...]) -> None:
        """Run the kernel; compiled on CUDA, interpreted on a CPU. It writes the tensors from the fifth on."""
        q = tensors[0]
        if self.programs == 0 or len(q) == 0:
            return
        if not q.is_cuda:
            self._interpret(tensors, counts)
            return
        addresses = [one.data_ptr() for one in tensors]
        last = [one.data_ptr() for one in counts]
        aligned = not any([address & 15 for address in addresses + last])  # noqa: C419 - a list is faster
        tma = self.tma and aligned
        with torch.cuda.device_of(q):
            _bind_context()
            if self.run is not None and aligned:
                tiles = [_Tiled(one) if tma else one.data_ptr() for one in tiled]
                self.run(*addresses, *tiles, *last, *self.numbers, *self.behind)
                return
            kernel = getattr(hstu_kernels, self.name)
            tiles = [_descriptor(one, self.tile) if tma else one for one in tiled]
            arguments, constants = (*tensors, *tiles, *counts, *self.numbers), {**self.constants, "use_tma": tma}
            compiled = kernel[(self.programs,)](*arguments, **constants, num_warps=self.warps)
            if aligned and self.steady:
                self.behind = tuple(constants[name] for name in kernel.arg_names[len(arguments) :])
                self.run = compiled[(self.programs, 1, 1)]

    def _interpret(self, tensors: tuple[Tensor, ...], counts: tuple[Tensor, ...]) -> None:
        """Run the kernel on a CPU. Of bfloat16 it gets copies in float32 with equal strides."""
        copies = tensors
        if tensors[0].dtype is torch.bfloat16:
            copies = tuple(
                torch.empty_strided(one.shape, one.stride(), dtype=torch.float32).copy_(one) for one in tensors
            )
        with numpy.errstate(over="ignore"):  # silu of a large negative score divides by infinity, as on a GPU
            getattr(_interpreted(), self.name)[(self.programs,)](
                *copies, *copies[:2], *counts, *self.numbers, **self.constants, use_tma=False
            )
        for one, copy in zip(tensors[4:], copies[4:], strict=True):
            if copy is not one:
                one.copy_(copy)


@cache
def _interpreted() -> ModuleType:
    """Return the kernels' module, loaded once more for the interpreter."""
    name = f"{hstu_kernels.__name__}_interpreted"
    spec = importlib.util.spec_from_file_location(name, hstu_kernels.__file__)
    if spec is None or spec.loader is None:
        raise ImportError(f"{hstu_kernels.__file__} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    before = triton.knobs.runtime.interpret
    triton.knobs.runtime.interpret = True
    try:
        spec.loader.exec_module(module)
    finally:
        triton.knobs.runtime.interpret = before
    return module


def _bind_context() -> None:
    """Give the thread the device's context, which a thread of autograd lacks before its first work.

    Triton describes tiles to the driver before it launches, and does not look for a context then.
    """
    if not getattr(_THREAD, "bound", False):
        torch.cuda.Event().record()
        _THREAD.bound = True


def _counts(mask: HstuMask, offsets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return offsets, and targets and contextuals by sequence, or offsets again for what is not read."""
    offsets = offsets.contiguous()
    targets, contextuals = mask.num_targets, mask.num_contextuals
    return (
        offsets,
        offsets if targets is None else targets.contiguous(),
        contextuals.contiguous() if isinstance(contextuals, Tensor) else offsets,
    )


class _Tiled:
    """What Triton's launcher reads of a `TensorDescriptor`, without the checks of one, which take longer."""

    padding = "zero"
    round_f32_to_tf32 = False

    def __init__(self, one: Tensor) -> None:
        length, heads, width = one.shape
        self.base = one
        self.shape = [heads, length, width]
        self.strides = [one.stride(1), one.stride(0), 1]


def _descriptor(one: Tensor, rows: int) -> TensorDescriptor:
    """Describe [heads, rows, width], whose blocks are rows of one head."""
    length, heads, width = one.shape
    return TensorDescriptor(one, [heads, length, width], [one.stride(1), one.stride(0), 1], [1, rows, width])


def _require(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, mask: HstuMask) -> None:
    """Raise ValueError for what no kernel supports."""
    if q.ndim != 3 or k.shape != q.shape or v.ndim != 3 or v.shape[:2] != q.shape[:2] or offsets.ndim != 1:
        shapes = ", ".join(str(tuple(one.shape)) for one in (q, k, v, offsets))
        raise ValueError(
            f"q, k, v and offsets are {shapes}, not [rows, heads, width], the same, one of v, and [batch + 1]"
        )
    if q.dtype not in DTYPES or k.dtype != q.dtype or v.dtype != q.dtype:
        raise ValueError(
            f"q, k and v are {q.dtype}, {k.dtype} and {v.dtype}; give bfloat16 or float16, the same for all"
        )
    if q.shape[2] not in WIDTHS or v.shape[2] not in WIDTHS:
        raise ValueError(f"heads of q and v are {q.shape[2]} and {v.shape[2]} wide; give one of {WIDTHS} for each")
    if any(one.stride(-1) != 1 for one in (q, k, v)):
        raise ValueError("a head's numbers are not contiguous; call contiguous() on q, k and v")
    batch = len(offsets) - 1
    others = [one for one in (k, v, offsets, mask.num_targets, mask.num_contextuals) if isinstance(one, Tensor)]
    if any(one.device != q.device for one in others):
        raise ValueError(f"q is on {q.device}; put all tensors there")
    for name, counts in (("num_targets", mask.num_targets), ("num_contextuals", mask.num_contextuals)):
        if isinstance(counts, Tensor) and counts.shape != (batch,):
            raise ValueError(f"{name} is {tuple(counts.shape)}; give [{batch}], one for each sequence")
    if mask.target_group_size < 1 or min(mask.max_attn_len, mask.min_full_attn_seq_len) < 0:
        raise ValueError("target_group_size is at least 1; max_attn_len and min_full_attn_seq_len are not negative")
    if isinstance(mask.num_contextuals, int) and mask.num_contextuals < 0:
        raise ValueError("num_contextuals is negative")
