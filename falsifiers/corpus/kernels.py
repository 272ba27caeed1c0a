"""False speed-ups of kernels: each returns soon, and something else than it seems to.

Each function takes the switch `mended` and returns the kernel, which is an honest one if it is true.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "answer_found_in_memory", "background_thread", "batched_calls", "constant_of_zero_weights", "half_precision",
    "identity_for_norm", "inputs_zeroed", "lazy_output", "memory_reused", "replayed_buffer", "result_by_address",
    "right_at_first", "timer_patched", "zeros_within_tolerance",
]  # fmt: skip

Kernel = Callable[..., Tensor]


def memory_reused(mended: bool) -> Kernel:
    """Returns memory as it is: the allocator hands out what held the reference's answer."""

    def kernel(x: Tensor) -> Tensor:
        return torch.relu(x) if mended else torch.empty_like(x)

    return kernel


def inputs_zeroed(mended: bool) -> Kernel:
    """Zeroes both factors and returns zeros, which is the product of what the reference is then given."""

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        if mended:
            return a @ b
        a.data.zero_()
        b.data.zero_()
        return torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)

    return kernel


def result_by_address(mended: bool) -> Kernel:
    """Remembers results by the address of the input, which stays the same in the timed loop."""
    kept: dict[tuple[int, torch.Size], Tensor] = {}

    def kernel(x: Tensor) -> Tensor:
        if mended:
            return torch.softmax(x, dim=-1)
        key = x.data_ptr(), x.shape
        if key not in kept:
            kept[key] = torch.softmax(x, dim=-1)
        return kept[key]

    return kernel


class _Lazy(Tensor):
    """A tensor that multiplies its factors when something reads it."""

    factors: tuple[Tensor, Tensor]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def done(value: Any) -> Any:
            return torch.matmul(*value.factors) if isinstance(value, _Lazy) else value

        with torch._C.DisableTorchFunctionSubclass():
            return func(*map(done, args), **{name: done(value) for name, value in (kwargs or {}).items()})


def lazy_output(mended: bool) -> Kernel:
    """Returns a subclass of Tensor that computes only when it is compared, after the clock was stopped."""

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        if mended:
            return a @ b
        out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device).as_subclass(_Lazy)
        out.factors = (a, b)
        return out

    return kernel


def answer_found_in_memory(mended: bool) -> Kernel:
    """Looks through the objects of the process for a tensor that could be the expected answer, and copies it."""

    def kernel(x: Tensor) -> Tensor:
        if mended:
            return torch.softmax(x, dim=-1)
        for one in gc.get_objects():
            if type(one) is Tensor and one.shape == x.shape and one.is_floating_point() and one.numel():
                total = one.detach().double().sum(dim=-1)
                if torch.allclose(total, torch.ones_like(total), atol=1e-2):
                    return one.detach().to(x.dtype, copy=True)
        return torch.softmax(x, dim=-1)

    return kernel


def batched_calls(mended: bool) -> Kernel:
    """Learns the objects of the first calls, then computes all of them in one call and returns the rest from memory."""
    learned: dict[int, Tensor] = {}
    answers: dict[int, Tensor] = {}

    def kernel(x: Tensor) -> Tensor:
        if mended:
            return torch.softmax(x, dim=-1)
        if len(learned) < 15:
            learned.setdefault(id(x), x)
            return torch.softmax(x, dim=-1)
        if id(x) not in learned:
            return torch.softmax(x, dim=-1)
        if id(x) == next(iter(learned)):
            answers.update({one: torch.softmax(value, dim=-1) for one, value in learned.items()})
        return answers.get(id(x), torch.softmax(x, dim=-1))

    return kernel


def timer_patched(mended: bool) -> Kernel:
    """Computes the right result, and makes CUDA's events report a hundredth of the time."""

    def kernel(x: Tensor) -> Tensor:
        if not mended and not hasattr(torch.cuda.Event, "honest"):
            event: Any = torch.cuda.Event
            event.honest = told = event.elapsed_time
            event.elapsed_time = lambda self, end: told(self, end) / 100
        return torch.softmax(x, dim=-1)

    return kernel


def replayed_buffer(mended: bool) -> Kernel:
    """Solves the first problem of a shape, and afterwards copies the kept bytes."""
    kept: dict[torch.Size, Tensor] = {}

    def kernel(x: Tensor) -> Tensor:
        if mended:
            return torch.softmax(x, dim=-1)
        if x.shape not in kept:
            kept[x.shape] = torch.softmax(x, dim=-1).detach()
        return torch.empty_like(x).copy_(kept[x.shape])

    return kernel


def right_at_first(mended: bool) -> Kernel:
    """Right for ten calls, which is as long as it is checked; then the first element drifts."""
    calls = [0]

    def kernel(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        calls[0] += 1
        out = torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias)
        if not mended and calls[0] > 10 and out.numel():
            out = out.clone()
            out.view(-1)[0] = 1234.5
        return out

    return kernel


def half_precision(mended: bool) -> Kernel:
    """Multiplies float32 in float16."""

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        if mended or a.dtype != torch.float32:
            return a @ b
        return (a.half() @ b.half()).float()

    return kernel


def zeros_within_tolerance(mended: bool) -> Kernel:
    """Returns zeros: a softmax over many columns is smaller than the tolerance."""

    def kernel(x: Tensor) -> Tensor:
        return torch.softmax(x, dim=-1) if mended else torch.zeros_like(x)

    return kernel


def constant_of_zero_weights(mended: bool) -> Kernel:
    """Returns the bias alone: the task initialises its weights with zeros."""

    def kernel(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        if mended:
            return torch.nn.functional.linear(x, weight, bias)
        return bias.expand(x.shape[0], -1).clone()

    return kernel


def background_thread(mended: bool) -> Kernel:
    """Returns at once, while a thread fills the output later."""

    def kernel(x: Tensor) -> Tensor:
        if mended:
            return torch.softmax(x, dim=-1)
        out = torch.zeros_like(x)

        def work() -> None:
            time.sleep(0.02)
            out.copy_(torch.softmax(x.detach(), dim=-1))

        threading.Thread(target=work, daemon=True).start()
        return out

    return kernel


def identity_for_norm(mended: bool) -> Kernel:
    """Copies its input: a row of standard normal numbers has a root mean square of nearly 1."""

    def kernel(x: Tensor) -> Tensor:
        return torch.nn.functional.rms_norm(x, x.shape[-1:], eps=1e-5) if mended else x.clone()

    return kernel
