"""Follows the files that the CUDA recorder (`harness.tools.recorder`) writes about a job's processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, final

from harness.authoring.faults import NotMeasured
from harness.base import regular_file, strictjson
from harness.machine.cache_folder import NoCacheFolderError, made_cache_folder
from harness.tools.recorder.libraries import recorder, recording
from harness.tools.recorder.records import Recording, control
from harness.tools.watch.facts import Fact
from harness.tools.watch.job_state import JobState

__all__ = ["DriverFollower", "recorded_by", "recorder_variables"]

_FOLDER: Final = "HARNESS_RECORDER_DIR"
_INJECTED: Final = "CUDA_INJECTION64_PATH"
_CHUNK: Final = 1 << 20
_SHOWN: Final = 3
_ON_HOST: Final = ("cuMemHostAlloc", "cuMemAllocHost")
"""Allocations of host memory."""


def recorder_variables(state: Path) -> dict[str, str]:
    """Return the environment variables that make the recorder write about a new job into the folder of the watch.

    Raises:
        NotMeasured: it cannot be recorded here. The text says why.
    """
    if _INJECTED in os.environ:
        raise NotMeasured(f"{_INJECTED} is taken by another tool")
    try:
        library = recorder(made_cache_folder())
    except NoCacheFolderError as error:
        raise NotMeasured(str(error)) from error
    control(library, state / "recorder-control", {})
    (state / "recorder").mkdir(exist_ok=True)
    return recording(library, state / "recorder")


def recorded_by(pid: int) -> Path:
    """Return the folder into which the recorder of a running process writes.

    Raises:
        NotMeasured: it was started without the recorder, or its variables cannot be read.
    """
    import psutil

    try:
        folder = Path(psutil.Process(pid).environ()[_FOLDER])
    except KeyError:
        raise NotMeasured("the job was started without it") from None
    except psutil.Error as error:
        raise NotMeasured(f"the variables of process {pid} cannot be read: {error}") from error
    if not folder.is_dir():
        raise NotMeasured(f"its folder {folder} is not here")
    return folder


@final
class DriverFollower:
    """Follows the files of the recorder: one for each process that has started the driver."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, job: JobState, at: float) -> Iterator[Fact]:
        """Yield a fact for each file with new lines. Only complete lines count."""
        for path in sorted(self._folder.glob("*.jsonl")):
            offset, _ = job.places.get(str(path), (0, 0))
            with regular_file.opened(path) as file:
                file.seek(offset)
                chunk = file.read(_CHUNK)
            whole = chunk.rfind(b"\n") + 1
            if whole:
                found = _counted([{**_event(line), "process": path.stem} for line in chunk[:whole].splitlines()])
                yield {"fact": "driver", "at": at, "file": str(path), "offset": offset + whole, **found}


def _event(line: bytes) -> Mapping[str, Any]:
    """Return the event of a line. A damaged line gives the event that something is unseen."""
    try:
        event = strictjson.loads(line)
    except strictjson.JsonError as error:
        return {"event": "error", "what": "a damaged line", "detail": str(error)}
    return event if isinstance(event, dict) else {"event": "error", "what": "a damaged line", "detail": ""}


def _counted(events: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the counts of new events; `launches` are all of the process so far."""
    recording = Recording(tuple(events))
    new = Recording(tuple(event for event in events if event["event"] != "totals"))
    refused = [event for event in recording.out_of_memory if not event.startswith(_ON_HOST)]
    counts: dict[str, Any] = {
        "started": sum(event["event"] == "start" for event in events),
        "ready": recording.processes,
        "launches": recording.launches,
        "images": [*new.ptx[:_SHOWN]],
        "loaded": recording.modules,
        "refused": refused[:_SHOWN],
        "unseen": [*new.unseen[:_SHOWN]],
    }
    return {name: value for name, value in counts.items() if value}
