"""Queries NVML, NVIDIA's management library. Every answer is a value, or None with a reason.

    driver = nvml.ask("nvmlSystemGetDriverVersion")
    print(driver.value or driver.reason)

NVML creates no CUDA context, so the querying process does not appear on the device.
"""

from __future__ import annotations

import importlib
import os
import threading
from dataclasses import dataclass
from types import ModuleType
from typing import Any, final

__all__ = ["NOT_SUPPORTED", "Device", "Process", "Reading", "ask", "connect", "cuda_version"]

NOT_SUPPORTED = 3
"""NVML_ERROR_NOT_SUPPORTED: the device lacks this property. A device with unified memory has no device memory."""


@final
@dataclass(frozen=True, slots=True)
class Reading:
    """An answer of NVML: a value, or None with a reason. `code` is NVML's error number, if it gave one."""

    value: Any
    reason: str | None = None
    code: int | None = None


@final
@dataclass(frozen=True, slots=True)
class Process:
    """One process with a compute context on a GPU. `memory_bytes` is None if the driver does not report it."""

    pid: int
    memory_bytes: int | None


_lock = threading.Lock()
_initialised: tuple[ModuleType, int] | None = None
"""The binding and the process for which it is initialised."""


def connect() -> ModuleType | str:
    """Return the initialised binding of NVML, or the reason why there is none.

    NVML is initialised once in each process. That can take a second if no persistence daemon keeps the driver loaded.
    A failure is not remembered, because a driver may be loaded later. NVML is never shut down: it counts its users and
    may unload after the last one.
    """
    global _initialised
    with _lock:
        try:
            module = importlib.import_module("pynvml")
        except ImportError:
            return "the package nvidia-ml-py is not installed; pip install nvidia-ml-py"
        if _initialised != (module, os.getpid()):
            answer = _called(module, "nvmlInit")
            if answer.reason is not None:
                return f"no NVIDIA driver answers: {answer.reason.removeprefix('NVML: ')}"
            _initialised = (module, os.getpid())
        return module


def ask(function: str, *arguments: Any) -> Reading:
    """Call one NVML function by name; never raises."""
    module = connect()
    return Reading(None, module) if isinstance(module, str) else _called(module, function, *arguments)


def _called(module: ModuleType, function: str, *arguments: Any) -> Reading:
    try:
        return Reading(getattr(module, function)(*arguments))
    except AttributeError:
        return Reading(None, f"the installed nvidia-ml-py has no {function}; update it")
    except Exception as error:  # the binding raises NVMLError, ctypes errors and TypeError alike
        code = getattr(error, "value", None)
        return Reading(None, f"NVML: {error}", code if isinstance(code, int) else None)


def cuda_version(number: int | None) -> str | None:
    """Return NVML's CUDA version number as text: 13000 becomes "13.0"."""
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"


@final
class Device:
    """A GPU or a MIG slice. Every query looks it up by its uuid, so that a lost device is detected."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid

    def ask(self, function: str, *arguments: Any) -> Reading:
        """Call one NVML function with the device and further arguments; never raises."""
        handle = ask("nvmlDeviceGetHandleByUUID", self._uuid)
        return handle if handle.reason is not None else ask(function, handle.value, *arguments)

    def processes(self) -> Reading:
        """Return the processes with a compute context on the device; the value is a `tuple[Process, ...]`.

        Some drivers translate process ids into the caller's PID namespace, others do not. So in a container an id may
        mean nothing, or be 0 for a process that the caller cannot see.
        """
        answer = self.ask("nvmlDeviceGetComputeRunningProcesses")
        if answer.reason is not None:
            return answer
        listed = (Process(int(process.pid), _bytes(process.usedGpuMemory)) for process in answer.value)
        return Reading(tuple(listed))


def _bytes(value: Any) -> int | None:
    # Older bindings return NVML_VALUE_NOT_AVAILABLE, all bits set, instead of None.
    return None if value is None or int(value) >= 2**64 - 1 else int(value)
