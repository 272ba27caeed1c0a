"""Runs an engine, records its calls of the CUDA driver, and measures what the record shows."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from falsifiers.blackwell.subjects.ptx import WatchedEngine
from harness import NotMeasured, NotObserved, Trial, propagates
from harness.authoring.device_watch import DeviceWatch
from harness.tools.recorder.records import Recording

Engine = TypeVar("Engine", bound=WatchedEngine)

_MOST_TOLD = 200
"""Largest number of items per list in a bundle. One item is enough for a violation."""


def work(trial: Trial[Engine], measure: Callable[[Recording, DeviceWatch, bool], None]) -> None:
    """Let the engine work, and measure what the driver was asked; after a failure too.

    Args:
        measure: is called with the record, the watch of the GPU, and whether the engine came to its end.
    """
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
        recording = trial.subject.recording()
        for kernel, count in sorted(recording.kernels.items(), key=lambda item: -item[1])[:10]:
            print(f"{count} launches of {kernel[:160]}")
        trial.resolve()
        measure(recording, watch, completed)


@propagates
def launches(recording: Recording, watch: DeviceWatch, completed: bool) -> int:
    """Launches by all processes. Of a GPU that was used without a record, nothing is known."""
    all_recorded(recording, watch)
    if not recording.launches and not completed:
        raise NotObserved("the engine failed before it launched a kernel")
    return recording.launches


@propagates
def listed(recording: Recording, watch: DeviceWatch, items: Sequence[str], completed: bool) -> list[str]:
    """The items of a list that must be empty. An empty one counts only if the record is complete."""
    if not items:
        seen_to_the_end(recording, watch, completed)
    return list(items[:_MOST_TOLD])


def seen_to_the_end(recording: Recording, watch: DeviceWatch, completed: bool) -> None:
    """Raises:
    NotObserved: a process was not recorded, or not to its end.
    """
    all_recorded(recording, watch)
    if not completed or recording.unended:
        raise NotObserved("a process did not come to its end, so nothing is known of the rest")
    if not recording.processes:
        raise NotObserved("no process of the engine started the CUDA driver")


def all_recorded(recording: Recording, watch: DeviceWatch) -> None:
    """Raises:
    NotObserved: a process used the GPU and was not recorded.
    """
    if watch.users > recording.processes:
        raise NotObserved(
            f"{watch.users} processes used the GPU, and {recording.processes} had the recorder: "
            "an environment was emptied"
        )
    if recording.unseen:
        raise NotObserved(f"a process was not recorded: {recording.unseen[0]}")
