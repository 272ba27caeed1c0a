"""What F-BLACKWELL-PTX-001 needs from a subject: an engine in a process of its own, watched at the CUDA driver."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from harness.authoring.device_watch import DeviceWatch
from harness.tools.recorder.records import Recording


class WatchedEngine(Protocol):
    """An engine that a command starts. It knows nothing of the recorder."""

    def prepare(self) -> None:
        """Check that this machine's driver loads the recorder and refuses PTX; raises NotMeasured if not."""
        ...

    def watch(self) -> DeviceWatch:
        """A watch of the GPU during the run."""
        ...

    def work(self, on_step: Callable[..., None]) -> None:
        """Run to the end, with the recorder, an empty compute cache, and a driver that must not compile."""
        ...

    def recording(self) -> Recording:
        """The driver calls so far."""
        ...

    def cache_files(self) -> Sequence[Path]:
        """The files in the driver's compute cache."""
        ...
