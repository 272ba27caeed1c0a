"""Our HSTU attention compared with NVIDIA's Triton kernel, and with SDPA's causal attention as a ceiling.

    python -m benchmarks.hstu [--theirs recsys-examples/examples] [--shapes 32x1024x4x128 …] [--rounds 20] [--sweep]

A shape is batch x longest x heads x width, with "j" behind it for lengths that are uniform from an eighth of the
longest. All arms run in turns, in random order, in one process. The table has milliseconds of one call in a queue of
calls (mean without the largest and the smallest tenth), TFLOP/s where a causal pair of numbers costs 4 operations
forward and 10 backward, the ratio to ours with its 99 % interval, and each arm's root mean square errors against
float64, relative to the values. An arm "graph" is several calls without autograd in a CUDA graph, so that its time has
no work of the host. Its ratio is to our graph. --theirs is the folder `examples` of a checkout of
NVIDIA/recsys-examples. The kernel is read from there and is not part of this repository. --sweep measures candidates
of blocks for each kernel of ours. Each result is printed at once, and "swept" is an arm with the fastest blocks.
Kernels are compiled beforehand by all processors. The last table compares the results with the goals. Without CUDA, the
output shows only that the benchmark runs.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.hstu_arms import (
    Arms,
    Inputs,
    call_of,
    gradients_of,
    load,
    mean,
    queue,
    recorded,
    their_kernels,
    wait,
)
from benchmarks.hstu_blocks import compile_all, shown, swept
from falsifiers.recsys.oracle.hstu import truth
from falsifiers.recsys.reference.hstu_attention import hstu_attention
from falsifiers.recsys.reference.hstu_plan import Plan, plan_for
from falsifiers.recsys.subject import Question
from harness.authoring.timing import interleave

SHAPES = (
    "32x1024x4x128", "32x4096x4x128", "32x1024x4x64", "8x8192x4x128",
    "32x1024x4x128j", "32x4096x4x128j", "8x8192x4x128j", "32x1024x4x64j", "64x512x2x32", "16x2048x8x64",
)  # fmt: skip
FASTER = 1.8
"""Times as fast as theirs, the goal."""
OF_CEILING = {4096: 0.9, 1024: 0.8}
"""Of SDPA's rate, the goals from so many rows on."""
NOISE = 1.005
"""Errors are equal up to this factor: rounding the result is most of both."""


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


def measure(inputs: Inputs, shape: str, plan: Plan, theirs: Path | None, rounds: int) -> dict[str, Any]:
    """Print the table of a shape and return its numbers by arm."""
    leaves = (inputs.q, inputs.k, inputs.v)

    plans = {"ours": plan_for(inputs.q.shape[2], inputs.v.shape[2], inputs.longest, inputs.q.device)}
    if plan != plans["ours"]:
        plans["swept"] = plan
    calls: dict[str, Callable[[], Tensor]] = {
        name: lambda plan=arm: hstu_attention(  # type: ignore[misc]
            *leaves, inputs.offsets, inputs.longest, alpha=inputs.alpha, plan=plan
        )
        for name, arm in plans.items()
    }
    if theirs is not None and torch.cuda.is_available():
        kernel = load(theirs)
        calls["theirs"] = lambda: kernel.triton_hstu_mha(inputs.longest, inputs.alpha, *leaves, inputs.offsets)
    forwards: Arms = dict(calls)
    backwards: Arms = {name: gradients_of(call(), leaves, inputs.grad_output) for name, call in calls.items()}
    kernels: dict[str, Arms] = {
        way: {name: call_of(inputs, kernel, plan) for name, plan in plans.items()}
        for way, kernel in (("forward", "out"), ("backward", "dq"))
    }
    if theirs is not None and "theirs" in calls:
        kernels["forward"]["theirs"], kernels["backward"]["theirs"] = their_kernels(inputs, load(theirs))
    errors = {name: differences(inputs, call(), backwards[name]()) for name, call in calls.items()}
    if len(set(inputs.lengths)) == 1:
        q, k, v = dense = tuple(
            leaf.detach().view(len(inputs.lengths), inputs.longest, *leaf.shape[1:]).transpose(1, 2).requires_grad_()
            for leaf in leaves
        )
        forwards["SDPA"] = lambda: scaled_dot_product_attention(q, k, v, is_causal=True)
        grad_output = inputs.grad_output.view(
            len(inputs.lengths), inputs.longest, *inputs.grad_output.shape[1:]
        ).transpose(1, 2)
        backwards["SDPA"] = gradients_of(scaled_dot_product_attention(q, k, v, is_causal=True), dense, grad_output)
    print(
        "\n" + shape,
        *(f"{name}: {shown(plan.out)} {shown(plan.dq)} {shown(plan.dkdv)}" for name, plan in plans.items()),
    )
    print(f"{'arm':>21} {'ms':>8} {'TFLOP/s':>8} {'/ ours':>7} {'99 % interval':>15}  errors of out, dq, dk, dv")
    numbers: dict[str, Any] = {}
    for way, arms in (("forward", forwards), ("backward", backwards)):
        queues = {name: queue(arm) for name, arm in arms.items()}
        numbers |= timed(queues, "ours", way, rounds, inputs.operations, errors)
        try:
            graphs = {f"{name} graph": recorded(arm) for name, arm in kernels[way].items()}
        except RuntimeError as error:
            print(f"no graphs: {str(error).splitlines()[0]}", flush=True)
            continue
        numbers |= timed(graphs, "ours graph", way, rounds, inputs.operations, errors)
    return numbers


def timed(
    arms: Arms, baseline: str, way: str, rounds: int, operations: float, errors: dict[str, list[float]]
) -> dict[str, Any]:
    """Time arms in turns, print a line of each, and return its numbers by arm and way."""
    numbers: dict[str, Any] = {}
    if len(arms) < 2:
        return numbers
    timing = interleave(arms, rounds=rounds, warmup=3, seed=0, synchronize=wait)
    for name in arms:
        ratio, seconds = timing.ratio(name, baseline), mean(timing, name)
        rate = operations * (1.0 if way == "forward" else 2.5) / seconds / 1e12
        numbers[f"{name} {way}"] = {
            "ms": seconds * 1e3, "tflops": rate, "ratio": ratio.estimate, "low": ratio.low, "high": ratio.high,
            "errors": errors.get(name, []),
        }  # fmt: skip
        interval = f"{ratio.low:.3f} to {ratio.high:.3f}"
        print(
            f"{name:>12} {way:>8} {seconds * 1e3:8.3f} {rate:8.1f} {ratio.estimate:7.3f} {interval:>15} ",
            " ".join(f"{error:.2e}" for error in errors.get(name, [])), flush=True,
        )  # fmt: skip
    return numbers


def summarise(results: dict[str, dict[str, Any]]) -> None:
    """Print a line for each shape and way: the values that have goals, and whether the goals are met."""
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
                rows = int(shape.split("x")[1])
                if ceiling["ratio"] < next((goal for least, goal in OF_CEILING.items() if rows >= least), 0.0):
                    missed.append("SDPA")
            else:
                line += " " * 7
            pairs = list(zip(ours["errors"], theirs["errors"], strict=True))
            pairs = pairs[:1] if way == "forward" else pairs[1:]
            if any(mine > other * NOISE for mine, other in pairs):
                missed.append("error")
            line += " ".join(f"{mine:.1e}/{other:.1e}" for mine, other in pairs)
            print(line, "met" if not missed else f"MISSED: {', '.join(missed)}", flush=True)


def differences(inputs: Inputs, out: Tensor, gradients: object) -> list[float]:
    """Return the root mean square errors of output and gradients in the first sequence, relative to their values."""
    end = inputs.lengths[0]
    q, k, v, grad_output = (tensor.detach()[:end] for tensor in (inputs.q, inputs.k, inputs.v, inputs.grad_output))
    offsets = torch.tensor([0, end], device=q.device)
    right = truth(Question(q, k, v, grad_output, offsets, end, inputs.longest, inputs.alpha, True, None, 1, None, 0, 0))
    assert isinstance(gradients, tuple)
    pairs = zip((out.detach(), *gradients), (right.out, right.dq, right.dk, right.dv), strict=True)
    return [float((got[:end].double() - truth.value).norm() / truth.value.norm()) for got, truth in pairs]


if __name__ == "__main__":
    main()
