"""The one place that talks to NVML: every question answered with a value, or with the reason why there is none.

    session = nvml.connect()
    if isinstance(session, str):
        print(session)  # why NVML cannot be asked
    else:
        print(session.ask("nvmlSystemGetDriverVersion").value)

NVML is NVIDIA's management library. Asking it creates no CUDA context, so it never shows up on the device itself.
"""

from __future__ import annotations

import importlib
import os
import threading
from dataclasses import dataclass
from types import ModuleType
from typing import Any, final

__all__ = ["NOT_SUPPORTED", "Process", "Reading", "Session", "connect", "cuda_version", "handle_of", "processes"]

NOT_SUPPORTED = 3
"""NVML_ERROR_NOT_SUPPORTED: the device does not have what was asked for (unified memory has no device memory)."""


@final
@dataclass(frozen=True, slots=True)
class Reading:
    """What NVML answered: a value, or None with a reason; `code` is NVML's own error number where it gave one."""

    value: Any
    reason: str | None = None
    code: int | None = None


@final
@dataclass(frozen=True, slots=True)
class Process:
    """One process with a compute context on a GPU; `memory_bytes` is None where the driver does not say."""

    pid: int
    memory_bytes: int | None


@final
class Session:
    """An initialised NVML. It lives as long as the process: NVML counts its users and may unload at the last one."""

    __slots__ = ("_module",)

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def ask(self, function: str, *arguments: Any) -> Reading:
        """Call one NVML function by name; never raises."""
        try:
            return Reading(getattr(self._module, function)(*arguments))
        except AttributeError:
            return Reading(None, f"the installed nvidia-ml-py has no {function}; update it")
        except Exception as error:  # the binding raises NVMLError, ctypes errors and TypeError alike
            code = getattr(error, "value", None)
            return Reading(None, f"NVML: {error}", code if isinstance(code, int) else None)

    def constant(self, name: str) -> Any:
        """A constant of the binding; AttributeError where this version lacks it."""
        return getattr(self._module, name)


_lock = threading.Lock()
_session: tuple[ModuleType, int, Session] | None = None


def connect() -> Session | str:
    """Return this process's NVML session, or the reason why there is none.

    Initialised once a process, as that can take a second where no persistence daemon keeps the driver awake. A failure
    is not remembered: a driver may be loaded later.
    """
    global _session
    with _lock:
        try:
            module = importlib.import_module("pynvml")
        except ImportError:
            return "the package nvidia-ml-py is not installed, so NVML cannot be asked; pip install nvidia-ml-py"
        if _session is not None and _session[:2] == (module, os.getpid()):
            return _session[2]
        session = Session(module)
        answer = session.ask("nvmlInit")
        if answer.reason is not None:
            return f"no NVIDIA driver answers: {answer.reason.removeprefix('NVML: ')}"
        _session = (module, os.getpid(), session)
        return session


def cuda_version(number: int | None) -> str | None:
    """NVML's CUDA version number as people write it: 13000 is "13.0"."""
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"


def handle_of(session: Session, uuid: str) -> Reading:
    """The handle of the GPU (or MIG device) with this uuid."""
    return session.ask("nvmlDeviceGetHandleByUUID", uuid)


def processes(session: Session, handle: Any) -> Reading:
    """The processes with a compute context on a GPU; the value is a `tuple[Process, ...]`.

    The ids are those of the driver's PID namespace, or of the caller's where the driver translates them; in a
    container, an id may therefore mean nothing, or be 0 for a process that the caller cannot see.
    """
    answer = session.ask("nvmlDeviceGetComputeRunningProcesses", handle)
    if answer.reason is not None:
        return answer
    listed = (Process(int(one.pid), _bytes(one.usedGpuMemory)) for one in answer.value)
    return Reading(tuple(listed))


def _bytes(value: Any) -> int | None:
    # Older bindings hand through NVML_VALUE_NOT_AVAILABLE, which is all ones, instead of None.
    return None if value is None or int(value) >= 2**64 - 1 else int(value)
