"""F-BLACKWELL-PREWARM-KEYS-001: prewarming loads exactly the kernels that steps request, for every configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from hypothesis import strategies as st

from falsifiers.blackwell.reference.block import Block
from falsifiers.blackwell.reference.kernels.catalogue import block_kernels
from falsifiers.blackwell.reference.shapes import SHAPES, BlockShape
from falsifiers.blackwell.subjects.prewarm_keys import Cache, Prewarmed
from falsifiers.blackwell.watching.compilations import watching
from falsifiers.blackwell.watching.kernel_cache import CacheWatch, LogLines
from harness import Trial

_EPS: Final = (1e-6, 1e-5, 1e-8)
_SIZES: Final = (64, 128, 256, 512)
"""Sequences at which kernels often change, in tiles or warps. The search also tries their neighbours."""


def falsify(trial: Trial[Prewarmed]) -> None:
    """Draw one or two models on one cache, prewarm them, take two steps, and count missing and unused kernels.

    The kernels that a step requests follow from the shapes, so the search is a rehearsal without compiler or GPU. After
    it, the models of the profile are compiled, prewarmed and run on the device.
    """

    rehearsed_on: set[str] = set()

    def check(case: Mapping[str, Any]) -> Mapping[str, Any]:
        models = [_Model.of(model) for model in case["models"]]
        with trial.subject_fault():
            counts, device = _counted(trial, trial.subject.rehearsed(), models, "cpu")
        rehearsed_on.add(device)
        return counts

    trial.measure(cases=trial.search(_cases(), check, examples=trial.parameters["cases"], first=_known()))
    if not trial.device.startswith("cuda"):  # a CPU runs none of the kernels, so this would be the rehearsal again
        trial.resolve(device=",".join(sorted(rehearsed_on)))
        return

    faults: list[int] = []
    requested: list[int] = []
    for name in trial.parameters["models"]:
        model = _Model(SHAPES[name], trial.parameters["batch"], trial.parameters["sequence"])
        with trial.subject_fault(), watching() as compiler:
            counts, device = _counted(trial, trial.subject.cache(), [model], trial.device)
        trial.resolve(device=device)
        requested.append(counts.pop("asked"))
        # If all other counts are 0, the compiler must have been called once for each kernel of a block.
        faults.append(sum(counts.values()) + abs(compiler.nvrtc - len(block_kernels(model.shape))))
        trial.measure(faults_on_device=faults, asked_on_device=requested)


@dataclass(frozen=True)
class _Model:
    shape: BlockShape
    batch: int
    sequence: int

    @classmethod
    def of(cls, case: Mapping[str, Any]) -> _Model:
        """The model of a drawn case."""
        heads = case["kv_heads"] * case["group"]
        shape = BlockShape(
            hidden=2 * case["half_head"] * heads,
            heads=heads,
            kv_heads=case["kv_heads"],
            intermediate=case["intermediate"],
            eps=case["eps"],
            theta=case["theta"],
        )
        return cls(shape, case["batch"], case["sequence"])


def _cases() -> st.SearchStrategy[dict[str, Any]]:
    model = st.fixed_dictionaries(
        {
            "kv_heads": st.integers(1, 3),
            "group": st.integers(1, 4),
            "half_head": st.integers(1, 16),
            "intermediate": st.integers(1, 96),
            "eps": st.sampled_from(_EPS),
            "theta": st.sampled_from([1e4, 1e6]),
            "batch": st.integers(1, 3),
            "sequence": st.integers(1, 40) | st.sampled_from([size + more for size in _SIZES for more in (-1, 0, 1)]),
        }
    )
    return st.fixed_dictionaries({"models": st.lists(model, min_size=1, max_size=2)})


def _known() -> list[dict[str, Any]]:
    """The cases that are always tried.

    - A sequence of 256, where the engine of the spec failed.
    - Two models that differ in one property: they share kernels if their keys leave that property out.
    - A width of 2048, where the tile changes.
    - A sequence of 4096, longer than the part of a row that a kernel may keep.
    - Student and teacher, 0.5B and 1.5B, on one cache: the search never draws so wide kernels.
    - Six models on one cache: nor so many.
    """
    qwen2 = {
        "kv_heads": 2, "group": 2, "half_head": 8, "intermediate": 176,
        "eps": 1e-6, "theta": 1e6, "batch": 1, "sequence": 16,
    }  # fmt: skip
    student = qwen2 | {"group": 7, "half_head": 32, "intermediate": 4864, "sequence": 4}
    teacher = qwen2 | {"group": 6, "half_head": 64, "intermediate": 8960, "sequence": 4}
    others: list[dict[str, Any]] = [
        {"eps": 1e-5}, {"theta": 1e4}, {"intermediate": 96}, {"half_head": 16}, {"kv_heads": 4, "group": 1},
    ]  # fmt: skip
    return [
        {"models": [qwen2 | {"sequence": 256}]},
        *({"models": [qwen2, qwen2 | other]} for other in others),
        {"models": [qwen2 | {"intermediate": 2048}]},
        {"models": [qwen2 | {"kv_heads": 1, "group": 1, "sequence": 4096}]},
        {"models": [student, teacher]},
        {"models": [qwen2, *(qwen2 | other for other in others)]},
    ]


def _counted(trial: Trial[Prewarmed], cache: Cache, models: list[_Model], device: str) -> tuple[dict[str, int], str]:
    """Counts over all models of a cache, and the device types that the steps ran on.

    Every count but `asked` should be 0. The second step has half the sequence, as the last batch of a run may have.
    """
    ran_on = set()
    other_constants = 0
    with LogLines() as log:
        watch = CacheWatch.on(cache)
        backends = [trial.subject.backend(cache) for _ in models]
        for backend, model in zip(backends, models, strict=True):
            backend.prewarm(model.shape)
        warmed, fetched = set(watch.loaded), [watch.fetched]
        for part in (1, 2):
            for backend, model in zip(backends, models, strict=True):
                sequence, before = max(1, model.sequence // part), len(watch.constants)
                ran_on.add(_step(Block(model.shape, backend), model.batch, sequence, device))
                other_constants += _others(watch.constants[before:], model.shape)
            fetched.append(watch.fetched)
    counts = {
        "asked": len(watch.requested) // len(models),
        "missing": len(set(watch.requested) - warmed),
        "unused": len(warmed - set(watch.requested)),
        "loaded_in_first_step": fetched[1] - fetched[0],
        "loaded_in_second_step": fetched[2] - fetched[1],
        "wrong_kernels": sum(requested != ran for requested, ran in zip(watch.requested, watch.ran, strict=True)),
        "other_constants": other_constants,
        "lines_missing": log.differ_from(watch.compiled),
        "uncounted": watch.miscounted(cache.compilations),
    }
    return counts, ",".join(sorted(ran_on))


def _others(constants: Sequence[tuple[str, float]], shape: BlockShape) -> int:
    """The number of a step's constants that its block does not have."""
    right = {"HIDDEN": shape.hidden, "EPS": shape.eps, "HEAD_DIM": shape.head_dim, "THETA": shape.theta}
    return sum(value != right.get(name, value) for name, value in constants)


def _step(block: Block, batch: int, sequence: int, device: str) -> str:
    """Run forward and backward of one block; returns the device type of the gradient.

    The weights are all alike: this claim counts kernels and reads no result.
    """
    weights = {name: torch.full(size, 0.02, device=device) for name, size in block.shape.parameters().items()}
    x = torch.ones(batch, sequence, block.shape.hidden, device=device)
    _, saved = block.forward(x, weights)
    return block.backward(saved, weights, x)[0].device.type
