"""F-BLACKWELL-PTX-001 of an engine that is seen from outside: its files, its output, and what the driver left.

The measurements are those of our own engine where they mean the same. What nobody can see from outside, such as the
sources of its kernels, calls of NVRTC in its process, or which kernels it launched, is left unmeasured.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final, Protocol

from falsifiers.blackwell.ptx.code_census import Census, Look, census, summary
from falsifiers.blackwell.watching.compilations import see_that_ptx_is_refused
from harness import NotMeasured, NotShown, Trial
from harness.authoring.device_watch import DeviceWatch
from harness.external.kernels import KernelTelling
from harness.external.run import Telling

__all__ = ["OnStep", "OutsideEngine", "look_from_outside"]

_LISTED: Final = ("absent", "not_machine_code", "other_target")
_MOST_TOLD: Final = 1000
"""Items of a list that a bundle keeps; a violation needs one."""

_NEVER_SEEN: Final = {
    ("stale", "altered", "rebuilt", "not_reproduced"): "what its kernels were compiled from is not seen from outside",
    ("other_kernel",): "it has no index that says which image is to hold which kernel",
    ("nvrtc_calls",): "calls of a compiler in another process are not seen",
    ("unlaunched",): "which kernels another process launched is not seen",
    ("unread",): "which of its files another process opened is not seen",
    ("other_weights", "gradient_errors"): "the weights of another process and their gradients are not seen",
    ("torch_products", "children"): "what else works in the steps of another process is not seen",
}

OnStep = Callable[..., None]


class OutsideEngine(Protocol):
    """What `external.Command` and `external.Recorded` are."""

    is_over: bool
    may_compile: bool
    """Whether the driver was allowed to compile PTX, or nobody knows that it was not."""
    telling: Telling | None
    memory_bytes: int | None
    """Of a run that was made here: the most that one of its processes held on the CPU; None where nobody saw."""

    def device_code(self) -> Look:
        """The files with its kernels, looked into."""
        ...

    def train(self, on_step: OnStep) -> Telling:
        """Train to the end, telling every step."""
        ...

    def ran(self) -> dict[str, Any]:
        """What its output says of device, dtype and steps."""
        ...

    def compute_cache(self) -> Path | None:
        """Of a run that is over: the driver's compute cache, where it was kept."""
        ...


def look_from_outside(trial: Trial[OutsideEngine], computed: Path) -> None:
    """Look into its files, let it train where the driver must not compile, and look for traces.

    Args:
        computed: the driver's compute cache for what this trial starts; empty.
    """
    with trial.where_shown("kernels", "cells", *_LISTED):
        _look_into_files(trial)
    for names, why in _NEVER_SEEN.items():
        with trial.where_shown(*names):
            raise NotShown(why)
    on_gpu = trial.device.startswith("cuda") and not trial.subject.is_over
    watch = DeviceWatch() if on_gpu else None

    def on_step(step: int, **values: float) -> None:
        with trial.falsifier_fault():
            trial.step(step, **values)

    completed = False
    try:
        with trial.where_shown(), trial.subject_fault(), watch or nullcontext():
            _see_that_there_is_room(trial, watch)
            trial.subject.train(on_step)
            completed = True
    finally:
        _measure_told(trial, trial.subject.telling or Telling(on_step), watch, completed)
        with trial.where_shown("cache_files"):
            _measure_cache(trial, computed)
    if completed and not trial.subject.is_over:
        with trial.where_shown("cache_files"):
            _believe_empty_cache(trial, computed, watch)


def _see_that_there_is_room(trial: Trial[OutsideEngine], watch: DeviceWatch | None) -> None:
    """An engine that runs out of memory which others hold is not at fault."""
    cap = trial.parameters["memory_cap_gib"] * 2**30
    if watch is not None and watch.free_bytes is not None and watch.free_bytes < cap:
        raise NotMeasured(f"others left {watch.free_bytes / 2**30:.1f} of the {cap / 2**30:g} GiB that it may take")


def _look_into_files(trial: Trial[OutsideEngine]) -> None:
    look = trial.subject.device_code()
    targets = trial.parameters["targets"]
    content = [inspection.to_json() for inspection in look.inspections]
    (trial.artifacts / "device-code.json").write_text(json.dumps(content, indent=1))
    for line in summary(look, targets):
        print(line)
    seen: Census = census(look, targets)
    faults = {name: list(getattr(seen, name))[:_MOST_TOLD] for name in _LISTED}
    trial.measure(**{name: found for name, found in faults.items() if found})
    if seen.unseen:
        raise NotShown("; ".join(seen.unseen[:3]))
    trial.measure(kernels=seen.kernels, cells=seen.cells, **faults)


def _measure_told(trial: Trial[OutsideEngine], telling: Telling, watch: DeviceWatch | None, completed: bool) -> None:
    """What its output comes to; of a run that failed only what went wrong."""
    kernels, ran = telling.kernels, trial.subject.ran()
    trial.resolve(**ran)
    for when, names in (("before", kernels.before), ("after", kernels.after)):
        if names:
            print(f"compiled {when} the end of the warm-up: {len(names)}: {', '.join(names[:50])}")
    _measure_target(trial, telling.ran.get("target"), watch)
    with trial.where_shown("reported_compilations"):
        if kernels.compilations is None:
            raise NotShown(_no_count(kernels))
        trial.measure(reported_compilations=kernels.compilations)
    with trial.where_shown("refused_loads"):
        if not kernels.refused:
            raise NotShown("its output tells of no refused load, and one that it keeps to itself is not seen")
        trial.measure(refused_loads=len(kernels.refused))
    with trial.where_shown("failed_uploads"):
        if not kernels.failed_uploads and not (completed and telling.newest and ran.get("device") == "cuda"):
            raise NotShown("its output does not show that its weights were put on a GPU")
        trial.measure(failed_uploads=kernels.failed_uploads)
    with trial.where_shown("memory_bytes"):
        if watch is not None or completed:
            trial.measure(memory_bytes=_memory(trial, watch))
    with trial.where_shown("losses"):
        if completed:
            trial.measure(losses=_losses(telling))


def _no_count(kernels: KernelTelling) -> str:
    """Why no compilation counts: kernels that were made ready may have been compiled, or loaded as machine code."""
    if kernels.warmed is None:
        return "its output says nothing of compilations"
    ready = f"that {kernels.warmed} kernels were" if kernels.warmed else "that kernels were"
    return f"its output tells {ready} made ready before the first step, and neither counts nor names compilations"


def _measure_target(trial: Trial[OutsideEngine], told: str | None, watch: DeviceWatch | None) -> None:
    """Kernels that are loaded for another target than the device's: the lists above know nothing of that."""
    if told is None or watch is None or watch.capability is None:
        return
    wanted = f"sm_{watch.capability}"
    if told.lower().rstrip("af") != wanted:
        trial.measure(other_target=[f"its kernels were loaded for {told}, and the device is {wanted}"])


def _measure_cache(trial: Trial[OutsideEngine], computed: Path) -> None:
    """Files in the compute cache: each of them the driver compiled, whatever the output says."""
    folder: Path | None = trial.subject.compute_cache() if trial.subject.is_over else computed
    if folder is None:
        raise NotShown("the compute cache of the run was not kept (/files/compute_cache)")
    if found := _files(folder):
        trial.measure(cache_files=found[:_MOST_TOLD])
    elif trial.subject.is_over:
        raise NotShown(f"{folder} is empty, and nobody saw that the run used it")


def _believe_empty_cache(trial: Trial[OutsideEngine], computed: Path, watch: DeviceWatch | None) -> None:
    """An empty cache shows that nothing was compiled, where something would have been refused or have left a file."""
    if _files(computed):
        return
    if watch is None:
        raise NotShown("no GPU was there, whose driver could have compiled anything")
    if not watch.was_used:
        raise NotShown(watch.reason or "no process of it was seen on the GPU")
    if trial.subject.may_compile:
        raise NotShown("its driver was allowed to compile, and need not keep what it compiled")
    see_that_ptx_is_refused()
    trial.measure(cache_files=[])


def _files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _memory(trial: Trial[OutsideEngine], watch: DeviceWatch | None) -> int:
    """Bytes: the most that was in use on the device, or on the CPU that the largest of its processes took."""
    if trial.subject.is_over:
        raise NotShown("what memory a run took that is over is not seen")
    if watch is None:
        if trial.subject.memory_bytes is None:
            raise NotShown("it had ended before its memory was read")
        return trial.subject.memory_bytes
    if watch.peak_bytes is None:
        raise NotShown(watch.reason or "the device's memory was not read")
    return watch.peak_bytes


def _losses(telling: Telling) -> Iterable[float]:
    """The loss of every step; where not every one was told, the first and the last by the run's own account."""
    if not telling.unseen and len(telling.losses) == telling.steps:
        return telling.losses
    if telling.initial_loss is not None and telling.final_loss is not None:
        return telling.initial_loss, telling.final_loss
    raise NotShown(telling.unseen or f"the output tells of {telling.steps} steps and of {len(telling.losses)} losses")
