"""Reads what the recorder wrote about the processes of one command."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.authoring.faults import NotMeasured
from harness.base import regular_file, strictjson
from harness.machine.limited_process import Stopped, completed
from harness.tools.recorder.libraries import recording

__all__ = ["JIT_DISABLED", "Allocated", "Control", "Recording", "control", "read"]

JIT_DISABLED: Final = 223
"""CUDA_ERROR_JIT_COMPILATION_DISABLED, the driver's answer to PTX if CUDA_DISABLE_PTX_JIT=1."""
OUT_OF_MEMORY: Final = 2
"""CUDA_ERROR_OUT_OF_MEMORY."""

_MOST_BYTES: Final = 64 << 20
_CONTROL_SECONDS: Final = 120
_LOADS: Final = ("cuModuleLoad", "cuLibraryLoad", "cuLink")
_ALLOCATIONS: Final = ("cuMemAlloc", "cuMemCreate", "cuMemHostAlloc")
_ON_DEVICE: Final = {
    "cuMemAlloc_v2": "plain", "cuMemAllocPitch_v2": "plain", "cuMemAllocManaged": "managed", "cuMemAllocAsync": "async",
    "cuMemAllocFromPoolAsync": "pool", "cuMemCreate": "virtual",
}  # fmt: skip
"""By call that takes memory of the device, the kind of memory."""


@dataclass(frozen=True)
class Allocated:
    """What was allocated of one kind of memory."""

    allocations: int
    bytes: int
    largest: int
    """Bytes of the largest one."""


@dataclass(frozen=True)
class Recording:
    """The events of all processes that started the CUDA driver, in the order of their files."""

    events: tuple[Mapping[str, Any], ...]

    @property
    def processes(self) -> int:
        """Processes in which the recorder saw the driver."""
        return len(self._of("ready"))

    @property
    def unseen(self) -> tuple[str, ...]:
        """Why processes that started the driver were not recorded, or not in full."""
        errors = [f"{event['what']}: {event['detail']}" for event in self._of("error")]
        blind = ["CUPTI tells of no compilations" for event in self._of("ready") if not event["jit"]]
        deaf = ["CUPTI enabled no callback" for event in self._of("ready") if not event["callbacks"]]
        return (*errors, *blind, *deaf, *self._lost())

    @property
    def unended(self) -> int:
        """Recorded processes that wrote no final totals: they were killed, or the disk was full."""
        ended = {event["process"] for event in self._of("totals") if event["final"]}
        return sum(event["process"] not in ended for event in self._of("ready"))

    @property
    def ptx(self) -> tuple[str, ...]:
        """What was handed to the driver and had to be compiled, one text each."""
        return tuple(_told(event) for event in (*self._of("module"), *self._of("link")) if event["needs_jit"])

    @property
    def modules(self) -> int:
        """Images that were handed to the driver."""
        return len(self._of("module")) + len(self._of("link"))

    @property
    def compilations(self) -> tuple[str, ...]:
        """JIT compilations, loads from the compute cache included, as the driver told CUPTI."""
        return tuple(f"{event['operation']} of {event['from']}" for event in self._of("jit"))

    @property
    def refused_loads(self) -> tuple[str, ...]:
        """Images that the driver refused."""
        return tuple(
            f"{event['call']}: {event['result']}" for event in self._of("refused") if event["call"].startswith(_LOADS)
        )

    @property
    def out_of_memory(self) -> tuple[str, ...]:
        """Allocations that the driver refused for want of memory."""
        return tuple(
            f"{event['call']}: {event['bytes']} bytes"
            for event in self._of("refused")
            if event["call"].startswith(_ALLOCATIONS) and event["result"] == OUT_OF_MEMORY
        )

    @property
    def launches(self) -> int:
        """Kernels and graphs that were seen launched: all, if `sampled` is false and no process crashed."""
        return sum(int(last["launches"]) + int(last["calls"].get("cuGraphLaunch", [0])[0]) for last in self._totals())

    @property
    def sampled(self) -> bool:
        """Whether a process made so many launches that its later ones were counted in samples alone."""
        return any(last["sampled"] for last in self._totals())

    @property
    def allocated_bytes(self) -> int:
        """Bytes of device memory that were asked for, over all calls."""
        total = sum(int(last["calls"].get(name, [0, 0])[1]) for last in self._totals() for name in _ON_DEVICE)
        return total or sum(int(event["bytes"]) for event in self._of("allocation") if event["call"] in _ON_DEVICE)

    @property
    def allocated(self) -> Mapping[str, Allocated]:
        """By kind of device memory (plain, managed, async, pool, virtual), what the driver handed out."""
        found: dict[str, Allocated] = {}
        for last in self._totals():
            for name, (count, size, largest) in last["calls"].items():
                if kind := _ON_DEVICE.get(name):
                    so_far = found.get(kind, Allocated(0, 0, 0))
                    found[kind] = Allocated(
                        so_far.allocations + int(count), so_far.bytes + int(size), max(so_far.largest, int(largest))
                    )
        return found

    @property
    def callers(self) -> Mapping[str, str]:
        """By kernel, the library that launched it first; empty if none was found."""
        return {event["kernel"]: event["caller"] for event in self._of("kernel")}

    @property
    def has_cublas(self) -> bool:
        """Whether a process had a library named libcublas loaded at its end."""
        return bool(self._of("library"))

    @property
    def marks(self) -> tuple[Mapping[str, Any], ...]:
        """Calls of cuProfilerStart and cuProfilerStop, with the launches that the process had made."""
        return tuple(self._of("mark"))

    @property
    def unmarked(self) -> int:
        """Processes that launched kernels and never called cuProfilerStart."""
        marked = {event["process"] for event in self.marks if event["call"] == "cuProfilerStart"}
        return sum(last["launches"] > 0 and last["process"] not in marked for last in self._totals())

    @property
    def late_loads(self) -> tuple[str, ...]:
        """Images that were handed to the driver, and modules that it loaded, after the first cuProfilerStart."""
        handed = [_told(event) for event in (*self._of("module"), *self._of("link")) if event["late"]]
        loaded = [f"a module of {event['bytes']} bytes was loaded" for event in self._of("loaded") if event["late"]]
        return (*handed, *loaded)

    @property
    def late_compilations(self) -> tuple[str, ...]:
        """JIT compilations after the first cuProfilerStart."""
        return tuple(f"{event['operation']} of {event['from']}" for event in self._of("jit") if event["late"])

    @property
    def late_launches(self) -> int:
        """Launches that were seen after the first cuProfilerStart of their process."""
        first = {mark["process"]: mark for mark in reversed(self.marks) if mark["call"] == "cuProfilerStart"}
        return sum(int(last["launches"]) - int(first[last["process"]]["launches"])
                   for last in self._totals() if last["process"] in first)  # fmt: skip

    @property
    def kernels(self) -> Mapping[str, int]:
        """Launches by kernel, of the processes that ended by themselves."""
        counts: dict[str, int] = {}
        for event in self._of("launches"):
            counts[event["kernel"]] = counts.get(event["kernel"], 0) + event["count"]
        return counts

    def _lost(self) -> Iterator[str]:
        """Kinds of events that a process counted but wrote no line about."""
        lines = {
            "ptx": ("module", "link"),
            "jit": ("jit",),
            "refused": ("refused",),
            "late": ("module", "link", "loaded"),
        }
        marked_as = {"ptx": "needs_jit", "late": "late"}
        for last in self._totals():
            for name, kinds in lines.items():
                events = (event for kind in kinds for event in self._of(kind) if event["process"] == last["process"])
                if last[name] and not any(event[marked_as[name]] if name in marked_as else True for event in events):
                    yield f"{last[name]} events of the kind {name} were counted, and none was written"

    def _of(self, kind: str) -> list[Mapping[str, Any]]:
        return [event for event in self.events if event["event"] == kind]

    def _totals(self) -> list[Mapping[str, Any]]:
        """The last totals of each process."""
        last = {event["process"]: event for event in self._of("totals")}
        return list(last.values())


@dataclass(frozen=True)
class Control:
    """What this machine's driver answered to PTX in a process of ours, and whether the recorder saw it."""

    driver: Path
    version: int
    """As 13000 for CUDA 13.0."""
    integrated: bool
    """Whether the device shares the host's memory."""
    result: int
    recording: Recording


def read(folder: Path) -> Recording:
    """Read all records in a folder. A line that was cut off by the end of its process is left out."""
    return Recording(tuple(_events(folder)))


def control(library: Path, folder: Path, variables: Mapping[str, str]) -> Control:
    """Hand PTX to the driver in a process of our own, with the recorder.

    Raises:
        NotMeasured: there is no driver or no device, or the recorder does not see what the driver is asked.
    """
    folder.mkdir(parents=True)
    command = [sys.executable, str(Path(__file__).with_name("control.py"))]
    environment = {**os.environ, **recording(library, folder), **variables}
    try:
        done = completed(command, _CONTROL_SECONDS, environment=environment)
        answer = strictjson.loads(done.stdout)
    except (Stopped, strictjson.JsonError) as error:
        raise NotMeasured(f"the control of the recorder failed: {error}") from error
    if "absent" in answer:
        raise NotMeasured(f"there is no CUDA driver with a device here: {answer['absent']}")
    seen = read(folder)
    if seen.unseen or not seen.ptx:
        why = "; ".join(seen.unseen) or "the driver did not load it, or it saw no PTX where there was some"
        raise NotMeasured(f"the recorder does not work here: {why}")
    return Control(Path(answer["driver"]), answer["version"], answer["integrated"], answer["result"], seen)


def _events(folder: Path) -> Iterator[Mapping[str, Any]]:
    for path in sorted(folder.glob("*.jsonl")):
        for line in regular_file.read(path, _MOST_BYTES).splitlines(keepends=True):
            if line.endswith(b"}\n"):
                try:
                    event = strictjson.loads(line)
                except strictjson.JsonError as error:
                    raise NotMeasured(f"{path.name}: a line of the recorder is damaged: {error}") from error
                yield {**event, "process": path.stem}


def _told(event: Mapping[str, Any]) -> str:
    kind, numbers = ("PTX", event["ptx"]) if event["needs_jit"] else ("machine code", event["machine_code"])
    targets = ", ".join(f"sm_{sm}" for sm in numbers) or "an unknown target"
    size = f", {event['bytes']} bytes, sha256 {event['sha256'][:12]}" if "bytes" in event else ""
    return f"{event['call']}: {event['form']} with {kind} for {targets}{size}"
