"""What an archive of kernels saves at the start: `python benchmarks/kernel_loading.py [MODEL] [ROUNDS]`, on a GPU.

Loads all kernels of a block in four ways, each in a process of its own, interleaved, and prints medians side by
side: machine code from the archive; PTX that the driver compiles (its cache empty); the same PTX once more (its cache
warm); NVRTC in the process. Ratios are to the archive. The PTX is made beforehand, as an engine would ship it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from falsifiers.blackwell.reference.kernel_archive import Archive, build
from falsifiers.blackwell.reference.kernel_cache import ArchiveSource, CompilerSource, KernelCache, Source
from falsifiers.blackwell.reference.kernels.catalogue import block_kernels
from falsifiers.blackwell.reference.kernels.nvrtc import Form, Image, compile_kernel
from falsifiers.blackwell.reference.kernels.spec import KernelSpec
from falsifiers.blackwell.reference.shapes import SHAPES

WAYS = ("archive", "ptx, cache empty", "ptx, cache warm", "nvrtc")


class Shipped:
    """PTX files beside the archive."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def image(self, spec: KernelSpec, sm: int) -> tuple[Image, str | None]:
        return Image(Form.PTX, (self.folder / f"{spec.key}.ptx").read_bytes()), "the driver's JIT"


def load(way: str, model: str, folder: Path) -> None:
    """In a process of its own: start CUDA, then load and time only that; prints JSON."""
    import logging

    from falsifiers.blackwell.reference.cuda_device import CudaDevice

    logging.disable()  # a line for each compilation is what a user wants, and not this table
    source: Source = Shipped(folder) if way.startswith("ptx") else CompilerSource(Form.CUBIN)
    if way == "archive":
        source = ArchiveSource(Archive.open(folder))
    cache = KernelCache(source, CudaDevice())
    started = time.perf_counter()
    cache.prewarm(block_kernels(SHAPES[model]))
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "compilations": cache.compilations, **cache.bytes_by_owner()}))


def main(model: str = "qwen2-0.5b", rounds: str = "7") -> None:
    """Build what is shipped, then let the ways take turns."""
    if not torch.cuda.is_available():
        sys.exit("kernel_loading: needs a CUDA GPU: only its driver loads kernels")
    major, minor = torch.cuda.get_device_capability()
    sm, specs = 10 * major + minor, block_kernels(SHAPES[model])
    seen: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        build(folder, specs, [sm])
        for spec in specs:
            (folder / f"{spec.key}.ptx").write_bytes(compile_kernel(spec, sm, Form.PTX).data)
        for turn in range(int(rounds)):
            for way in WAYS:
                # The empty cache of a round is the warm one of the way after it.
                environment = os.environ | {"CUDA_CACHE_PATH": str(folder / f"cache-{turn}")}
                if way == "archive":
                    environment["CUDA_DISABLE_PTX_JIT"] = "1"
                line = [sys.executable, __file__, "--load", way, model, str(folder)]
                done = subprocess.run(line, env=environment, check=True, capture_output=True, text=True)
                seen[way].append(json.loads(done.stdout.splitlines()[-1]))
    base = statistics.median(one["seconds"] for one in seen["archive"])
    print(f"{len(specs)} kernels of {model} on {torch.cuda.get_device_name()}, medians of {rounds}")
    print(
        f"{'way':<18}{'ms':>10}{'ratio':>8}{'min':>10}{'max':>10}{'compiled':>10}{'images KiB':>12}{'device KiB':>12}"
    )
    for way, runs in seen.items():
        times = sorted(1e3 * one["seconds"] for one in runs)
        middle, last = statistics.median(times), runs[-1]
        print(
            f"{way:<18}{middle:>10.1f}{middle / 1e3 / base:>8.2f}{times[0]:>10.1f}{times[-1]:>10.1f}"
            f"{last['compilations']:>10.0f}{last['images'] / 1024:>12.1f}{last['modules'] / 1024:>12.0f}"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--load"]:
        load(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    else:
        main(*sys.argv[1:])
