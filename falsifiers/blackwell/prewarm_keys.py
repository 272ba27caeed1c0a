"""F-BLACKWELL-PREWARM-KEYS-001: what is warmed up is what steps ask for, for every configuration."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from hypothesis import strategies as st

from falsifiers.blackwell.prewarm_subject import Prewarmed
from falsifiers.blackwell.reference.block import Block, new_weights
from falsifiers.blackwell.reference.kernel_cache import KernelCache, Launch
from falsifiers.blackwell.reference.kernels.nvrtc import Image
from falsifiers.blackwell.reference.kernels.spec import KernelSpec
from falsifiers.blackwell.reference.shapes import SHAPES, BlockShape
from harness import Trial

__all__ = ["falsify"]

_EPS: Final = (1e-6, 1e-5, 1e-8)
_STEPS: Final = 2


def falsify(trial: Trial[Prewarmed]) -> None:
    """Draw models, two of which may share a cache; warm them up, take two steps, and see what was missing.

    Which kernels a step asks for follows from shapes, so the search is a rehearsal, without compiler or GPU. Then the
    models of the profile are warmed up and take their steps on the device, with everything compiled.
    """

    rehearsed_on: set[str] = set()

    def check(case: Mapping[str, Any]) -> Mapping[str, Any]:
        models = [_Model.of(model) for model in case["models"]]
        with trial.subject_fault():
            counts, device = _counted(trial, trial.subject.rehearsed(), models, "cpu")
        rehearsed_on.add(device)
        return counts

    trial.measure(cases=trial.search(_cases(), check, examples=trial.parameters["cases"], first=_known()))
    if not trial.device.startswith("cuda"):  # a device that runs none of the kernels could only be one more rehearsal
        trial.resolve(device=",".join(sorted(rehearsed_on)))
        return

    faults: list[int] = []
    for name in trial.parameters["models"]:
        model = _Model(SHAPES[name], trial.parameters["batch"], trial.parameters["sequence"])
        with trial.subject_fault():
            counts, device = _counted(trial, trial.subject.cache(), [model], trial.device)
        trial.resolve(device=device)
        faults.append(sum(counts.values()) - counts["asked"])
        trial.measure(faults_on_device=faults)


@dataclass(frozen=True)
class _Model:
    shape: BlockShape
    batch: int
    sequence: int

    @classmethod
    def of(cls, case: Mapping[str, Any]) -> _Model:
        """A model of a drawn case."""
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
            "sequence": st.integers(1, 40),
        }
    )
    return st.fixed_dictionaries({"models": st.lists(model, min_size=1, max_size=2)})


def _known() -> list[dict[str, Any]]:
    """Where the engine of the spec failed: Qwen2's eps, a sequence of 256, and two models that differ in eps alone.

    And student and teacher as they are, 0.5B and 1.5B on one cache: so many kernels, and so wide, are never drawn.
    """
    qwen2 = {
        "kv_heads": 2, "group": 2, "half_head": 8, "intermediate": 176,
        "eps": 1e-6, "theta": 1e6, "batch": 1, "sequence": 16,
    }  # fmt: skip
    student = qwen2 | {"group": 7, "half_head": 32, "intermediate": 4864, "sequence": 4}
    teacher = qwen2 | {"group": 6, "half_head": 64, "intermediate": 8960, "sequence": 4}
    return [
        {"models": [qwen2 | {"sequence": 256}]},
        {"models": [qwen2, qwen2 | {"eps": 1e-5}]},
        {"models": [student, teacher]},
    ]


def _counted(
    trial: Trial[Prewarmed], cache: KernelCache, models: list[_Model], device: str
) -> tuple[dict[str, int], str]:
    """Counts over the models of a cache, of which all but `asked` should be 0; and the device that the steps ran on."""
    ran_on = set()
    with _LogLines() as log:
        watch = _Watch.on(cache)
        backends = [trial.subject.backend(cache) for _ in models]
        for backend, model in zip(backends, models, strict=True):
            backend.prewarm(model.shape)
        warmed, loaded = set(watch.loaded), [len(watch.loaded)]
        for step in range(_STEPS):
            for backend, model in zip(backends, models, strict=True):
                ran_on.add(_step(Block(model.shape, backend), model, step, device))
            loaded.append(len(watch.loaded))
    counts = {
        "asked": len(watch.asked),
        "missing": len(set(watch.asked) - warmed),
        "unused": len(warmed - set(watch.asked)),
        "loaded_in_first_step": loaded[1] - loaded[0],
        "loaded_in_second_step": loaded[2] - loaded[1],
        "wrong_kernels": sum(asked != ran for asked, ran in zip(watch.asked, watch.ran, strict=True)),
        "lines_missing": abs(log.lines - loaded[-1]),
        "uncounted": abs(cache.compilations - loaded[-1]),
    }
    return counts, ",".join(sorted(ran_on))


def _step(block: Block, model: _Model, seed: int, device: str) -> str:
    """Forward and backward of one block; the type of the device that its gradient lies on."""
    weights = new_weights(block.shape, seed, dtype=torch.float32, device=device)
    x = torch.ones(model.batch, model.sequence, block.shape.hidden, device=device)
    _, saved = block.forward(x, weights)
    return block.backward(saved, weights, x)[0].device.type


@dataclass
class _Watch:
    """What is asked of a cache, what it loads and what then runs: digests of what the machine code follows from.

    Keys are the subject's own affair: two kernels under one key are as wrong as one kernel under two.
    """

    asked: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)

    @classmethod
    def on(cls, cache: KernelCache) -> _Watch:
        """Look on from now on."""
        watch, launch, load = cls(), cache.launch, cache.device.load

        def launched(spec: KernelSpec, grid: tuple[int, int, int], threads: int, *arguments: object) -> None:
            watch.asked.append(spec.digest)
            launch(spec, grid, threads, *arguments)

        def loading(spec: KernelSpec, image: Image) -> Launch:
            watch.loaded.append(spec.digest)
            run = load(spec, image)

            def running(grid: tuple[int, int, int], threads: int, *arguments: object) -> None:
                watch.ran.append(spec.digest)
                run(grid, threads, *arguments)

            return running

        cache.launch = launched  # type: ignore[method-assign]
        cache.device.load = loading  # type: ignore[method-assign]
        return watch


class _LogLines(logging.Handler):
    """Counts the lines that the subject logs of compilations, instead of printing them a thousand times."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines = 0
        self._logger = logging.getLogger("falsifiers.blackwell.reference.kernel_cache")

    def emit(self, record: logging.LogRecord) -> None:
        """Count it."""
        self.lines += record.getMessage().startswith("compiled ")

    def __enter__(self) -> _LogLines:
        self._logger.addHandler(self)
        self._logger.propagate = False
        return self

    def __exit__(self, *error: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = True
