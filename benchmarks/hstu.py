"""Our HSTU attention compared with NVIDIA's Triton kernel, and with SDPA's causal attention as a ceiling.

    python -m benchmarks.hstu [--theirs recsys-examples/examples] [--shapes 32x1024x4x128 …] [--rounds 20] [--sweep]

A shape is batch x longest x heads x width, with "j" behind it for lengths that are uniform from an eighth of the
longest. All arms run in turns, in random order, in one process. The table has milliseconds of one call in a queue of
calls (mean without the largest and the smallest tenth), TFLOP/s where a causal pair of numbers costs 4 operations
forward and 10 backward, the ratio to ours with its 99 % interval, and each arm's root mean square errors against
float64, relative to the values. An arm "graph" is several calls without autograd in a CUDA graph, so that
nothing of the host is in its time; its ratio is to our graph. --theirs is the folder `examples` of a checkout of
NVIDIA/recsys-examples; the kernel is read from there and is no part of this repository. --sweep times candidates of
blocks for each kernel of ours; what it found is printed as it is found, and "swept" is an arm with the fastest. Kernels
are compiled beforehand by all processors. The last table holds the results against the goals. Without CUDA it only
shows that it runs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from falsifiers.recsys.oracle.hstu import truth
from falsifiers.recsys.reference.hstu_attention import (
    Blocks,
    HstuMask,
    Plan,
    hstu_attention,
    passes_for,
    plan_for,
    side_by_side,
)
from falsifiers.recsys.subject import Question
from harness.authoring.timing import Timing, interleave

SHAPES = (
    "32x1024x4x128", "32x4096x4x128", "32x1024x4x64", "8x8192x4x128",
    "32x1024x4x128j", "32x4096x4x128j", "8x8192x4x128j", "32x1024x4x64j",
)  # fmt: skip
CALLS = 10
"""In a queue, so that launches are hidden behind kernels where they can be."""
KERNELS = ("out", "of_q", "of_kv")
FASTER = 1.3
"""Times as fast as theirs, the goal."""
OF_CEILING, LONG = 0.75, 4096
"""Of SDPA's rate, the goal from so many rows on."""
NOISE = 1.005
"""Errors are equal up to this factor: rounding the result is most of both."""

Arms = dict[str, Callable[[], object]]


@dataclass(frozen=True)
class Inputs:
    """Random inputs of a shape in bfloat16; scores have a standard deviation of about 1."""

    longest: int
    lengths: list[int]
    offsets: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    above: Tensor

    @staticmethod
    def draw(shape: str, device: str, rows: int | None = None) -> Inputs:
        """Draw the inputs of a shape; with `rows`, all sequences are that short, and the grid is that of the shape."""
        batch, longest, heads, width = (int(size) for size in shape.rstrip("j").split("x"))
        generator = torch.Generator().manual_seed(0)
        lengths = [longest] * batch
        if shape.endswith("j"):
            lengths = torch.randint(longest // 8, longest + 1, (batch,), generator=generator).tolist()
        if rows:
            lengths = [rows] * batch
        offsets = torch.tensor([0, *lengths]).cumsum(0).to(device)
        chance = torch.Generator(device).manual_seed(0)
        tensors = [
            torch.randn(sum(lengths), heads, width, generator=chance, device=device).bfloat16() for _ in range(4)
        ]
        return Inputs(longest, lengths, offsets, *(one.requires_grad_() for one in tensors[:3]), tensors[3])

    @property
    def alpha(self) -> float:
        """The factor of the scores."""
        return float(self.q.shape[2] ** -0.5)

    @property
    def operations(self) -> float:
        """Of the forward pass, with half of the mask; the backward pass has 2.5 times as many."""
        return sum(2.0 * length**2 * self.q.shape[1] * self.q.shape[2] * 2.0 for length in self.lengths) / 2.0


def main() -> None:
    """Print a table for each shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cuda = torch.cuda.is_available()
    parser.add_argument("--theirs", type=Path, help="the folder `examples` of a checkout of NVIDIA/recsys-examples")
    parser.add_argument("--shapes", nargs="+", default=SHAPES if cuda else ("2x48x1x32j",))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--sweep", action="store_true", help="time candidates of blocks for each kernel")
    parser.add_argument("--processes", type=int, default=min(24, os.cpu_count() or 1), help="that compile")
    parser.add_argument("--json", type=Path, help="also write everything to this file, after each shape")
    arguments = parser.parse_args()
    if cuda:
        compile_all(arguments.shapes, arguments.theirs, arguments.sweep, arguments.processes)
    print(f"{torch.cuda.get_device_name() if cuda else 'CPU'}, torch {torch.__version__}, bfloat16", flush=True)
    results: dict[str, Any] = {}
    for shape in arguments.shapes:
        inputs = Inputs.draw(shape, "cuda" if cuda else "cpu")
        plan = plan_for(inputs.q.shape[2], inputs.v.shape[2], inputs.longest, inputs.q.device)
        results[shape] = {}
        if arguments.sweep and cuda:
            plan = swept(inputs, shape, plan, results[shape])
        results[shape]["arms"] = measure(inputs, shape, plan, arguments.theirs, arguments.rounds)
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=1))
        summarise({shape: results[shape]["arms"]})
    summarise({shape: result["arms"] for shape, result in results.items()})


def candidates(kernel: str, width: int, longest: int) -> Iterator[Blocks]:
    """Yield blocks that may suit a kernel."""
    sizes: dict[tuple[str, bool], tuple[tuple[int, int, int, int], ...]] = {
        ("out", True): ((64, 64, 4, 3), (64, 32, 4, 4), (128, 128, 8, 3)),
        ("of_q", True): ((64, 64, 4, 2), (64, 32, 4, 4), (128, 64, 8, 3)),
        ("of_kv", True): ((64, 64, 4, 2), (32, 64, 4, 3), (64, 128, 8, 3)),
        ("out", False): ((64, 64, 4, 3), (64, 32, 4, 4)),
        ("of_q", False): ((64, 64, 4, 3), (64, 32, 4, 3)),
        ("of_kv", False): ((32, 64, 4, 3), (64, 64, 4, 3)),
    }
    together = side_by_side(longest, width, width)
    for size in sizes[kernel, width == 128]:
        yield Blocks(*size)
        for edges in (1, 2):
            yield Blocks(*size, edges=edges, together=together)
    for edges, turns in ((0, together), (1, 0)):
        yield Blocks(*sizes[kernel, width == 128][0], edges=edges, together=turns)


def swept(inputs: Inputs, shape: str, plan: Plan, found: dict[str, Any]) -> Plan:
    """Print how long each kernel takes with each of its candidates, and return the fastest plan."""
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
        chosen = next(one for one in candidates(kernel, inputs.q.shape[2], inputs.longest) if shown(one) == best)
        plan = plan._replace(**{kernel: chosen})
    return plan


def shown(blocks: Blocks) -> str:
    """Return blocks as rows x keys, warps, stages, how they are loaded, edges, and heads that take turns."""
    size = f"{blocks.rows}x{blocks.keys}/{blocks.warps}/{blocks.stages}{'' if blocks.tma else '-'}"
    return f"{size}e{blocks.edges}{f't{blocks.together}' if blocks.together else ''}"


def call_of(inputs: Inputs, kernel: str, plan: Plan) -> Callable[[], object]:
    """Return a call of the forward or the backward pass, without autograd."""
    tensors, mask = (*(one.detach() for one in (inputs.q, inputs.k, inputs.v)), inputs.offsets), HstuMask()
    passes = passes_for(*tensors, inputs.longest, alpha=inputs.alpha, mask=mask, plan=plan)
    if kernel == "out":
        return lambda: passes.forward(*tensors, mask)
    return lambda: passes.backward(inputs.above, *tensors, mask)


def measure(inputs: Inputs, shape: str, plan: Plan, theirs: Path | None, rounds: int) -> dict[str, Any]:
    """Print the table of a shape and return its numbers by arm."""
    leaves = (inputs.q, inputs.k, inputs.v)

    plans = {"ours": plan_for(inputs.q.shape[2], inputs.v.shape[2], inputs.longest, inputs.q.device)}
    if plan != plans["ours"]:
        plans["swept"] = plan
    calls: dict[str, Callable[[], Tensor]] = {
        name: lambda plan=one: hstu_attention(  # type: ignore[misc]
            *leaves, inputs.offsets, inputs.longest, alpha=inputs.alpha, plan=plan
        )
        for name, one in plans.items()
    }
    if theirs is not None and torch.cuda.is_available():
        kernel = load(theirs)
        calls["theirs"] = lambda: kernel.triton_hstu_mha(inputs.longest, inputs.alpha, *leaves, inputs.offsets)
    forwards: Arms = dict(calls)
    backwards: Arms = {name: gradients_of(call(), leaves, inputs.above) for name, call in calls.items()}
    kernels: dict[str, Arms] = {
        way: {name: call_of(inputs, kernel, one) for name, one in plans.items()}
        for way, kernel in (("forward", "out"), ("backward", "of_q"))
    }
    if "theirs" in calls:
        kernels["forward"]["theirs"], kernels["backward"]["theirs"] = their_kernels(inputs, load(theirs))
    errors = {name: differences(inputs, call(), backwards[name]()) for name, call in calls.items()}
    if len(set(inputs.lengths)) == 1:
        dense = tuple(
            one.detach().view(len(inputs.lengths), inputs.longest, *one.shape[1:]).transpose(1, 2).requires_grad_()
            for one in leaves
        )
        forwards["SDPA"] = lambda: scaled_dot_product_attention(*dense, is_causal=True)
        above = inputs.above.view(len(inputs.lengths), inputs.longest, *inputs.above.shape[1:]).transpose(1, 2)
        backwards["SDPA"] = gradients_of(scaled_dot_product_attention(*dense, is_causal=True), dense, above)
    print(
        "\n" + shape, *(f"{name}: {shown(one.out)} {shown(one.of_q)} {shown(one.of_kv)}" for name, one in plans.items())
    )
    print(f"{'arm':>21} {'ms':>8} {'TFLOP/s':>8} {'/ ours':>7} {'99 % interval':>15}  errors of out, dq, dk, dv")
    numbers: dict[str, Any] = {}

    def report(arms: Arms, baseline: str, way: str) -> None:
        """Time arms in turns, and print a line of each."""
        if len(arms) < 2:
            return
        timing = interleave(arms, rounds=rounds, warmup=3, seed=0, synchronize=wait)
        for name in arms:
            ratio, seconds = timing.ratio(name, baseline), mean(timing, name)
            rate = inputs.operations * (1.0 if way == "forward" else 2.5) / seconds / 1e12
            numbers[f"{name} {way}"] = {
                "ms": seconds * 1e3, "tflops": rate, "ratio": ratio.estimate, "low": ratio.low, "high": ratio.high,
                "errors": errors.get(name, []),
            }  # fmt: skip
            interval = f"{ratio.low:.3f} to {ratio.high:.3f}"
            print(
                f"{name:>12} {way:>8} {seconds * 1e3:8.3f} {rate:8.1f} {ratio.estimate:7.3f} {interval:>15} ",
                " ".join(f"{one:.2e}" for one in errors.get(name, [])), flush=True,
            )  # fmt: skip

    for way, arms in (("forward", forwards), ("backward", backwards)):
        report({name: queue(arm) for name, arm in arms.items()}, "ours", way)
        try:
            graphs = {f"{name} graph": recorded(arm) for name, arm in kernels[way].items()}
        except RuntimeError as error:
            print(f"no graphs: {str(error).splitlines()[0]}", flush=True)
            continue
        report(graphs, "ours graph", way)
    return numbers


def summarise(results: dict[str, dict[str, Any]]) -> None:
    """Print a line for each shape and way: what is compared with the goals, and whether they are met."""
    print(f"\n{'':>24} {'ours':>8} {'theirs':>8} {'ratio':>6} {'graphs':>15} {'ratio':>6} {'/ SDPA':>6}  errors")
    for shape, arms in results.items():
        for way in ("forward", "backward"):
            ours, theirs, graph, their_graph, ceiling = (
                arms.get(f"{name} {way}") for name in ("ours", "theirs", "ours graph", "theirs graph", "SDPA")
            )
            if ours is None or theirs is None:
                continue
            line, missed = f"{shape:>15} {way:>8} {ours['ms']:8.3f} {theirs['ms']:8.3f} {theirs['ratio']:6.2f} ", []
            if theirs["ratio"] < FASTER:
                missed.append("theirs")
            if graph and their_graph:
                line += f"{graph['ms']:7.3f} {their_graph['ms']:7.3f} {their_graph['ratio']:6.2f} "
                if their_graph["ratio"] < FASTER:
                    missed.append("their graph")
            else:
                line += " " * 23
            if ceiling:
                line += f"{ceiling['ratio']:6.2f} "
                if int(shape.split("x")[1]) >= LONG and ceiling["ratio"] < OF_CEILING:
                    missed.append("SDPA")
            else:
                line += " " * 7
            pairs = zip(ours["errors"], theirs["errors"], strict=True)
            pairs = list(pairs)[:1] if way == "forward" else list(pairs)[1:]
            if any(mine > other * NOISE for mine, other in pairs):
                missed.append("error")
            line += " ".join(f"{mine:.1e}/{other:.1e}" for mine, other in pairs)
            print(line, "met" if not missed else f"MISSED: {', '.join(missed)}", flush=True)


def their_kernels(inputs: Inputs, module: ModuleType) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return their forward and backward pass without autograd."""
    tensors = [one.detach() for one in (inputs.q, inputs.k, inputs.v)]
    rest = (inputs.offsets, None, 0, 0, None, False, inputs.longest)

    def forwards() -> object:
        return module.triton_hstu_attention_fwd(inputs.longest, inputs.alpha, *tensors, *rest)

    def backwards() -> object:
        empty = [torch.empty_like(one) for one in tensors]
        numbers = (inputs.offsets, None, inputs.longest, inputs.alpha, 0, 0, None, False, inputs.longest)
        return module.triton_hstu_attention_bwd(inputs.above, *tensors, *empty, *numbers)

    return forwards, backwards


def gradients_of(out: Tensor, leaves: tuple[Tensor, ...], above: Tensor) -> Callable[[], tuple[Tensor, ...]]:
    """Return a backward pass that can be run again."""
    return lambda: torch.autograd.grad(out, leaves, above, retain_graph=True)


def queue(arm: Callable[[], object]) -> Callable[[], object]:
    """Return several calls."""

    def calls() -> None:
        for _ in range(CALLS):
            arm()

    return calls


def recorded(arm: Callable[[], object]) -> Callable[[], object]:
    """Return several calls as a CUDA graph, which the host launches at once."""
    if not torch.cuda.is_available():
        return queue(arm)
    arm()
    wait()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            arm()
    return graph.replay


def mean(timing: Timing, name: str) -> float:
    """Return the seconds of a call, without the largest and smallest tenth of the rounds."""
    seconds = sorted(timing.seconds[name])
    cut = len(seconds) // 10
    kept = seconds[cut : len(seconds) - cut]
    return sum(kept) / len(kept) / CALLS


def differences(inputs: Inputs, out: Tensor, gradients: object) -> list[float]:
    """Return the root mean square errors of output and gradients in the first sequence, relative to their values."""
    end = inputs.lengths[0]
    q, k, v, above = (one.detach()[:end] for one in (inputs.q, inputs.k, inputs.v, inputs.above))
    offsets = torch.tensor([0, end], device=q.device)
    right = truth(Question(q, k, v, above, offsets, end, inputs.longest, inputs.alpha, True, None, 1, None, 0, 0))
    assert isinstance(gradients, tuple)
    pairs = zip((out.detach(), *gradients), (right.out, right.of_q, right.of_k, right.of_v), strict=True)
    return [float((got[:end].double() - one.value).norm() / one.value.norm()) for got, one in pairs]


def load(folder: Path) -> ModuleType:
    """Load NVIDIA's module from a checkout."""
    name = "nvidia_triton_hstu_attention"
    if name not in sys.modules:
        sys.path.insert(0, str(folder))
        path = folder / "hstu" / "ops" / "triton_ops" / "triton_hstu_attention.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


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
        failed = sum(one.exception() is not None for one in done)
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
        torch.autograd.grad(out, (inputs.q, inputs.k, inputs.v), inputs.above)


def wait() -> None:
    """Wait for the GPU."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
