"""F-BLACKWELL-ENGINE-ALLOC-001: an engine takes managed memory where the device shares the host's, and else plain."""

from falsifiers.blackwell.subjects.engine import ObservedEngine
from falsifiers.blackwell.watching.driver import listed, seen_to_the_end, work
from harness import NotObserved, Trial, propagates
from harness.authoring.device_watch import DeviceWatch
from harness.tools.recorder.records import Recording

_MANAGED = "managed"


def falsify(trial: Trial[ObservedEngine]) -> None:
    """Let the engine work, and measure which memory the driver handed out."""

    def measure(recording: Recording, watch: DeviceWatch, completed: bool) -> None:
        for kind, usage in sorted(recording.allocated.items()):
            print(f"{usage.allocations} allocations of {kind} memory, {usage.bytes} bytes, {usage.largest} the largest")
        right, wrong = _split(recording, watch, completed, trial.subject.integrated)
        trial.measure(
            right_bytes=right,
            wrong_bytes=wrong,
            largest_is_right=_largest(recording, watch, completed, trial.subject.integrated),
            out_of_memory=listed(recording, watch, recording.out_of_memory, completed),
        )

    work(trial, measure)


def _is_right(kind: str, integrated: bool) -> bool:
    return (kind == _MANAGED) is integrated


def _split(recording: Recording, watch: DeviceWatch, completed: bool, integrated: bool) -> tuple[int, int]:
    """Bytes of the right kinds of memory, and of the wrong ones."""

    @propagates
    def of(right: bool) -> int:
        seen_to_the_end(recording, watch, completed)
        return sum(memory.bytes for kind, memory in recording.allocated.items() if _is_right(kind, integrated) is right)

    return of(True), of(False)


@propagates
def _largest(recording: Recording, watch: DeviceWatch, completed: bool, integrated: bool) -> int:
    """Whether the largest allocation is of the right kind: 1 or 0."""
    seen_to_the_end(recording, watch, completed)
    if not recording.allocated:
        raise NotObserved("the engine took no memory of the device")
    kind = max(recording.allocated, key=lambda kind: recording.allocated[kind].largest)
    return int(_is_right(kind, integrated))
