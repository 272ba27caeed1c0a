"""A stand-in for nvidia-ml-py that replays one of the recordings above this folder.

Put this folder first on the module path, and name the recording in HARNESS_TEST_NVML. A function that the recording
does not have raises NVML_ERROR_FUNCTION_NOT_FOUND.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

NVML_TEMPERATURE_GPU = 0
NVML_CLOCK_SM = 1

_MESSAGES = {2: "Invalid Argument", 3: "Not Supported", 6: "Not Found", 9: "Driver Not Loaded", 10: "Timeout",
             12: "NVML Shared Library Not Found", 13: "Function Not Found", 15: "GPU is lost",
             999: "Unknown Error"}  # fmt: skip

_PATH = Path(__file__).parents[1] / f"nvml-{os.environ['HARNESS_TEST_NVML']}.json"
RECORDING = json.loads(_PATH.read_text(encoding="utf-8"))

running: list[tuple[int, int | None]] | None = None
"""Process ids and bytes to list instead of the recorded ones, because no process of a test has the recorded ids."""

xids: dict[int, list[int]] = {}
"""Xid errors that no event has reported yet, by device."""

lost: set[int] = set()
"""Devices that have fallen off the bus."""

broken: set[str] = set()
"""Functions that fail with NVML_ERROR_UNKNOWN from now on."""


class NVMLError(Exception):
    """An error as in the real binding: the number in `value`, the message as text."""

    def __init__(self, value: int) -> None:
        super().__init__(_MESSAGES.get(value, f"error {value}"))
        self.value = value


def nvmlDeviceGetHandleByIndex(index: int) -> int:  # noqa: N802 - NVML's own name
    return index


def nvmlDeviceGetHandleByUUID(uuid: str) -> int:  # noqa: N802
    for index, device in enumerate(RECORDING["devices"]):
        if device["nvmlDeviceGetUUID"]["value"] == uuid:
            return index
    raise NVMLError(6)


def nvmlDeviceGetMigDeviceHandleByIndex(handle: int, place: int) -> int:  # noqa: N802
    slices: list[int] = RECORDING["devices"][handle].get("slices", [])
    if place >= len(slices):
        raise NVMLError(6)
    return slices[place]


def nvmlEventSetCreate() -> list[int]:  # noqa: N802
    return []


def nvmlDeviceRegisterEvents(handle: int, kinds: int, events: list[int]) -> None:  # noqa: N802
    events.append(handle)


def nvmlEventSetWait_v2(events: list[int], milliseconds: int) -> SimpleNamespace:  # noqa: N802
    for handle in events:
        if xids.get(handle):
            return SimpleNamespace(eventData=xids[handle].pop(0))
    raise NVMLError(10)


def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[SimpleNamespace]:  # noqa: N802
    if running is None or "nvmlDeviceGetComputeRunningProcesses" in broken:
        return _answer(RECORDING["devices"][handle], "nvmlDeviceGetComputeRunningProcesses")
    return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in running]


def __getattr__(name: str) -> Callable[..., Any]:
    if not name.startswith("nvml"):
        raise AttributeError(name)

    def replay(handle: int | None = None, *_: Any) -> Any:
        if handle in lost:
            raise NVMLError(15)
        return _answer(RECORDING["system"] if handle is None else RECORDING["devices"][handle], name)

    return replay


def _answer(answers: dict[str, Any], name: str) -> Any:
    if name in broken:
        raise NVMLError(999)
    answer = answers.get(name, {"error": 13})
    if "error" in answer:
        raise NVMLError(answer["error"])
    return _thaw(answer["value"])


def _thaw(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**value)
    return [_thaw(item) for item in value] if isinstance(value, list) else value
