"""Time of a block's backward on every available backend, and time to load its kernels.

    python -m benchmarks.blackwell [--model qwen2-0.5b] [--tokens 1024] [--layers 24] [--rounds 10]

All arms use equal weights and gradients, in one process. Each arm runs once per round, in random order, so that clocks
and other load affect all arms alike (harness.authoring.timing). The output is

- the backward of one block and of all layers: median milliseconds, tokens per second, and the ratio of the time to
  cuBLAS in TF32 (on a CPU: to torch) with its 99 % interval; the last row compares that arm with itself: the noise;
- the backward of the seven projections alone in TFLOP/s, and that rate relative to two ceilings of the same precision:
  torch.mm on the same fourteen products, into preallocated tensors, and torch.mm on a square product of 8192;
- seconds to load all kernels of a block in a new process: machine code from an archive, PTX with an empty compute
  cache, PTX with the cache from before, and source compiled by NVRTC.

A backend that is not available is named with the reason. On a CPU, Triton is interpreted, sizes are tiny and no kernels
are loaded; the times then show only that the benchmark runs.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pandas as pd
import torch
from torch import Tensor

from falsifiers.blackwell.reference.backend import Backend
from falsifiers.blackwell.reference.block import Block, Saved, new_weights
from falsifiers.blackwell.reference.shapes import PROJECTIONS, SHAPES, BlockShape
from falsifiers.blackwell.reference.torch_backend import CublasBackend, TorchBackend
from harness.authoring.timing import Timing, interleave

AGAIN = " again"
BARE = "torch.mm "


def main() -> int:
    """Time all available backends, and print the tables."""
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(SHAPES), default="qwen2-0.5b" if on_gpu else "qwen2-tiny")
    parser.add_argument("--tokens", type=at_least(1), default=1024 if on_gpu else 32)
    parser.add_argument("--layers", type=at_least(1), default=24 if on_gpu else 2)
    parser.add_argument("--rounds", type=at_least(2), default=10)
    parser.add_argument("--load-kernels", nargs=2, metavar=("archive|ptx|source", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    shape = SHAPES[arguments.model]
    if arguments.load_kernels:
        print(load_kernels(shape, *arguments.load_kernels))
        return 0
    device = torch.device("cuda" if on_gpu else "cpu")
    name = torch.cuda.get_device_name() if on_gpu else "CPU"
    print(f"{arguments.model}, {arguments.tokens} tokens, {arguments.layers} layers, float32, {name}")
    if not on_gpu:
        torch.set_num_threads(1)  # otherwise threads of torch and of Mesa's adapter compete
    backends = answering(device)
    baseline = "cublas tf32" if on_gpu else "torch"
    for layers in (1, arguments.layers):
        blocks = {arm: backward(shape, backend, arguments.tokens, layers, device) for arm, backend in backends.items()}
        timing = timed(blocks, baseline, arguments.rounds)
        tokens = pd.Series({arm: arguments.tokens / statistics.median(timing.seconds[arm]) for arm in blocks})
        table = compared(timing, blocks, baseline).assign(**{"tokens/s": tokens})
        print(f"\nBackward of {layers} block{'s' if layers > 1 else ''}\n{shown(table)}")
    products = {arm: projections(shape, backend, arguments.tokens, device) for arm, backend in backends.items()}
    if on_gpu:
        products |= {BARE + "ieee": bare_products(shape, "ieee", arguments.tokens)}
        products |= {BARE + "tf32": bare_products(shape, "tf32", arguments.tokens)}
    timing = timed(products, baseline, arguments.rounds)
    operations = 4 * arguments.tokens * sum(math.prod(shape.projection(projection)) for projection in PROJECTIONS)
    table = compared(timing, products, baseline)
    rate, scale = ("TFLOP/s", 1e12) if on_gpu else ("GFLOP/s", 1e9)
    table[rate] = [operations / statistics.median(timing.seconds[arm]) / scale for arm in table.index]
    if on_gpu:
        square = {precision: square_rate(precision, device) for precision in ("ieee", "tf32")}
        table["of the square"] = [reached / square[precision_of(arm)] for arm, reached in table[rate].items()]
        bare = {arm: statistics.median(timing.seconds[arm]) for arm in table.index if arm.startswith(BARE)}
        table["of bare products"] = [
            bare[BARE + precision_of(arm)] / statistics.median(timing.seconds[arm]) for arm in table.index
        ]
        print(f"\nA square product: {square['ieee']:.1f} TFLOP/s in float32, {square['tf32']:.1f} in TF32")
    print(f"\nBackward of the seven projections\n{shown(table)}")
    print(f"\nLoading the kernels of a block\n{shown(loading(arguments.model)) if on_gpu else 'needs a CUDA GPU'}")
    return 0


def at_least(least: int) -> Callable[[str], int]:
    """A parser for whole numbers from `least` on."""

    def whole(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return int(text)

    return whole


def shown(table: pd.DataFrame) -> str:
    """A table as text; missing values are empty."""
    return table.round(3).to_string(na_rep="")


def answering(device: torch.device) -> dict[str, Backend]:
    """Return the available backends by the name of their arm. The reasons why others are missing go to stderr."""
    makers: dict[str, Callable[[], Backend]] = {"ptx": _ptx, "triton": _triton, "wgpu": _wgpu}
    if device.type == "cuda":
        makers |= {"cublas fp32": lambda: CublasBackend("ieee"), "cublas tf32": lambda: CublasBackend("tf32")}
    else:
        makers["torch"] = TorchBackend
    backends = {}
    for arm, make in makers.items():
        try:
            backends[arm] = make()
            backward(SHAPES["qwen2-tiny"], backends[arm], 16, 1, device)()
        except Exception as error:  # each library raises its own errors for a missing device
            backends.pop(arm, None)
            said = str(error)[:200] if type(error) is RuntimeError else f"{type(error).__name__}: {str(error)[:200]}"
            print(f"{arm} is not available: {said}", file=sys.stderr)
    return backends


def _ptx() -> Backend:
    if not torch.cuda.is_available():
        raise RuntimeError("needs a CUDA GPU")
    from falsifiers.blackwell.reference.cuda_device import CudaDevice
    from falsifiers.blackwell.reference.kernel_cache import CompilerSource, KernelCache
    from falsifiers.blackwell.reference.kernels.nvrtc import Form
    from falsifiers.blackwell.reference.ptx_backend import PtxBackend

    return PtxBackend(KernelCache(CompilerSource(Form.CUBIN), CudaDevice()))


def _triton() -> Backend:
    from falsifiers.blackwell.reference.triton_backend import TritonBackend

    return TritonBackend()


def _wgpu() -> Backend:
    from falsifiers.blackwell.reference.wgpu_backend import WgpuBackend

    return WgpuBackend("gpu" if torch.cuda.is_available() else "any")  # never software Vulkan on a machine with a GPU


def backward(
    shape: BlockShape, backend: Backend, tokens: int, layers: int, device: torch.device
) -> Callable[[], object]:
    """A function that runs the backward of `layers` blocks, with the forward done before, and returns a result."""
    bring = placed(backend, device)
    generator = torch.Generator().manual_seed(0)
    x, above = (bring(torch.randn(1, tokens, shape.hidden, generator=generator)) for _ in range(2))
    block = Block(shape, backend)
    done: list[tuple[dict[str, Tensor], Saved]] = []
    for layer in range(layers):
        weights = {name: bring(weight) for name, weight in new_weights(shape, layer, dtype=torch.float32).items()}
        done.append((weights, block.forward(x, weights)[1]))

    def run() -> object:
        gradient = above
        for weights, saved in reversed(done):
            gradient, _ = block.backward(saved, weights, gradient)
        return finished(gradient)

    return run


def projections(shape: BlockShape, backend: Backend, tokens: int, device: torch.device) -> Callable[[], object]:
    """A function that runs the backward of the seven projections, from the last to the first, and nothing else."""
    bring = placed(backend, device)
    made = []
    for name in reversed(PROJECTIONS):
        size_in, size_out = shape.projection(name)
        x, weight, above = torch.randn(tokens, size_in), torch.randn(size_out, size_in), torch.randn(tokens, size_out)
        made.append((name, bring(x), bring(weight), bring(above)))

    def run() -> object:
        for name, x, weight, gradient in made:
            found = backend.project_backward(name, x, weight, gradient, bias=f"{name}.bias" in shape.parameters())
        return finished(found.x)

    return run


def placed(backend: Backend, device: torch.device) -> Callable[[Tensor], Tensor]:
    """A function that moves a tensor to where this backend needs it."""
    upload = getattr(backend, "upload", None)
    return upload if upload is not None else lambda tensor: tensor.to(device)


def finished(last: Tensor) -> object:
    """Wait for the last result: the timer waits for torch's devices, and a fetch waits for a wgpu adapter."""
    return last.cpu() if last.is_meta else last


def timed(arms: dict[str, Callable[[], object]], baseline: str, rounds: int) -> Timing:
    """Time all arms, and the baseline a second time to measure the noise."""
    synchronize = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    return interleave(
        {**arms, baseline + AGAIN: arms[baseline]}, rounds=rounds, warmup=2, seed=0, synchronize=synchronize
    )


def compared(timing: Timing, arms: dict[str, Callable[[], object]], baseline: str) -> pd.DataFrame:
    """Milliseconds and ratios to the baseline, one row per arm."""
    rows = {}
    for arm in (*arms, baseline + AGAIN):
        ratio = timing.ratio(arm, baseline)
        rows[arm] = {
            "ms": 1e3 * statistics.median(timing.seconds[arm]),
            f"time / {baseline}": ratio.estimate,
            "low": ratio.low,
            "high": ratio.high,
        }
    return pd.DataFrame(rows).T


def precision_of(arm: str) -> str:
    """The precision of an arm's products: "ieee" for float32, or "tf32"."""
    return "tf32" if "tf32" in arm else "ieee"


def bare_products(shape: BlockShape, precision: Literal["ieee", "tf32"], tokens: int) -> Callable[[], object]:
    """A function that runs only the products of the projections' backward: the rate of a GPU on these shapes."""
    made = []
    for name in reversed(PROJECTIONS):
        size_in, size_out = shape.projection(name)
        x, weight, above = (
            torch.randn(size, device="cuda") for size in ((tokens, size_in), (size_out, size_in), (tokens, size_out))
        )
        made += [(above, weight, torch.empty_like(x)), (above.T, x, torch.empty_like(weight))]

    def run() -> object:
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        for left, right, product in made:
            torch.mm(left, right, out=product)
        torch.backends.cuda.matmul.allow_tf32 = before
        return made[-1][-1]

    return run


def square_rate(precision: Literal["ieee", "tf32"], device: torch.device, size: int = 8192) -> float:
    """TFLOP/s of one large square product, the best of ten."""
    a, b = torch.randn(2, size, size, device=device)
    best = math.inf
    for _ in range(10):
        torch.cuda.synchronize()
        started = time.perf_counter()
        CublasBackend(precision).matmul(a, b)
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best / 1e12


def loading(model: str, times: int = 3) -> pd.DataFrame:
    """Seconds to load all kernels of a block, each time in a new process: median, smallest and largest."""
    from falsifiers.blackwell.reference.kernel_archive import build
    from falsifiers.blackwell.reference.kernels.catalogue import block_kernels

    major, minor = torch.cuda.get_device_capability()
    arms = {"archive": "archive", "ptx, cold": "ptx", "ptx, warm": "ptx", "source": "source"}
    found: dict[str, list[float]] = {arm: [] for arm in arms}
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "archive")
        build(archive, block_kernels(SHAPES[model]), [10 * major + minor])
        for number in range(times):
            cache = Path(folder, f"cache-{number}")
            for arm, kind in arms.items():
                found[arm].append(_in_new_process(model, kind, archive, cache))
    table = pd.DataFrame({arm: pd.Series(seconds).describe() for arm, seconds in found.items()}).T
    table = table[["50%", "min", "max"]].rename(columns={"50%": "seconds"})
    table["time / archive"] = table["seconds"] / table.loc["archive", "seconds"]
    return table


def _in_new_process(model: str, kind: str, archive: Path, cache: Path) -> float:
    command = [sys.executable, __file__, "--model", model, "--load-kernels", kind, str(archive)]
    environment = {**os.environ, "CUDA_CACHE_PATH": str(cache)}
    return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def load_kernels(shape: BlockShape, kind: str, folder: str) -> float:
    """Seconds to load all kernels of a block. CUDA has started, and PTX is compiled before, as if it were shipped."""
    from falsifiers.blackwell.reference.cuda_device import CudaDevice
    from falsifiers.blackwell.reference.kernel_archive import Archive
    from falsifiers.blackwell.reference.kernels.catalogue import block_kernels
    from falsifiers.blackwell.reference.kernels.nvrtc import Form, compile_kernel

    device = CudaDevice()
    kernels = block_kernels(shape)
    archive = Archive.open(Path(folder))
    shipped = {spec: compile_kernel(spec, device.sm, Form.PTX) for spec in kernels} if kind == "ptx" else {}
    started = time.perf_counter()
    for spec in kernels:
        if kind == "archive":
            device.load(spec, archive.image(spec, device.sm))
        else:
            device.load(spec, shipped[spec] if kind == "ptx" else compile_kernel(spec, device.sm))
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
