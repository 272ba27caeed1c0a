"""F-BLACKWELL-ROOTCAUSE-001: the owners of the bytes when memory runs out, and the cause."""

import math
from collections.abc import Mapping
from typing import Any

import torch

from falsifiers.blackwell.faults.memory import BrokenMemory, DeviceFault
from falsifiers.blackwell.measuring.device_memory import Arena, CudaMemory
from falsifiers.blackwell.measuring.gradient_errors import largest_relative_error
from falsifiers.blackwell.oracle.qwen2 import SHAPES, Shape, TrueBlock
from falsifiers.blackwell.subjects.root_cause import (
    STEP_RATE,
    Attribution,
    DeviceMemory,
    Load,
    Owner,
    Report,
    Trained,
    step_input,
)
from falsifiers.blackwell.watching.memory import WatchedMemory, trained_blocks
from harness import NotMeasured, Trial

_NOBODY = "nobody"
_MOST = 0.92
_MODULES_SHARE = 0.3
_USUAL_MODULES = 8
"""Modules beside uncapped sequences: 4 GiB in the full profile, twice the count of SPEC-BLACKWELL-FIX-001."""
_OF_SHAPE = (Owner.WEIGHTS, Owner.OPTIMIZER, Owner.ACTIVATIONS, Owner.SCORES)


def falsify(trial: Trial[Attribution]) -> None:
    """Put six loads on the device, five of which run out of memory, and compare the accounts with computed sizes.

    - others: another owner, unknown to the subject, holds nine tenths. It is the cause, although no block fits.
    - uncapped: the longest sequence; the score workspace fills the device.
    - capped: sequences cut at 2,048; everything fits.
    - refused: a sequence for which not one workspace fits, beside modules on three tenths. The refused workspace is the
      largest, and the cause.
    - modules: capped, with kernel modules on nine tenths of the device. They are the cause.
    - both: the longest sequence with modules on three tenths. There are many modules, but they are not the cause.

    Then the capped load comes once more, and the step of its last block is compared with autograd's. At the end the
    device fails with an error that is not an out-of-memory, while it has free memory.
    """
    parameters = trial.parameters
    memory: DeviceMemory = Arena(parameters["arena_bytes"]) if trial.device == "cpu" else CudaMemory(trial.device)
    room, libraries = memory.free(), memory.allocated()  # `libraries` includes the workspace of cuBLAS
    loads = _loads(parameters, room)
    results: dict[str, dict[str, Any]] = {}
    for step, (name, load) in enumerate(loads.items()):
        memory.clear()
        before = memory.allocated()
        others = memory.tensor([int(_MOST * room) // 4]) if name == "others" else None
        held = memory.allocated() - before
        context = memory.used() - memory.reserved()  # measured before the subject puts anything on the device
        watched = WatchedMemory(memory)
        with trial.subject_fault(), watched.watching():
            report = trial.subject.put(load, watched)
            _see_that_it_is_one(report)
        results[name] = _compared(load, report, watched, {Owner.CONTEXT: context, Owner.UNKNOWN: libraries + held})
        del others
        trial.step(step, driver_gib=results[name]["driver"] / 2**30, blocks=report.blocks)
    trial.measure(
        unaccounted=[result["unaccounted"] for result in results.values()],
        accounts_off=[result["worst"] for result in results.values()],
        accounts_off_own=[result["worst_own"] for result in results.values()],
        accounts=[result["accounts"] for result in results.values()],
        driver_bytes=[result["driver"] for result in results.values()],
        blocks=[result["blocks"] for name, result in results.items() if name not in ("others", "refused")],
        blocks_without_step=[result["blocks_without_step"] for result in results.values()],
        outside=[result["outside"] for result in results.values()],
        room_left=[result["room"] for name, result in results.items() if name != "capped"],
        scores_uncapped=results["uncapped"]["scores"],
        scores_capped=results["capped"]["scores"],
        **{f"module_share_{name}": results[name]["module_share"] for name in ("uncapped", "capped", "modules", "both")},
        **{f"blamed_{name}": result["blamed"] for name, result in results.items()},
    )
    memory.clear()
    with trial.subject_fault():
        trial.subject.put(loads["capped"], memory)
        last = trial.subject.last_block()
    trial.measure(step_error=_step_error(loads["capped"], last))
    del last
    memory.clear()
    with trial.subject_fault():
        trial.measure(fault=_fault(trial.subject, loads["capped"], memory))
    memory.clear()
    trial.resolve(device=memory.tensor([1]).device.type)


def _see_that_it_is_one(report: Report) -> None:
    """Raises TypeError if a part of the report is of another type."""
    parts = (report.blocks, int), (report.ran_out, bool), (report.accounts, Mapping), (report.blamed, Owner | None)
    if not all(isinstance(part, kind) for part, kind in parts):
        raise TypeError(f"not a report: {report!r}"[:200])


def _loads(parameters: Any, room: int) -> dict[str, Load]:
    """The loads by name, in the order in which they are put on the device.

    Raises:
        NotMeasured: with `room` free bytes, a load would not run out of memory, or would before its first block.
    """
    model, longest, cap, size = (
        parameters["model"],
        parameters["longest"],
        parameters["cap"],
        int(parameters["module_bytes"]),
    )
    beyond = math.isqrt(room // (4 * SHAPES[model].heads)) + 1
    modules = int(_MODULES_SHARE * room) // size
    loads = {
        "others": Load(model, 1, longest, 1, size),  # first, while no earlier load holds memory
        "uncapped": Load(model, parameters["blocks"], longest, _USUAL_MODULES, size),
        "capped": Load(model, parameters["blocks_capped"], cap, 1, size),
        "refused": Load(model, 1, beyond, modules, size),
        "modules": Load(model, parameters["blocks"], cap, int(_MOST * room) // size, size),
        "both": Load(model, parameters["blocks"], longest, modules, size),
    }
    uncapped, capped = block_bytes(loads["uncapped"]), block_bytes(loads["capped"])
    least = uncapped / (1.0 - _MODULES_SHARE)
    most = parameters["blocks"] * min(uncapped, capped / (1.0 - _MOST))
    if not least < room < most:
        raise NotMeasured(
            f"{room / 2**20:,.0f} MiB are free; these loads run out of memory as intended between"
            f" {least / 2**20:,.0f} and {most / 2**20:,.0f} MiB. Choose the profile for this device, or free its memory"
        )
    return loads


def _step_error(load: Load, last: Mapping[str, Trained]) -> float:
    """The largest relative error of the gradients of a block's step, as they are in its moments.

    What the weights were before the step follows from its gradient. If the step moved them otherwise, these are other
    weights, and they have other gradients.
    """
    truth = TrueBlock(SHAPES[load.model])
    if {name: tuple(trained.weight.shape) for name, trained in last.items()} != truth.parameters:
        return math.inf
    before = {name: trained.weight.double() + STEP_RATE * trained.mean.double() for name, trained in last.items()}
    x = step_input(load, truth.shape.hidden, next(iter(before.values())).device)
    true = truth.gradients(x, before, x)
    moments = {name: trained.mean for name, trained in last.items()} | {
        f"{name}^2": trained.square for name, trained in last.items()
    }
    return largest_relative_error(
        moments, {name: true[name] for name in last} | {f"{name}^2": true[name] ** 2 for name in last}
    )


def _fault(subject: Attribution, load: Load, memory: DeviceMemory) -> str:
    """How the subject treats a device error that is not an out-of-memory: "raised" or "swallowed"."""
    try:
        subject.put(load, BrokenMemory(memory))
    except DeviceFault:
        return "raised"
    return "swallowed"


def _compared(load: Load, report: Report, memory: WatchedMemory, known: dict[Owner, int]) -> dict[str, Any]:
    """Compare a report with the driver's figure and with computed sizes; differences are relative to that figure.

    Memory can run out while a block is put on the device. Up to one block's bytes of every owner may then be there in
    addition.

    Args:
        known: bytes of the context, and bytes of the allocator in use, before the subject put anything on the device.
    """
    driver = memory.used()
    accounts = {owner: report.accounts.get(owner, 0) for owner in Owner}
    bounds = {**_bounds(load, report, memory), **{owner: (size, size) for owner, size in known.items()}}
    deviations = {owner: max(low - accounts[owner], accounts[owner] - high, 0) for owner, (low, high) in bounds.items()}
    return {
        "driver": driver,
        "blocks": report.blocks,
        "blocks_without_step": max(0, report.blocks - report.ran_out - trained_blocks(SHAPES[load.model], memory)),
        "outside": memory.outside_bytes / _weights(SHAPES[load.model]),
        "room": memory.free() / block_bytes(load),
        "accounts": {owner.value: size for owner, size in accounts.items()},
        "unaccounted": abs(sum(accounts.values()) - driver) / driver,
        "worst": max(deviations.values()) / driver,
        "worst_own": max(
            (deviations[owner] / bounds[owner][1] for owner in _OF_SHAPE if bounds[owner][1]), default=0.0
        ),
        "scores": accounts[Owner.SCORES] / max(1, report.blocks),
        "module_share": accounts[Owner.MODULES] / driver,
        "blamed": report.blamed.value if report.blamed else _NOBODY,
    }


def block_bytes(load: Load) -> int:
    """Bytes of one more block: weights, two moments, kept activations and the score workspace."""
    shape = SHAPES[load.model]
    return 3 * _weights(shape) + _kept(shape, load.sequence) + 4 * shape.heads * load.sequence**2


def _weights(shape: Shape) -> int:
    return 4 * sum(torch.Size(size).numel() for size in TrueBlock(shape).parameters.values())


def _kept(shape: Shape, sequence: int) -> int:
    return 4 * sequence * (6 * shape.hidden + 2 * shape.kv_heads * shape.head_dim + 3 * shape.intermediate)


def _bounds(load: Load, report: Report, memory: DeviceMemory) -> dict[Owner, tuple[int, int]]:
    """The least and the most bytes of every owner whose size can be computed."""
    shape = SHAPES[load.model]
    weights, kept = _weights(shape), _kept(shape, load.sequence)
    begun = report.blocks + report.ran_out
    exactly = {
        Owner.SCORES: report.blocks * 4 * shape.heads * load.sequence**2,
        Owner.MODULES: load.modules * load.module_bytes,
        Owner.SLACK: memory.reserved() - memory.allocated(),
    }
    between = {Owner.WEIGHTS: weights, Owner.OPTIMIZER: 2 * weights, Owner.ACTIVATIONS: kept}
    return {
        **{owner: (size, size) for owner, size in exactly.items()},
        **{owner: (report.blocks * size, begun * size) for owner, size in between.items()},
    }
