"""F-BLACKWELL-ARCHIVE-001 for an external engine: its files, its output, and the driver's compute cache.

The measurements are those of our own engine if they mean the same. Those that need a look into its process, such as
the sources of its kernels, its calls of NVRTC or its launches, are left unmeasured.
"""

import json
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final, Protocol

from falsifiers.blackwell.archived.code_census import Census, Look, census, summary
from falsifiers.blackwell.watching.compilations import forbid_compiling
from harness import NotMeasured, NotObserved, Trial, Unobserved, propagates
from harness.authoring.device_watch import DeviceWatch
from harness.tools.trainer.kernel_summary import KernelTelling
from harness.tools.trainer.output_summary import Telling

_LISTED: Final = ("absent", "not_machine_code", "other_target")
_MOST_TOLD: Final = 1000
"""Largest number of items per list in a bundle. One item is enough for a violation."""

_NEVER_SEEN: Final = {
    ("stale", "altered", "rebuilt", "not_reproduced"): "the sources of its kernels are not visible from outside",
    ("other_kernel",): "it has no index of images and kernels",
    ("nvrtc_calls",): "compiler calls in another process are not visible",
    ("unlaunched",): "launches of another process are not visible",
    ("unread",): "files that another process opens are not visible",
    ("other_weights", "gradient_errors", "loss_errors"): "weights and gradients of another process are not visible",
    ("raised_key_errors",): "weights and gradients of another process are not visible",
    ("torch_products", "children"): "other work in the steps of another process is not visible",
}

OnStep = Callable[..., None]


class OutsideEngine(Protocol):
    """The interface of `external.Command` and `external.Recorded`."""

    telling: Telling | None
    memory_bytes: int | None
    """The peak memory of one of its processes on the CPU; None if it was not measured."""

    def device_code(self) -> Look:
        """The inspected files with its kernels."""
        ...

    def device_watch(self) -> DeviceWatch | None:
        """A watch of the GPU during training; None if it does not train on a GPU now."""
        ...

    def train(self, on_step: OnStep) -> bool:
        """Train to the end, and report every step; False if there is no output to read."""
        ...

    def ran(self) -> dict[str, Any]:
        """Device, dtype and steps, according to its output."""
        ...

    def cache_files(self, computed: Path, watch: DeviceWatch | None, completed: bool) -> list[str]:
        """The files in the driver's compute cache. The driver compiled each of them."""
        ...


def look_from_outside(trial: Trial[OutsideEngine]) -> None:
    """Inspect its files, let it train while the driver must not compile, and look for traces of compilation."""
    computed = forbid_compiling(trial.workspace)
    _measure_files(trial)
    trial.measure(**{name: Unobserved(why) for names, why in _NEVER_SEEN.items() for name in names})
    watch = trial.subject.device_watch()

    def on_step(step: int, **values: float) -> None:
        with trial.falsifier_fault():
            trial.step(step, **values)

    completed = False
    try:
        with trial.subject_fault(), watch or nullcontext():
            _see_that_there_is_room(trial, watch)
            completed = trial.subject.train(on_step)
    finally:
        _measure_told(trial, trial.subject.telling or Telling(on_step), watch, completed)
        trial.measure(cache_files=trial.subject.cache_files(computed, watch, completed))


def _see_that_there_is_room(trial: Trial[OutsideEngine], watch: DeviceWatch | None) -> None:
    """Raises NotMeasured if other processes hold memory that the engine may need."""
    cap = trial.parameters["memory_cap_gib"] * 2**30
    if watch is not None and watch.free_bytes is not None and watch.free_bytes < cap:
        raise NotMeasured(f"{watch.free_bytes / 2**30:.1f} GiB are free; the engine may need {cap / 2**30:g} GiB")


def _measure_files(trial: Trial[OutsideEngine]) -> None:
    census = _census(trial)
    faults = {name: _faults(census, name) for name in _LISTED}
    trial.measure(kernels=_count(census, "kernels"), cells=_count(census, "cells"), **faults)


@propagates
def _census(trial: Trial[OutsideEngine]) -> Census:
    inspected = trial.subject.device_code()
    targets = trial.parameters["targets"]
    content = [inspection.to_json() for inspection in inspected.inspections]
    (trial.artifacts / "device-code.json").write_text(json.dumps(content, indent=1))
    for line in summary(inspected, targets):
        print(line)
    return census(inspected, targets)


@propagates
def _faults(census: Census, name: str) -> list[str]:
    """The faults of one kind. Their absence counts only if everything was seen."""
    faults = list(getattr(census, name))[:_MOST_TOLD]
    if not faults:
        _see_that_all_was_seen(census)
    return faults


@propagates
def _count(census: Census, name: str) -> int:
    _see_that_all_was_seen(census)
    return int(getattr(census, name))


def _see_that_all_was_seen(census: Census) -> None:
    if census.unseen:
        raise NotObserved("; ".join(census.unseen[:3]))


def _measure_told(trial: Trial[OutsideEngine], telling: Telling, watch: DeviceWatch | None, completed: bool) -> None:
    """Measure what its output says. If the run failed, measure only what went wrong."""
    kernels = telling.kernels
    trial.resolve()
    for when, names in (("before", kernels.before), ("after", kernels.after)):
        if names:
            print(f"compiled {when} the end of the warm-up: {len(names)}: {', '.join(names[:50])}")
    _measure_target(trial, telling.ran.get("target"), watch)
    uploaded = completed and bool(telling.newest) and trial.subject.ran().get("device") == "cuda"
    trial.measure(
        reported_compilations=_compilations(kernels),
        refused_loads=_refused_loads(kernels),
        failed_uploads=_failed_uploads(kernels, uploaded),
    )
    if watch is not None or completed:
        trial.measure(memory_bytes=_memory(trial, watch))
    if completed:
        trial.measure(losses=_losses(telling))


@propagates
def _compilations(kernels: KernelTelling) -> int:
    if kernels.compilations is None:
        raise NotObserved(_no_count(kernels))
    return kernels.compilations


@propagates
def _refused_loads(kernels: KernelTelling) -> int:
    if not kernels.refused:
        raise NotObserved("its output reports no refused load, and an unreported one is not visible")
    return len(kernels.refused)


@propagates
def _failed_uploads(kernels: KernelTelling, uploaded: bool) -> list[str]:
    if not kernels.failed_uploads and not uploaded:
        raise NotObserved("its output does not show an upload of weights to a GPU")
    return kernels.failed_uploads


def _no_count(kernels: KernelTelling) -> str:
    """The reason why there is no count of compilations. Kernels "made ready" may be compiled, or only loaded."""
    if kernels.warmed is None:
        return "its output does not report compilations"
    ready = f"that {kernels.warmed} kernels were" if kernels.warmed else "that kernels were"
    return f"its output says {ready} made ready before the first step, but neither counts nor names compilations"


def _measure_target(trial: Trial[OutsideEngine], target: str | None, watch: DeviceWatch | None) -> None:
    """Record a violation if kernels were loaded for another target than the device's."""
    if target is None or watch is None or watch.capability is None:
        return
    expected = f"sm_{watch.capability}"
    if target.lower().rstrip("af") != expected:
        trial.measure(other_target=[f"its kernels were loaded for {target}; the device is {expected}"])


@propagates
def _memory(trial: Trial[OutsideEngine], watch: DeviceWatch | None) -> int:
    """Peak bytes in use on the device; on a CPU, those of the engine's largest process."""
    if watch is None:
        if trial.subject.memory_bytes is None:
            raise NotObserved("it ended before its memory was read")
        return trial.subject.memory_bytes
    if watch.peak_bytes is None:
        raise NotObserved(watch.reason or "the device's memory was not read")
    return watch.peak_bytes


@propagates
def _losses(telling: Telling) -> Iterable[float]:
    """The loss of every step; if steps are missing, the run's own first and last loss."""
    if not telling.unseen and len(telling.losses) == telling.steps:
        return telling.losses
    if telling.initial_loss is not None and telling.final_loss is not None:
        return telling.initial_loss, telling.final_loss
    raise NotObserved(telling.unseen or f"the output has {telling.steps} steps but {len(telling.losses)} losses")
