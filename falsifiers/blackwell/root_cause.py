"""F-BLACKWELL-ROOTCAUSE-001: whose bytes they are when memory runs out, and what caused it."""

from __future__ import annotations

from typing import Any

import torch

from falsifiers.blackwell.device_memory import Arena, CudaMemory, DeviceMemory
from falsifiers.blackwell.ownership import Attribution, Load, Owner, Report
from falsifiers.blackwell.reference.shapes import SHAPES, BlockShape
from harness import Trial

__all__ = ["falsify"]

_NOBODY = "nobody"
_MODULES_FILL = 0.92
_MODULES_SHARE = 0.3


def falsify(trial: Trial[Attribution]) -> None:
    """Run out of memory in three ways and not at all in a fourth, and hold the accounts against sizes we know.

    - uncapped: the longest sequence; the score workspace fills the device.
    - capped: sequences cut at 2,048; everything fits.
    - modules: the same with kernels on nine tenths of the device: now they are the cause.
    - both: the longest sequence with kernels on three tenths: many modules, and still not the cause.
    """
    asked = trial.parameters
    memory: DeviceMemory = Arena(asked["arena_bytes"]) if trial.device == "cpu" else CudaMemory(trial.device)
    size = int(asked["module_bytes"])
    room = memory.free()
    loads = {
        "uncapped": Load(asked["model"], asked["blocks"], asked["longest"], 1, size),
        "capped": Load(asked["model"], asked["blocks_capped"], asked["cap"], 1, size),
        "modules": Load(asked["model"], asked["blocks"], asked["cap"], int(_MODULES_FILL * room) // size, size),
        "both": Load(asked["model"], asked["blocks"], asked["longest"], int(_MODULES_SHARE * room) // size, size),
    }
    found: dict[str, dict[str, Any]] = {}
    for step, (name, load) in enumerate(loads.items()):
        memory.clear()
        context = memory.used() - memory.reserved()  # before the subject has anything there
        with trial.subject_fault():
            report = trial.subject.put(load, memory)
        found[name] = _compared(load, report, memory, context)
        trial.step(step, driver_gib=found[name]["driver"] / 2**30, blocks=report.blocks)
    trial.measure(
        unaccounted=[one["unaccounted"] for one in found.values()],
        accounts_off=[one["worst"] for one in found.values()],
        accounts=[one["accounts"] for one in found.values()],
        driver_bytes=[one["driver"] for one in found.values()],
        blocks=[one["blocks"] for one in found.values()],
        room_left=[one["room"] for one in found.values() if one["room"] is not None],
        scores_uncapped=found["uncapped"]["scores"],
        scores_capped=found["capped"]["scores"],
        **{f"module_share_{name}": one["module_share"] for name, one in found.items()},
        **{f"blamed_{name}": one["blamed"] for name, one in found.items()},
    )
    memory.clear()
    trial.resolve(device=memory.tensor([1]).device.type)


def _compared(load: Load, report: Report, memory: DeviceMemory, context: int) -> dict[str, Any]:
    """A report against the driver's figure, and against what everything has by its shape; relative to that figure.

    Memory runs out while a block is being put on the device: of what is asked for before its score workspace, as much
    as one more block has may be there as well.
    """
    driver = memory.used()
    accounts = {owner: int(report.accounts.get(owner, 0)) for owner in Owner}
    deviations = [
        max(low - accounts[owner], accounts[owner] - high, 0)
        for owner, (low, high) in _bounds(load, report, memory, context).items()
    ]
    return {
        "driver": driver,
        "blocks": report.blocks,
        "room": memory.free() / _block_bytes(load) if report.ran_out else None,
        "accounts": {owner.value: size for owner, size in accounts.items()},
        "unaccounted": abs(sum(accounts.values()) - driver) / driver,
        "worst": max(deviations) / driver,
        "scores": accounts[Owner.SCORES] / max(1, report.blocks),
        "module_share": accounts[Owner.MODULES] / driver,
        "blamed": report.blamed.value if report.blamed else _NOBODY,
    }


def _block_bytes(load: Load) -> int:
    """What one more block would have asked for: weights, two moments, what it keeps, and its score workspace."""
    shape = SHAPES[load.model]
    return 3 * _weights(shape) + _kept(shape, load.sequence) + 4 * shape.heads * load.sequence**2


def _weights(shape: BlockShape) -> int:
    return 4 * sum(torch.Size(size).numel() for size in shape.parameters().values())


def _kept(shape: BlockShape, sequence: int) -> int:
    return 4 * sequence * (6 * shape.hidden + 2 * shape.kv_heads * shape.head_dim + 3 * shape.intermediate)


def _bounds(load: Load, report: Report, memory: DeviceMemory, context: int) -> dict[Owner, tuple[int, int]]:
    """The least and the most bytes of every owner that we can compute."""
    shape = SHAPES[load.model]
    weights, kept = _weights(shape), _kept(shape, load.sequence)
    begun = report.blocks + report.ran_out
    exactly = {
        Owner.SCORES: report.blocks * 4 * shape.heads * load.sequence**2,
        Owner.MODULES: load.modules * load.module_bytes,
        Owner.SLACK: memory.reserved() - memory.allocated(),
        Owner.CONTEXT: context,
    }
    between = {Owner.WEIGHTS: weights, Owner.OPTIMIZER: 2 * weights, Owner.ACTIVATIONS: kept}
    return {
        **{owner: (size, size) for owner, size in exactly.items()},
        **{owner: (report.blocks * size, begun * size) for owner, size in between.items()},
    }
