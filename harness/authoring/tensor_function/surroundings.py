"""Global state that a pure function leaves unchanged: random states, torch's settings, and the clock functions."""

from __future__ import annotations

import hashlib
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch

__all__ = ["changes", "other_settings", "surroundings"]


def _random_state() -> str:
    return hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()


def _numpy_state() -> str:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return ""
    _, words, *rest = numpy.random.get_state()
    return hashlib.sha256(words.tobytes() + repr(rest).encode()).hexdigest()


def _cuda_state() -> str:
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return ""
    states = [state.numpy().tobytes() for state in torch.cuda.get_rng_state_all()]
    return hashlib.sha256(b"".join(states)).hexdigest()


def _cuda(read: Callable[[], Any]) -> Any:
    return read() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]


def _clocks() -> tuple[Any, ...]:
    """Return the functions with which benchmarks measure time and synchronize."""
    event = vars(torch.cuda.Event)
    return (
        *(event.get(name) for name in ("elapsed_time", "record", "synchronize", "query", "wait")),
        torch.cuda.Event, torch.cuda.synchronize, time.perf_counter, time.perf_counter_ns, time.monotonic, time.time,
    )  # fmt: skip


_CLOCKS: Final = "the clock"
_CLOCKS_BEFORE: Final = _clocks()
"""Bound before the subject's module is imported, because its import could replace them."""

_READ: Mapping[str, Callable[[], Any]] = {
    "torch's random state": _random_state,
    "Python's random state": lambda: hash(random.getstate()),
    "numpy's random state": _numpy_state,
    "CUDA's random state": _cuda_state,
    "the default dtype": torch.get_default_dtype,
    "the precision of float32 products": torch.get_float32_matmul_precision,
    "TF32 of cuBLAS": lambda: torch.backends.cuda.matmul.allow_tf32,
    "TF32 of cuDNN": lambda: torch.backends.cudnn.allow_tf32,
    "reduced precision sums of float16": lambda: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
    "reduced precision sums of bfloat16": lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
    "cuDNN's benchmark mode": lambda: torch.backends.cudnn.benchmark,
    "cuDNN's deterministic mode": lambda: torch.backends.cudnn.deterministic,
    "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
    "whether gradients are enabled": torch.is_grad_enabled,
    "inference mode": torch.is_inference_mode_enabled,
    "anomaly mode": torch.is_anomaly_enabled,
    "autocast on the CPU": lambda: torch.is_autocast_enabled("cpu"),
    "autocast on CUDA": lambda: torch.is_autocast_enabled("cuda"),
    "the number of threads": torch.get_num_threads,
    _CLOCKS: _clocks,
    "the current device": lambda: _cuda(torch.cuda.current_device),
    "the current stream": lambda: _cuda(lambda: torch.cuda.current_stream().cuda_stream),
}

_FLAGS: Final[Mapping[str, tuple[Any, str]]] = {
    "TF32 of cuBLAS": (torch.backends.cuda.matmul, "allow_tf32"),
    "TF32 of cuDNN": (torch.backends.cudnn, "allow_tf32"),
    "cuDNN's benchmark mode": (torch.backends.cudnn, "benchmark"),
    "reduced precision sums of float16": (torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
    "reduced precision sums of bfloat16": (torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
}
"""Flags that functions set for a part of their work. They change no result of a call that raises."""


def surroundings() -> dict[str, Any]:
    """Return the current values by name.

    A number is drawn first. So a generator that the subject seeds again has another state.
    """
    torch.rand(())
    random.random()  # noqa: S311 - it is thrown away
    return {**{what: read() for what, read in _READ.items()}, _CLOCKS: _CLOCKS_BEFORE}


def changes(before: Mapping[str, Any]) -> list[str]:
    """Return the names of the values that differ from those before."""
    return [what for what, read in _READ.items() if read() != before[what]]


@contextmanager
def other_settings(seen: list[tuple[str, str]]) -> Iterator[None]:
    """Negate global flags in the block, then restore them. A flag that the block changes is appended to `seen`."""
    before = [getattr(holder, name) for holder, name in _FLAGS.values()]
    for (holder, name), value in zip(_FLAGS.values(), before, strict=True):
        setattr(holder, name, not value)
    try:
        yield
    finally:
        for (what, (holder, name)), value in zip(_FLAGS.items(), before, strict=True):
            if getattr(holder, name) is not (not value):
                seen.append(("settings_kept", f"{what}, which is not torch's own, is changed"))
            setattr(holder, name, value)
