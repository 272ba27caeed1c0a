"""Blocks that may suit our kernels, for `benchmarks.hstu --sweep`; and all kernels, compiled side by side."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

from benchmarks.hstu_arms import Arms, Inputs, call_of, load, mean, recorded, wait
from falsifiers.recsys.reference.hstu_plan import Blocks, Plan, plan_for, side_by_side
from harness.authoring.timing import interleave

KERNELS = ("out", "dq", "dkdv")


def candidates(kernel: str, width: int, longest: int) -> Iterator[Blocks]:
    """Yield blocks that may suit a kernel."""
    sizes: dict[tuple[str, bool], tuple[tuple[int, int, int, int], ...]] = {
        ("out", True): ((64, 64, 4, 3), (64, 32, 4, 4), (128, 128, 8, 3)),
        ("dq", True): ((64, 64, 4, 2), (64, 32, 4, 4), (128, 64, 8, 3)),
        ("dkdv", True): ((64, 64, 4, 2), (32, 64, 4, 3), (64, 128, 8, 3)),
        ("out", False): ((64, 64, 4, 3), (64, 32, 4, 4)),
        ("dq", False): ((64, 64, 4, 3), (64, 32, 4, 3)),
        ("dkdv", False): ((32, 64, 4, 3), (64, 64, 4, 3)),
    }
    together = side_by_side(longest, width, width)
    for size in sizes[kernel, width == 128]:
        yield Blocks(*size)
        yield Blocks(*size, merged=True, together=together)
    for merged, turns in ((False, together), (True, 0)):
        yield Blocks(*sizes[kernel, width == 128][0], merged=merged, together=turns)


def swept(inputs: Inputs, shape: str, plan: Plan, found: dict[str, Any]) -> Plan:
    """Print the time of each kernel with each of its candidates, and return the fastest plan."""
    for kernel in KERNELS:
        arms: Arms = {}
        for blocks in candidates(kernel, inputs.q.shape[2], inputs.longest):
            arm = call_of(inputs, kernel, plan._replace(**{kernel: blocks}))
            try:
                arm()
            except Exception as error:
                print(f"{shape} {kernel} {shown(blocks)}: {str(error).splitlines()[0][:80]}", flush=True)
                continue
            arms[shown(blocks)] = arm
        timing = interleave(
            {name: recorded(arm) for name, arm in arms.items()}, rounds=5, warmup=1, seed=0, synchronize=wait
        )
        times = {name: mean(timing, name) for name in arms}
        found[kernel] = times
        best = min(times, key=lambda name: times[name])
        line = ", ".join(f"{name} {times[name] * 1e3:.3f}" for name in sorted(times, key=lambda name: times[name]))
        print(f"{shape} {kernel}: {line}", flush=True)
        chosen = next(
            candidate for candidate in candidates(kernel, inputs.q.shape[2], inputs.longest) if shown(candidate) == best
        )
        plan = plan._replace(**{kernel: chosen})
    return plan


def shown(blocks: Blocks) -> str:
    """Return blocks as rows x keys, warps, stages, how they are loaded, if merged, and heads that take turns."""
    size = f"{blocks.rows}x{blocks.keys}/{blocks.warps}/{blocks.stages}{'' if blocks.tma else '-'}"
    return f"{size}{'m' if blocks.merged else ''}{f't{blocks.together}' if blocks.together else ''}"


def compile_all(shapes: tuple[str, ...], theirs: Path | None, sweep: bool, processes: int) -> None:
    """Fill Triton's cache: a process compiles one candidate after another, on inputs of one row a sequence."""
    started = time.monotonic()
    jobs = []
    alike = {tuple(shape.rstrip("j").split("x")[i] for i in (0, 2, 3)): shape.rstrip("j") for shape in shapes}
    for shape in alike.values():
        width, longest = int(shape.split("x")[3]), int(shape.split("x")[1])
        kinds = [(kernel, blocks) for kernel in KERNELS for blocks in candidates(kernel, width, longest) if sweep]
        jobs += [(shape, *kind) for kind in kinds]
        if theirs is not None:
            jobs += [(shape, way, number) for way in ("_hstu_attn_fwd", "_hstu_attn_bwd") for number in range(48)]
    for shape in {shape.rstrip("j") for shape in shapes}:
        width, longest = int(shape.split("x")[3]), int(shape.split("x")[1])
        jobs += [(shape, *kind) for kind in plan_for(width, width, longest, torch.device("cuda"))._asdict().items()]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        done = [pool.submit(compile_one, *job, theirs) for job in jobs]
        failed = sum(future.exception() is not None for future in done)
    print(f"compiled {len(jobs)} kernels in {time.monotonic() - started:.0f} s, {failed} refused", flush=True)


def compile_one(shape: str, kernel: str, choice: Any, theirs: Path | None) -> None:
    """Compile one candidate of ours, or the configuration of a number of theirs."""
    inputs = Inputs.draw(shape, "cuda", rows=1)
    if kernel in KERNELS:
        plan = plan_for(inputs.q.shape[2], inputs.v.shape[2], inputs.longest, inputs.q.device)
        call_of(inputs, kernel, plan._replace(**{kernel: choice}))()
        return
    assert theirs is not None
    module = load(theirs)
    for name in ("_hstu_attn_fwd", "_hstu_attn_bwd"):
        tuned = getattr(module, name)
        every = tuned.__dict__.setdefault("every", list(tuned.configs))
        if name == kernel and choice >= len(every):
            return
        tuned.configs, tuned.cache = [every[choice if name == kernel else 0]], {}
    out = module.triton_hstu_mha(inputs.longest, inputs.alpha, inputs.q, inputs.k, inputs.v, inputs.offsets)
    if kernel == "_hstu_attn_bwd":
        torch.autograd.grad(out, (inputs.q, inputs.k, inputs.v), inputs.grad_output)
