"""The roofs of this device: memory bandwidth, cache bandwidth, rates of matrix products by dtype, and launch time.

    roofs = measured("cuda")
    roofs.share(achieved=4.1e14, of="product bfloat16")  # 0.52; raises if it is above 1

All arms are interleaved in random order, so clocks and other work affect all of them alike. A roof is the fastest
sample of its fastest arm, because nothing but noise makes a sample slower. The median beside it says what is sustained.
All data are random: products of zeros draw less power, and so run at higher clocks. Real steps lie between the two, as
after a ReLU, so products of zeros are measured too, as the bound that nothing passes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from harness.authoring.timing import interleave
from harness.base.json_dataclass import JsonDataclass
from harness.base.shortening import described
from harness.tools.roofline.measured_device import clocks, identity

__all__ = ["PeakTooLowError", "Roof", "RooflineError", "Roofs", "Sizes", "measured"]

_LAUNCHES = 500
_TILE = 128
"""Rows of a block of a product. With as many blocks as multiprocessors, none waits for another."""


class RooflineError(Exception):
    """Roofs cannot be measured, or a step cannot be placed under them."""


class PeakTooLowError(RooflineError):
    """More was achieved than the measured peak, so the peak is wrong."""


@dataclass(frozen=True)
class Roof(JsonDataclass):
    """What a device can reach.

    Attributes:
        name: such as "copy", "cache", "product bfloat16" or "zeros bfloat16".
        peak: of the fastest sample, in bytes or operations a second.
        median: of the samples of the arm that reached it.
        arm: the call that reached it.
    """

    name: str
    peak: float
    median: float
    arm: str


@dataclass(frozen=True)
class Roofs(JsonDataclass):
    """All roofs of a device.

    Attributes:
        device: what identifies it: name, driver and versions.
        roofs: by name.
        launch_seconds: from one launch of a tiny kernel to the next.
        clocks: before and after, as far as they can be read.
        missing: why there is no roof, by name.
    """

    FORMAT: ClassVar = 1

    device: Mapping[str, Any]
    roofs: Mapping[str, Roof]
    launch_seconds: float
    clocks: Mapping[str, Any]
    missing: Mapping[str, str]

    @property
    def memory(self) -> float:
        """The largest bandwidth of memory in bytes a second."""
        return max(self.roofs[name].peak for name in ("copy", "read", "write"))

    def share(self, achieved: float, of: str) -> float:
        """Return what was achieved as a share of a roof.

        Raises:
            PeakTooLowError: it is above the roof, so the roof was measured too low.
            RooflineError: there is no such roof.
        """
        if of not in self.roofs:
            raise RooflineError(f"no roof {of!r} of this device: {self.missing.get(of, 'it is not measured')}")
        peak = self.roofs[of].peak
        if achieved > peak:
            raise PeakTooLowError(f"{achieved:.4g} a second were achieved, above the measured peak of {of}, {peak:.4g}")
        return achieved / peak


@dataclass(frozen=True)
class Sizes:
    """How much work a sample is.

    Attributes:
        rounds: samples of each arm.
        buffer: bytes of a buffer of the bandwidth arms.
        widths: of the square matrices.
        seconds: the least that a sample takes; shorter calls are repeated.
    """

    rounds: int = 20
    buffer: int = 1 << 30
    widths: tuple[int, ...] = (4096, 8192)
    seconds: float = 0.004


@dataclass(frozen=True)
class _Arm:
    roof: str
    label: str
    work: float
    call: Callable[[], object]


def measured(kind: str, sizes: Sizes | None = None) -> Roofs:
    """Measure the roofs of the current device of a kind, "cuda" or "cpu". This takes up to a minute.

    Raises:
        RooflineError: torch has no such device.
    """
    if kind == "cuda" and not torch.cuda.is_available():
        raise RooflineError("torch sees no CUDA device here; give --device cpu")
    sizes = sizes or (Sizes() if kind == "cuda" else Sizes(rounds=10, buffer=1 << 26, widths=(512, 1024)))
    wait: Callable[[], object] = torch.cuda.synchronize if kind == "cuda" else lambda: None
    missing: dict[str, str] = {}
    before = clocks(kind)
    generator = torch.Generator(kind).manual_seed(0)
    arms: list[_Arm] = []
    for group in (_bandwidth(kind, sizes), _cache(kind, missing), _products(kind, sizes, generator)):
        for arm in group:
            try:
                arm.call()
                wait()
            except (RuntimeError, NotImplementedError, ValueError) as error:
                missing[arm.roof] = described(error).splitlines()[0][:200]
            else:
                arms.append(arm)
    repeats = [max(1, round(sizes.seconds / _once(arm.call, wait))) for arm in arms]
    calls = {
        str(index): _repeated(arm.call, count) for index, (arm, count) in enumerate(zip(arms, repeats, strict=True))
    }
    timing = interleave(calls, rounds=sizes.rounds, warmup=2, seed=0, synchronize=wait)
    roofs: dict[str, Roof] = {}
    for index, (arm, count) in enumerate(zip(arms, repeats, strict=True)):
        rates = [arm.work * count / seconds for seconds in timing.seconds[str(index)]]
        if arm.roof not in roofs or max(rates) > roofs[arm.roof].peak:
            roofs[arm.roof] = Roof(arm.roof, max(rates), statistics.median(rates), arm.label)
    launch = _launch(kind, wait)
    clock_readings = {"before": before, "after": clocks(kind)}
    return Roofs(
        identity(kind), roofs, launch, clock_readings, {n: why for n, why in missing.items() if n not in roofs}
    )


def _repeated(call: Callable[[], object], count: int) -> Callable[[], None]:
    def repeated() -> None:
        for _ in range(count):
            call()

    return repeated


def _once(call: Callable[[], object], wait: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    wait()
    return max(time.perf_counter() - started, 1e-6)


def _bandwidth(kind: str, sizes: Sizes) -> Iterator[_Arm]:
    """Yield copies, reads and writes of buffers that no cache holds."""
    count = sizes.buffer // 4
    source = torch.rand(count, device=kind)
    target = torch.rand(count, device=kind)
    of = f"of {sizes.buffer >> 20} MiB"
    yield _Arm("copy", f"copy_ {of}", 2.0 * sizes.buffer, lambda: target.copy_(source))
    yield _Arm("copy", f"add of one number {of}", 2.0 * sizes.buffer, lambda: torch.add(source, 0.5, out=target))
    yield _Arm("read", f"sum {of}", float(sizes.buffer), source.sum)
    yield _Arm("read", f"amax {of}", float(sizes.buffer), source.amax)
    yield _Arm("read", f"dot of two {of}", 2.0 * sizes.buffer, lambda: torch.dot(source, target))
    yield _Arm("write", f"fill_ {of}", float(sizes.buffer), lambda: target.fill_(0.7310586))
    if kind == "cuda" and (read := _reader()) is not None:
        yield _Arm("read", f"Triton {of}", float(sizes.buffer), lambda: read(source, 1))


def _cache(kind: str, missing: dict[str, str]) -> Iterator[_Arm]:
    """Yield reads of a buffer that the last cache before the memory holds, or on a CPU copies within one of a core."""
    if kind != "cuda":
        source, target = torch.rand(1 << 16), torch.rand(1 << 16)
        yield _Arm("cache", "copy_ of 256 KiB", 2.0 * source.nbytes, lambda: target.copy_(source))
        return
    read = _reader()
    if read is None:
        missing["cache"] = "Triton is not installed"
        return
    for share in (8, 4, 2):
        size = torch.cuda.get_device_properties(0).L2_cache_size // share
        held = torch.rand(size // 4, device=kind)
        passes = max(1, (1 << 30) // size)
        yield _Arm("cache", f"read of {size >> 20} MiB", _read_bytes(held, passes), partial(read, held, passes))


def _reader() -> Callable[[Tensor, int], object] | None:
    try:
        from harness.tools.roofline.read_kernel import read
    except ImportError:
        return None
    return read


def _read_bytes(held: Tensor, passes: int) -> float:
    from harness.tools.roofline.read_kernel import BLOCK

    return float(held.numel() // BLOCK * BLOCK * held.element_size() * passes)


def _products(kind: str, sizes: Sizes, generator: torch.Generator) -> Iterator[_Arm]:
    """Yield square products of random matrices, each with its second factor as it is and transposed."""
    for width in sizes.widths:
        work = 2.0 * width**3
        for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
            if kind == "cpu" and dtype is torch.float16:
                continue  # of most CPUs orders of magnitude slower, for nothing that trains
            left, right = (_random(width, width, dtype, generator) for _ in range(2))
            short = str(dtype).removeprefix("torch.")
            yield from _pair(short, f"{width} wide", left, right)
            yield from _pair(short, f"{width} wide, transposed", left, right.T)
            if kind == "cuda":
                rows = _TILE * torch.cuda.get_device_properties(0).multi_processor_count
                yield from _pair(short, f"{rows} rows, {width} wide", _random(rows, width, dtype, generator), right)
            if dtype is torch.float32 and kind == "cuda":
                yield _Arm("product tf32", f"{width} wide", work, partial(_tf32, left, right))
                yield _Arm("zeros tf32", f"{width} wide", work, partial(_tf32, torch.zeros_like(left), right))
        if kind == "cuda":
            yield from _narrow(width, work, generator)


def _random(rows: int, columns: int, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    return torch.randn(rows, columns, device=generator.device, generator=generator).to(dtype)


def _pair(dtype: str, label: str, left: Tensor, right: Tensor) -> Iterator[_Arm]:
    """Yield a product of random matrices, and one of zeros of the same shapes."""
    work = 2.0 * left.shape[0] * left.shape[1] * right.shape[1]
    yield _Arm(f"product {dtype}", label, work, partial(_exact, left, right))
    zeros = torch.zeros_like(left)
    yield _Arm(f"zeros {dtype}", label, work, partial(_exact, zeros, zeros if left.shape == right.shape else right))


def _narrow(width: int, work: float, generator: torch.Generator) -> Iterator[_Arm]:
    """Yield products of numbers of eight bits."""
    left, right = (torch.randn(width, width, device="cuda", generator=generator) for _ in range(2))
    scalar = torch.ones((), device="cuda")
    fp8 = [values.to(torch.float8_e4m3fn) for values in (left, right)]
    integers = [(values * 32).clamp(-127, 127).to(torch.int8) for values in (left, right)]
    yield _Arm(
        "product float8_e4m3fn",
        f"{width} wide",
        work,
        lambda: torch._scaled_mm(fp8[0], fp8[1].T, scale_a=scalar, scale_b=scalar, out_dtype=torch.bfloat16),
    )
    yield _Arm("product int8", f"{width} wide", work, lambda: torch._int_mm(integers[0], integers[1].T))


@contextmanager
def _precision(name: str) -> Iterator[None]:
    chosen = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(chosen)


def _exact(left: Tensor, right: Tensor) -> Tensor:
    with _precision("highest"):
        return left @ right


def _tf32(left: Tensor, right: Tensor) -> Tensor:
    with _precision("high"):
        return left @ right


def _launch(kind: str, wait: Callable[[], object]) -> float:
    """Return the least time from one launch of a tiny operator to the next."""
    scalar = torch.rand(1, device=kind)
    best = float("inf")
    for _ in range(10):
        wait()
        started = time.perf_counter()
        for _ in range(_LAUNCHES):
            scalar.mul_(1.0)
        wait()
        best = min(best, (time.perf_counter() - started) / _LAUNCHES)
    return best
