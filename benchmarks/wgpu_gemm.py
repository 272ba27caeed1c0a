"""Time of matrix products in WGSL on Vulkan, compared with cuBLAS on the same GPU, and the cost of a fallback.

    python -m benchmarks.wgpu_gemm [--model qwen2-0.5b] [--tokens 1024] [--rounds 15] [--adapter gpu] [--tiles]

For the products of every projection (forward, and the gradients of input and weight), the output has milliseconds of
cuBLAS in float32, cuBLAS with TF32 inputs, and WGSL, measured in turns, and how many times slower WGSL is. With --tiles
it has every tile in place of the chosen one. Then follows a block's backward: on cuBLAS, in WGSL on tensors that are on
the adapter, and in WGSL with upload and fetch, as in a fallback. Without CUDA, torch on the CPU replaces cuBLAS, and
the ratios show only that the benchmark runs.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

import torch
from torch import Tensor

from falsifiers.blackwell.reference import wgpu_gemm
from falsifiers.blackwell.reference.backend import Backend
from falsifiers.blackwell.reference.block import Block, Saved, new_weights
from falsifiers.blackwell.reference.fallback import FallbackBlock
from falsifiers.blackwell.reference.shapes import PROJECTIONS, SHAPES, BlockShape
from falsifiers.blackwell.reference.torch_backend import CublasBackend, TorchBackend
from falsifiers.blackwell.reference.wgpu_backend import WgpuBackend
from falsifiers.blackwell.reference.wgpu_device import NoAdapter

REPEATS = 10
"""Launches between two readings of the clock, so that the latency of a launch is not measured."""
CHOSEN = wgpu_gemm.choose_tile


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(SHAPES), default="qwen2-0.5b")
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--adapter", default="gpu", help="gpu, cpu, any, or a part of its name")
    parser.add_argument("--tiles", action="store_true", help="try every tile")
    arguments = parser.parse_args()
    shape = SHAPES[arguments.model]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cublas: dict[str, Backend] = {"torch": TorchBackend()}
    if device.type == "cuda":
        cublas = {"fp32": CublasBackend("ieee"), "tf32": CublasBackend("tf32")}
    try:
        wgpu = WgpuBackend(arguments.adapter)
    except NoAdapter as error:
        parser.exit(3, f"{error}\n")
    print(f"{wgpu.device.name} ({wgpu.device.kind}) against {device}, torch {torch.__version__}; median ms a launch")
    products(shape, arguments.tokens, arguments.rounds, device, cublas, wgpu, tried(wgpu, arguments.tiles))
    a_backward(shape, arguments.tokens, arguments.rounds, device, cublas, wgpu)


def tried(wgpu: WgpuBackend, every: bool) -> dict[str, Callable[..., wgpu_gemm.Tile]]:
    """Functions that choose a tile, by name: the backend's own, and with `every` each tile."""
    choices: dict[str, Callable[..., wgpu_gemm.Tile]] = {"wgsl": CHOSEN}
    if every:
        sizes = [(16, 16, 8), (16, 16, 16), (16, 8, 16), (8, 16, 16), (8, 8, 8), (8, 8, 16), (8, 8, 32), (4, 4, 8)]
        for tile in (wgpu_gemm.Tile(*size) for size in sizes):
            if tile.shared_bytes <= wgpu.device.shared_bytes:
                choices[f"{8 * tile.rows}x{8 * tile.columns}x{tile.depth}"] = lambda *_, tile=tile: tile
    return choices


def products(
    shape: BlockShape,
    tokens: int,
    rounds: int,
    device: torch.device,
    cublas: Mapping[str, Backend],
    wgpu: WgpuBackend,
    choices: Mapping[str, Callable[..., wgpu_gemm.Tile]],
) -> None:
    """Time forward and both gradients of every projection, with the arms in turns."""
    names = [*cublas, *choices]
    ratios = [f"wgsl/{name}" for name in cublas]
    print("\n" + " ".join(f"{title:>12}" for title in ("product", "m x n x k", *names, *ratios)))
    for projection in PROJECTIONS:
        size_in, size_out = shape.projection(projection)
        x, weight, gradient = (
            torch.randn(size, device=device) for size in ((tokens, size_in), (size_out, size_in), (tokens, size_out))
        )
        work = {
            "y": ((x, weight), {"transpose_b": True}, (tokens, size_out, size_in)),
            "dX": ((gradient, weight), {}, (tokens, size_in, size_out)),
            "dW": ((gradient, x), {"transpose_a": True}, (size_out, size_in, tokens)),
        }
        for kind, (operands, transposed, size) in work.items():
            there = [wgpu.upload(tensor) for tensor in operands]
            arms: dict[str, Callable[[], object]] = {
                name: launches(backend, operands, transposed, lambda: wait_for(device))
                for name, backend in cublas.items()
            }
            for name, choice in choices.items():
                arms[name] = with_tile(choice, launches(wgpu, there, transposed, wgpu.device.wait))
            times = {name: seconds / REPEATS for name, seconds in in_turns(arms, rounds).items()}
            cells = [f"{1e3 * times[name]:12.3f}" for name in names]
            cells += [f"{times['wgsl'] / times[name]:12.1f}" for name in cublas]
            print(f"{projection + ' ' + kind:>12} {'x'.join(map(str, size)):>12} {' '.join(cells)}")


def a_backward(
    shape: BlockShape,
    tokens: int,
    rounds: int,
    device: torch.device,
    cublas: Mapping[str, Backend],
    wgpu: WgpuBackend,
) -> None:
    """Time a block's backward: on cuBLAS, in WGSL on tensors on the adapter, and as a fallback."""
    weights = new_weights(shape, 0, dtype=torch.float32, device=device)
    x, gradient = (torch.randn(1, tokens, shape.hidden, device=device) for _ in range(2))
    blocks = {name: Block(shape, backend) for name, backend in cublas.items()}
    _, saved = next(iter(blocks.values())).forward(x, weights)
    saved_there = Saved(**{field.name: wgpu.upload(getattr(saved, field.name)) for field in fields(Saved)})
    weights_there = {name: wgpu.upload(weight) for name, weight in weights.items()}
    gradient_there = wgpu.upload(gradient)

    def resident() -> None:
        Block(shape, wgpu).backward(saved_there, weights_there, gradient_there)
        wgpu.device.wait()

    falling = FallbackBlock(shape, TorchBackend(), wgpu, layer=0)

    def backward(block: Block) -> None:
        block.backward(saved, weights, gradient)
        wait_for(device)

    arms: dict[str, Callable[[], object]] = {name: partial(backward, block) for name, block in blocks.items()}
    arms |= {"wgsl": resident, "fallback": lambda: falling._backward_on_wgpu(saved, weights, gradient)}
    resident()
    sent, fetched = wgpu.device.uploaded_bytes, wgpu.device.downloaded_bytes
    arms["fallback"]()
    sent, fetched = wgpu.device.uploaded_bytes - sent, wgpu.device.downloaded_bytes - fetched
    times = in_turns(arms, rounds)
    print(f"\nbackward of a block of {tokens} tokens; a fallback sends {sent / 2**20:.1f} MiB and fetches", end=" ")
    print(f"{fetched / 2**20:.1f} MiB")
    first = next(iter(cublas))
    for name, seconds in times.items():
        print(f"{name:>12} {1e3 * seconds:10.2f} ms {seconds / times[first]:8.1f} times {first}")


def launches(
    backend: Backend, operands: Any, transposed: Mapping[str, bool], wait: Callable[[], object]
) -> Callable[[], object]:
    """A function that launches one product REPEATS times, and waits for the last."""
    a, b = operands

    def run() -> None:
        result: Tensor | None = None
        for _ in range(REPEATS):
            result = backend.matmul(a, b, **transposed)
        wait()
        del result

    return run


def with_tile(choice: Callable[..., wgpu_gemm.Tile], run: Callable[[], object]) -> Callable[[], object]:
    """The same function with another choice of tile."""

    def chosen() -> None:
        wgpu_gemm.choose_tile = choice  # type: ignore[assignment]
        try:
            run()
        finally:
            wgpu_gemm.choose_tile = CHOSEN

    return chosen


def in_turns(arms: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each arm. All arms run once before the clock starts, then in turns in every round."""
    for run in arms.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name, run in arms.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def wait_for(device: torch.device) -> None:
    """Wait until CUDA has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
