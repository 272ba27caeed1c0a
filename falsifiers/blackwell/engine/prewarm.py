"""F-BLACKWELL-ENGINE-PREWARM-001: an engine loads and compiles nothing after cuProfilerStart, its warm-up's end."""

from falsifiers.blackwell.subjects.engine import ObservedEngine
from falsifiers.blackwell.watching.driver import all_recorded, listed, work
from harness import NotObserved, Trial, propagates
from harness.authoring.device_watch import DeviceWatch
from harness.tools.recorder.records import Recording


def falsify(trial: Trial[ObservedEngine]) -> None:
    """Let the engine work, and measure what the driver loaded after the mark."""

    def measure(recording: Recording, watch: DeviceWatch, completed: bool) -> None:
        trial.measure(
            launches_after=_launches_after(recording, watch),
            loads_after=_after(recording, watch, recording.late_loads, completed),
            compilations_after=_after(recording, watch, recording.late_compilations, completed),
        )

    work(trial, measure)


@propagates
def _launches_after(recording: Recording, watch: DeviceWatch) -> int:
    _see_the_mark(recording)
    all_recorded(recording, watch)
    return recording.late_launches


@propagates
def _after(recording: Recording, watch: DeviceWatch, items: tuple[str, ...], completed: bool) -> list[str]:
    _see_the_mark(recording)
    return listed(recording, watch, items, completed)


def _see_the_mark(recording: Recording) -> None:
    if recording.unmarked or not recording.marks:
        raise NotObserved(
            "it does not call cuProfilerStart in each process that launches kernels, at its warm-up's end"
        )
