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
from falsifiers.blackwell.watching.compilations import forbid_compiling
from harness import Hidden, NotMeasured, NotShown, Trial, look
from harness.authoring.device_watch import DeviceWatch
from harness.external.kernel_summary import KernelTelling
from harness.external.output_summary import Telling

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

    telling: Telling | None
    memory_bytes: int | None
    """The most that one process of a run of this trial held on the CPU; None if that was not seen."""

    def device_code(self) -> Look:
        """The files with its kernels, looked into."""
        ...

    def device_watch(self) -> DeviceWatch | None:
        """A watch of the GPU for the time of the training; None if it does not train on a GPU now."""
        ...

    def train(self, on_step: OnStep) -> bool:
        """Train to the end and tell every step; False if nothing is known of what it printed."""
        ...

    def ran(self) -> dict[str, Any]:
        """What its output says of device, dtype and steps."""
        ...

    def cache_files(self, computed: Path, watch: DeviceWatch | None, completed: bool) -> list[str]:
        """The files in the driver's compute cache, each of which the driver compiled."""
        ...


def look_from_outside(trial: Trial[OutsideEngine]) -> None:
    """Look into its files, let it train where the driver must not compile, and look for traces."""
    computed = forbid_compiling(trial.workspace)
    _measure_files(trial)
    trial.measure(**{name: Hidden(why) for names, why in _NEVER_SEEN.items() for name in names})
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
    """An engine that runs out of memory which others hold is not at fault."""
    cap = trial.parameters["memory_cap_gib"] * 2**30
    if watch is not None and watch.free_bytes is not None and watch.free_bytes < cap:
        raise NotMeasured(f"others left {watch.free_bytes / 2**30:.1f} of the {cap / 2**30:g} GiB that it may take")


def _measure_files(trial: Trial[OutsideEngine]) -> None:
    seen = _census(trial)
    faults = {name: _faults(seen, name) for name in _LISTED}
    trial.measure(kernels=_count(seen, "kernels"), cells=_count(seen, "cells"), **faults)


@look
def _census(trial: Trial[OutsideEngine]) -> Census:
    """What is in the files with its kernels."""
    found = trial.subject.device_code()
    targets = trial.parameters["targets"]
    content = [inspection.to_json() for inspection in found.inspections]
    (trial.artifacts / "device-code.json").write_text(json.dumps(content, indent=1))
    for line in summary(found, targets):
        print(line)
    return census(found, targets)


@look
def _faults(seen: Census, name: str) -> list[str]:
    """The faults of one kind. That there is none is only known if everything was seen."""
    found = list(getattr(seen, name))[:_MOST_TOLD]
    if not found:
        _see_that_all_was_seen(seen)
    return found


@look
def _count(seen: Census, name: str) -> int:
    """How many kernels or cells there are."""
    _see_that_all_was_seen(seen)
    return int(getattr(seen, name))


def _see_that_all_was_seen(seen: Census) -> None:
    if seen.unseen:
        raise NotShown("; ".join(seen.unseen[:3]))


def _measure_told(trial: Trial[OutsideEngine], telling: Telling, watch: DeviceWatch | None, completed: bool) -> None:
    """What its output comes to; of a run that failed only what went wrong."""
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


@look
def _compilations(kernels: KernelTelling) -> int:
    if kernels.compilations is None:
        raise NotShown(_no_count(kernels))
    return kernels.compilations


@look
def _refused_loads(kernels: KernelTelling) -> int:
    if not kernels.refused:
        raise NotShown("its output tells of no refused load, and one that it keeps to itself is not seen")
    return len(kernels.refused)


@look
def _failed_uploads(kernels: KernelTelling, uploaded: bool) -> list[str]:
    if not kernels.failed_uploads and not uploaded:
        raise NotShown("its output does not show that its weights were put on a GPU")
    return kernels.failed_uploads


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


@look
def _memory(trial: Trial[OutsideEngine], watch: DeviceWatch | None) -> int:
    """Bytes: the most that was in use on the device, or on the CPU that the largest of its processes took."""
    if watch is None:
        if trial.subject.memory_bytes is None:
            raise NotShown("it had ended before its memory was read")
        return trial.subject.memory_bytes
    if watch.peak_bytes is None:
        raise NotShown(watch.reason or "the device's memory was not read")
    return watch.peak_bytes


@look
def _losses(telling: Telling) -> Iterable[float]:
    """The loss of every step; where not every one was told, the first and the last by the run's own account."""
    if not telling.unseen and len(telling.losses) == telling.steps:
        return telling.losses
    if telling.initial_loss is not None and telling.final_loss is not None:
        return telling.initial_loss, telling.final_loss
    raise NotShown(telling.unseen or f"the output tells of {telling.steps} steps and of {len(telling.losses)} losses")
