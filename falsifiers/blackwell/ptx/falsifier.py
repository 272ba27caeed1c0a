"""F-BLACKWELL-PTX-001: an engine hands the CUDA driver machine code only, and the driver compiles nothing.

The witnesses are the driver's own: the recorder that it loads (`harness.tools.recorder`), its compute cache, and its
refusal of PTX. A control shows first that they work on this machine.
"""

from falsifiers.blackwell.subjects.ptx import WatchedEngine
from falsifiers.blackwell.watching.driver import launches, listed, work
from harness import Trial
from harness.authoring.device_watch import DeviceWatch
from harness.tools.recorder.records import Recording


def falsify(trial: Trial[WatchedEngine]) -> None:
    """Let the engine work, and measure what the driver was asked; after a failure too."""

    def measure(recording: Recording, watch: DeviceWatch, completed: bool) -> None:
        trial.measure(
            launches=launches(recording, watch, completed),
            ptx_loads=listed(recording, watch, recording.ptx, completed),
            compilations=listed(recording, watch, recording.compilations, completed),
            refused_loads=listed(recording, watch, recording.refused_loads, completed),
            out_of_memory=listed(recording, watch, recording.out_of_memory, completed),
            cache_files=listed(recording, watch, [str(path.name) for path in trial.subject.cache_files()], completed),
        )

    work(trial, measure)
