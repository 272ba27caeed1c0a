"""F-BLACKWELL-PTX-001: an engine hands the CUDA driver machine code only, and the driver compiles nothing.

The witnesses are the driver's own: the recorder that it loads (`harness.tools.recorder`), its compute cache, and its
refusal of PTX. A control shows first that they work on this machine.
"""

from collections.abc import Sequence

from falsifiers.blackwell.subjects.ptx import WatchedEngine
from harness import NotMeasured, NotObserved, Trial, propagates
from harness.authoring.device_watch import DeviceWatch
from harness.tools.recorder.records import Recording

_MOST_TOLD = 200
"""Largest number of items per list in a bundle. One item is enough for a violation."""


def falsify(trial: Trial[WatchedEngine]) -> None:
    """Let the engine work, and measure what the driver was asked; after a failure too."""
    if not trial.device.startswith("cuda"):
        raise NotMeasured("the claim is about the CUDA driver, and this trial has no GPU")
    trial.subject.prepare()
    watch = trial.subject.watch()

    def on_step(step: int, **values: float) -> None:
        with trial.falsifier_fault():
            trial.step(step, **values)

    completed = False
    try:
        with trial.subject_fault(), watch:
            trial.subject.work(on_step)
        completed = True
    finally:
        _measure(trial, trial.subject.recording(), watch, completed)


def _measure(trial: Trial[WatchedEngine], seen: Recording, watch: DeviceWatch, completed: bool) -> None:
    for kernel, count in sorted(seen.kernels.items(), key=lambda item: -item[1])[:10]:
        print(f"{count} launches of {kernel[:160]}")
    trial.resolve()
    trial.measure(
        launches=_launches(seen, watch, completed),
        ptx_loads=_listed(seen, watch, seen.ptx, completed),
        compilations=_listed(seen, watch, seen.compilations, completed),
        refused_loads=_listed(seen, watch, seen.refused_loads, completed),
        out_of_memory=_listed(seen, watch, seen.out_of_memory, completed),
        cache_files=_listed(seen, watch, [str(path.name) for path in trial.subject.cache_files()], completed),
    )


@propagates
def _launches(seen: Recording, watch: DeviceWatch, completed: bool) -> int:
    """Launches by all processes. Of a GPU that was used without a record, nothing is known."""
    _see_that_all_was_recorded(seen, watch)
    if not seen.launches and not completed:
        raise NotObserved("the engine failed before it launched a kernel")
    return seen.launches


@propagates
def _listed(seen: Recording, watch: DeviceWatch, items: Sequence[str], completed: bool) -> list[str]:
    """What must not be. An empty list counts only if all was seen to the end."""
    if not items:
        _see_that_all_was_recorded(seen, watch)
        if not completed or seen.unended:
            raise NotObserved("a process did not come to its end, so nothing is known of the rest")
        if not seen.processes:
            raise NotObserved("no process of the engine started the CUDA driver")
    return list(items[:_MOST_TOLD])


def _see_that_all_was_recorded(seen: Recording, watch: DeviceWatch) -> None:
    if watch.users > seen.processes:
        raise NotObserved(
            f"{watch.users} processes used the GPU, and {seen.processes} had the recorder: an environment was emptied"
        )
    if seen.unseen:
        raise NotObserved(f"a process was not recorded: {seen.unseen[0]}")
