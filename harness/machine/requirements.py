"""Checks requirements of a profile or a mutant against a host. A shortfall states required and available values.

The contract's schema has checked the requirements themselves.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import math
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from harness.machine import installed
from harness.machine.installed import Tool

if TYPE_CHECKING:
    from harness.machine.host import Gpu, Host

__all__ = ["Fit", "Requirements", "fit", "out_of_reach", "shortfalls", "suitable"]

_GIB = 2**30


class Requirements(TypedDict, total=False):
    """The requirements of a profile or a mutant."""

    device: str
    """"cuda" or "any"."""
    memory_gib: float
    """The memory of the GPU if the device is "cuda", else of the system."""
    compute_capability: str
    """The minimum, such as "9.0"."""
    gpus: int
    """The number of GPUs that meet the other requirements."""
    modules: Sequence[str]
    """Python modules."""
    disk_gib: float
    """Free space."""
    vulkan: str
    """"gpu" or "any" adapter."""


@dataclass(frozen=True)
class Fit:
    """The usable GPUs and the shortfalls of a host, for the requested device."""

    gpus: tuple[Gpu, ...]
    """The GPUs that a trial can use, in the host's order; empty if it runs on the CPU."""
    lacks: tuple[str, ...]
    """Reasons why the host does not meet the requirements; empty if it does."""


def fit(requires: Requirements, host: Host, device: str = "auto") -> Fit:
    """Compare a host with the requirements of a profile.

    Args:
        requires: as for `shortfalls`.
        device: the requested device: "auto", "cpu", "cuda" for any GPU, or "cuda:N". "auto" is a GPU only
            if one is required.
    """
    on_gpu = requires["device"] == "cuda"
    gpus: tuple[Gpu, ...] = ()
    if device != "cpu" and (on_gpu or device != "auto"):
        index = int(device.partition(":")[2]) if ":" in device else None
        fitted = suitable({**requires, "device": "cuda"}, host)
        gpus = tuple(gpu for gpu in fitted if index is None or gpu.index == index)
    lacks = shortfalls(requires, host)
    if not lacks and gpus:
        lacks = shortfalls({**requires, "device": "cuda"}, host)
    elif not lacks and (on_gpu or device.startswith("cuda")):
        why = "" if host.gpus else f": {host.gpu_reason or 'none was found'}"
        lacks = [f"--device {device} leaves it no GPU that it could use{why}"]
    return Fit(gpus, tuple(lacks))


def shortfalls(requires: Requirements, host: Host) -> list[str]:
    """Return why this host does not meet the requirements; empty if it does.

    Args:
        requires: of a profile or a mutant. The machine is asked for its Vulkan adapters when first one is required.
        host: what `harness.machine.host.probe` found.
    """
    return [reason for name in requires for reason in _CHECKS[name](requires, host)]


def out_of_reach(requires: Requirements, host: Host) -> list[str]:
    """Return the shortfalls of hardware: memory, compute capability and the number of GPUs.

    A host without a detected GPU may have a broken driver, so it has no such shortfalls of GPUs.
    """
    if _needs_gpu(requires) and not host.gpus:
        return []
    return [
        reason
        for name in ("memory_gib", "compute_capability", "gpus")
        if name in requires
        for reason in _CHECKS[name](requires, host)
    ]


def suitable(requires: Requirements, host: Host) -> tuple[Gpu, ...]:
    """Return the GPUs that meet the requirements, in the host's order; empty if no GPU is required."""
    if not _needs_gpu(requires):
        return ()
    gpus = tuple(gpu for gpu in host.gpus if not any(lacks(requires, gpu) for lacks in (_gpu_memory, _gpu_capability)))
    if requires.get("vulkan") != "gpu" or len(host.gpus) < 2:
        return gpus
    # CUDA_VISIBLE_DEVICES does not affect Vulkan, so a trial uses Vulkan's first GPU. It must be the leased one.
    first = _vulkan_gpu() or host.gpus[0].uuid
    return tuple(gpu for gpu in gpus if gpu.uuid == first)


def _needs_gpu(requires: Requirements) -> bool:
    return requires.get("device") == "cuda" or any(name in requires for name in ("compute_capability", "gpus"))


def _device(requires: Requirements, host: Host) -> list[str]:
    if requires["device"] == "any" or suitable(requires, host) or "gpus" in requires:
        return []
    if not host.gpus:
        return [f"needs a CUDA GPU; {host.gpu_reason or 'none was found'}"]
    if _memory(requires, host) or _capability(requires, host):
        return []  # which have the reason
    return ["needs a GPU that meets all requirements at once; each of the GPUs lacks one of them"]


def _memory(requires: Requirements, host: Host) -> list[str]:
    return _of_one_gpu(_gpu_memory, requires, host) if _needs_gpu(requires) else _system_memory(requires, host)


def _capability(requires: Requirements, host: Host) -> list[str]:
    return _of_one_gpu(_gpu_capability, requires, host)


def _of_one_gpu(lacks: Callable[[Requirements, Gpu], str], requires: Requirements, host: Host) -> list[str]:
    """Return how the first GPU falls short of a requirement that no GPU meets."""
    if not host.gpus:
        # The requirement `device` reports the missing GPU already.
        return [] if requires.get("device") == "cuda" else _device({"device": "cuda"}, host)
    reasons = [lacks(requires, gpu) for gpu in host.gpus]
    return reasons[:1] if all(reasons) else []


def _gpu_memory(requires: Requirements, gpu: Gpu) -> str:
    """Return how a GPU falls short of the required memory; empty if it does not."""
    needed = requires.get("memory_gib", 0)
    if not needed:
        return ""
    unread = f"that of {gpu.name} is {gpu.memory_source}"
    return _short(needed, "GPU memory", gpu.memory_bytes, unread, gpu.name, f" ({gpu.memory_source})")


def _gpu_capability(requires: Requirements, gpu: Gpu) -> str:
    """Return how a GPU falls short of the required compute capability; empty if it does not."""
    needed = requires.get("compute_capability")
    if needed is None:
        return ""
    if gpu.compute_capability is None:
        reason = gpu.reasons.get("compute_capability", "it could not be read")
        return f"needs compute capability {needed}; that of {gpu.name} is unknown ({reason})"
    if _numbers(gpu.compute_capability) >= _numbers(needed):
        return ""
    return f"needs compute capability {needed} or newer; {gpu.name} has {gpu.compute_capability}"


def _system_memory(requires: Requirements, host: Host) -> list[str]:
    source, unread = host.memory_source, f"this machine's is {host.memory_source}"
    why = _short(requires["memory_gib"], "memory", host.memory_bytes, unread, "this machine", f" ({source})")
    return [why] if why else []


def _count(requires: Requirements, host: Host) -> list[str]:
    needed = requires["gpus"]
    fit = len(suitable(requires, host))
    if fit >= needed:
        return []
    if not host.gpus:
        return [f"needs {needed} CUDA GPUs; {host.gpu_reason or 'none was found'}"]
    of = f"{fit} of {len(host.gpus)} GPUs meet the rest" if fit < len(host.gpus) else f"this machine has {fit}"
    return [f"needs {needed} GPUs; {of}"]


def _modules(requires: Requirements, host: Host) -> list[str]:
    missing = [name for name in requires["modules"] if not _exists(name)]
    if not missing:
        on_gpu = requires.get("device") == "cuda" and bool(host.gpus)
        return _gpu_modules(requires["modules"], host) if on_gpu else []
    *others, last = missing
    if not others:
        return [f"needs the Python module {last}, which is not installed for this Python"]
    return [f"needs the Python modules {', '.join(others)} and {last}, which are not installed for this Python"]


def _exists(dotted: str) -> bool:
    """Whether a module can be found. None of its code runs.

    `importlib.util.find_spec` imports the parents of a dotted name. For torch that takes seconds and can fail. So it
    gets only the first part; the other parts are looked up in the folders that the parents name.
    """
    if dotted in sys.modules:  # finders do not find os.path
        return True
    first, *rest = dotted.split(".")
    try:
        spec = importlib.util.find_spec(first)
        for part in rest:
            if spec is None or spec.submodule_search_locations is None:
                return False
            # Without its parents' names: a folder without __init__.py would look for them in sys.modules.
            spec = importlib.machinery.PathFinder.find_spec(part, list(spec.submodule_search_locations))
    except (ImportError, ValueError, AttributeError):
        return False
    return spec is not None


def _disk(requires: Requirements, host: Host) -> list[str]:
    unread = f"that of {host.disk} could not be read"
    why = _short(requires["disk_gib"], "free disk space", host.disk_free_bytes, unread, f"{host.disk}")
    return [why] if why else []


def _vulkan(requires: Requirements, host: Host) -> list[str]:
    adapters = _vulkan_adapters()
    names = [str(adapter.details["adapter"]) for adapter in adapters if adapter.reason is None]
    if not names:
        return [f"needs a Vulkan adapter; {adapters[0].reason}"]
    if requires["vulkan"] == "any" or any(
        adapter.reason is None and adapter.details.get("type") != "CPU" for adapter in adapters
    ):
        return []
    only = f"needs the Vulkan adapter of a GPU; there is only software: {', '.join(names)}"
    # CUDA sees a GPU and Vulkan does not: the driver was installed, or mounted into a container, without Vulkan.
    remedy = "; install the GPU driver's Vulkan (libnvidia-gl; of a container NVIDIA_DRIVER_CAPABILITIES=all)"
    return [only + remedy if host.gpus else only]


@cache
def _vulkan_adapters() -> tuple[Tool, ...]:
    return installed.vulkan()


@cache
def _vulkan_gpu() -> str | None:
    return installed.vulkan_gpu()


def _numbers(capability: str) -> tuple[int, ...]:
    """Return a capability as numbers, because as text "12.1" is less than "9.0"."""
    return tuple(map(int, capability.split(".")))


def _short(needed: float, what: str, there: int | None, unread: str, whose: str, source: str = "") -> str:
    """Return how many GiB are needed, and how many there are; empty if there are enough."""
    if there is not None and there >= needed * _GIB:
        return ""
    # Rounded down, so that 23.99 GiB is not shown as the required 24.0.
    has = unread if there is None else f"{whose} has {math.floor(there / _GIB * 10) / 10:.1f} GiB{source}"
    return f"needs {needed:g} GiB of {what}; {has}"


_CHECKS: dict[str, Callable[[Requirements, Host], list[str]]] = {
    "device": _device,
    "memory_gib": _memory,
    "compute_capability": _capability,
    "gpus": _count,
    "modules": _modules,
    "disk_gib": _disk,
    "vulkan": _vulkan,
}


def _gpu_modules(modules: Iterable[str], host: Host) -> list[str]:
    """Return why installed modules cannot work on the GPUs of this host. No module is imported.

    Without these checks a module raises inside the subject, and a faulty installation refutes the claim.
    """
    checks = {"torch": _torch, "triton": _triton}
    return [reason for name in modules if name in checks for reason in checks[name](host)]


def _torch(host: Host) -> list[str]:
    """Return the shortfall of a torch that was built for the CPU or for a newer driver, so that it finds no GPU.

    A driver runs code that was built for any minor version of its CUDA ("Minor Version Compatibility" in NVIDIA's CUDA
    Compatibility guide).
    """
    torch = installed.torch()
    if torch.reason is not None:
        return []
    built, driver = torch.details["cuda"], host.cuda_driver_version
    if built is None:
        return [f"needs a torch that was built for CUDA; {torch.version} was not (pytorch.org has both)"]
    if driver is not None and _major(built) > _major(driver):
        return [f"needs a driver for CUDA {built}, for which torch {torch.version} was built; this one is for {driver}"]
    return []


def _major(version: str) -> int:
    """Return 13 for "13.0", and 0 for a text that is not a version."""
    return int(match[0]) if (match := re.match(r"\d+", version)) else 0


def _triton(host: Host) -> list[str]:
    """Return the shortfall of the C compiler and Python's headers that Triton's runtime/build.py needs.

    Triton also reads the variable CC, but the environment of a trial does not contain it.
    """
    if not (shutil.which("gcc") or shutil.which("clang")):
        return ["needs a C compiler, with which Triton builds its launcher (Debian: apt install gcc)"]
    scheme = sysconfig.get_default_scheme()
    folder = sysconfig.get_paths("posix_prefix" if scheme == "posix_local" else scheme)["include"]
    header = Path(folder, "Python.h")
    if header.is_file():
        return []
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-dev"
    return [f"needs Python's headers, with which Triton builds its launcher; there is no {header} (Debian: {package})"]
