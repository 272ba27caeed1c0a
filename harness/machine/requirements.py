"""Checks requirements of a profile or a mutant against a host. A shortfall states what is needed and what was found."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from harness.machine import gpu_modules

if TYPE_CHECKING:
    from harness.machine.host import Gpu, Host
    from harness.machine.toolchain import Tool

__all__ = ["Fit", "Requirements", "fit", "shortfalls", "suitable"]

_GIB = 2**30
_AboutGpu = Literal["memory_gib", "compute_capability"]
_ABOUT_GPUS: tuple[_AboutGpu, ...] = ("memory_gib", "compute_capability")


class Requirements(TypedDict, total=False):
    """What a profile or a mutant requires of a machine; a name that is not here is a shortfall."""

    device: str
    """"cuda" or "any"."""
    memory_gib: float
    """Of the GPU if the device is "cuda", else of the system."""
    compute_capability: str
    """At least this, such as "9.0"."""
    gpus: int
    """How many GPUs meet the rest."""
    modules: Sequence[str]
    """Python modules."""
    disk_gib: float
    """Free space."""
    vulkan: str
    """"gpu" or "any" adapter."""


@dataclass(frozen=True)
class Fit:
    """How a host meets requirements on the device that was asked for."""

    gpus: tuple[Gpu, ...]
    """Those that a trial could use, in the host's order; empty if it runs on the CPU."""
    lacks: tuple[str, ...]
    """Reasons why the host does not meet the requirements; empty if it does."""


def fit(requires: Requirements, host: Host, device: str = "auto") -> Fit:
    """How a host meets the requirements of a profile.

    Args:
        requires: as for `shortfalls`.
        device: what the command line asks for: "auto", "cpu", "cuda" for any GPU, or "cuda:N". "auto" is a GPU only
            if one is required.
    """
    on_gpu = requires["device"] == "cuda"
    gpus: tuple[Gpu, ...] = ()
    if device != "cpu" and (on_gpu or device != "auto"):
        wanted = int(device.partition(":")[2]) if ":" in device else None
        found = suitable({**requires, "device": "cuda"}, host)
        gpus = tuple(gpu for gpu in found if wanted is None or gpu.index == wanted)
    lacks = shortfalls(requires, host)
    if not lacks and gpus:
        lacks = shortfalls({**requires, "device": "cuda"}, host)
    elif not lacks and (on_gpu or device.startswith("cuda")):
        lacks = [f"--device {device} leaves it no GPU that it could use"]
    return Fit(gpus, tuple(lacks))


def shortfalls(requires: Requirements, host: Host) -> list[str]:
    """Every reason why this host cannot meet these requirements; empty where it can.

    Args:
        requires: of a profile or a mutant. The machine is asked for its Vulkan adapters when first one is required.
        host: what `harness.machine.host.probe` found.
    """
    try:
        return [reason for name in requires for reason in _CHECKS.get(name, _unknown(name))(requires, host)]
    except (TypeError, ValueError) as error:
        return [f"the requirements cannot be understood: {error}"]


def suitable(requires: Requirements, host: Host) -> tuple[Gpu, ...]:
    """The GPUs that meet what is required of one GPU, in the host's order; none where no GPU is asked for."""
    if not _needs_gpu(requires):
        return ()
    found = tuple(gpu for gpu in host.gpus if not any(_gpu_lacks(name, requires, gpu) for name in _ABOUT_GPUS))
    if requires.get("vulkan") != "gpu" or len(host.gpus) < 2:
        return found
    # A trial takes Vulkan's first GPU, because CUDA_VISIBLE_DEVICES hides none from Vulkan. It must be the leased one.
    first = _vulkan_gpu() or host.gpus[0].uuid
    return tuple(gpu for gpu in found if gpu.uuid == first)


def _needs_gpu(requires: Requirements) -> bool:
    return requires.get("device") == "cuda" or any(name in requires for name in ("compute_capability", "gpus"))


def _device(requires: Requirements, host: Host) -> list[str]:
    device = requires["device"]
    if device not in ("cuda", "any"):
        return [f"needs the device {device!r}, which is neither 'cuda' nor 'any'"]
    if device == "any" or suitable(requires, host) or requires.get("gpus"):
        return []
    if not host.gpus:
        return [f"needs a CUDA GPU; {host.gpu_reason or 'none was found'}"]
    alone = [name for name in _ABOUT_GPUS if all(_gpu_lacks(name, requires, gpu) for gpu in host.gpus)]
    return [] if alone else ["needs a GPU that meets all requirements at once; each of the GPUs lacks one of them"]


def _about_gpu(name: _AboutGpu) -> Callable[[Requirements, Host], list[str]]:
    def check(requires: Requirements, host: Host) -> list[str]:
        if name == "memory_gib" and not _needs_gpu(requires):
            return _system_memory(requires, host)
        lacking = [(gpu, _gpu_lacks(name, requires, gpu)) for gpu in host.gpus]
        if not lacking:
            # The requirement `device` reports the missing GPU already.
            asked = requires.get("device") == "cuda"
            return [] if asked else [f"needs a CUDA GPU; {host.gpu_reason or 'none was found'}"]
        if not all(why for _, why in lacking):
            return []
        _, why = max(lacking, key=lambda pair: _strength(name, pair[0]))
        return [str(why)]

    return check


def _gpu_lacks(name: _AboutGpu, requires: Requirements, gpu: Gpu) -> str | None:
    if name not in requires:
        return None
    if name == "memory_gib":
        needed = _positive(requires["memory_gib"], name)
        if gpu.memory_bytes is None:
            return f"needs {needed:g} GiB of GPU memory; that of {gpu.name} is {gpu.memory_source}"
        if gpu.memory_bytes < needed * _GIB:
            found = _gib(gpu.memory_bytes)
            return f"needs {needed:g} GiB of GPU memory; {gpu.name} has {found} GiB ({gpu.memory_source})"
        return None
    asked = requires["compute_capability"]
    wanted = _capability(asked)
    if gpu.compute_capability is None:
        reason = gpu.reasons.get(name, "it could not be read")
        return f"needs compute capability {asked}; that of {gpu.name} is unknown ({reason})"
    if _capability(gpu.compute_capability) < wanted:
        return f"needs compute capability {asked} or newer; {gpu.name} has {gpu.compute_capability}"
    return None


def _strength(name: _AboutGpu, gpu: Gpu) -> tuple[int, ...]:
    if name == "memory_gib":
        return (gpu.memory_bytes or 0,)
    return _capability(gpu.compute_capability) if gpu.compute_capability else (0, 0)


def _system_memory(requires: Requirements, host: Host) -> list[str]:
    needed = _positive(requires["memory_gib"], "memory_gib")
    if host.memory_bytes is None:
        return [f"needs {needed:g} GiB of memory; this machine's is {host.memory_source}"]
    if host.memory_bytes >= needed * _GIB:
        return []
    return [f"needs {needed:g} GiB of memory; this machine has {_gib(host.memory_bytes)} GiB ({host.memory_source})"]


def _count(requires: Requirements, host: Host) -> list[str]:
    needed = int(_positive(requires["gpus"], "gpus"))
    fit = len(suitable(requires, host))
    if fit >= needed:
        return []
    if not host.gpus:
        return [f"needs {needed} CUDA GPUs; {host.gpu_reason or 'none was found'}"] if needed else []
    of = f"{fit} of {len(host.gpus)} GPUs meet the rest" if fit < len(host.gpus) else f"this machine has {fit}"
    return [f"needs {needed} GPUs; {of}"]


def _modules(requires: Requirements, host: Host) -> list[str]:
    missing = [name for name in requires["modules"] if not _exists(name)]
    if not missing:
        on_gpu = requires.get("device") == "cuda" and bool(host.gpus)
        return gpu_modules.shortfalls(requires["modules"], host) if on_gpu else []
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
        name = first
        for part in rest:
            if spec is None or spec.submodule_search_locations is None:
                return False
            name = f"{name}.{part}"
            spec = importlib.machinery.PathFinder.find_spec(name, list(spec.submodule_search_locations))
    except (ImportError, ValueError, AttributeError):
        return False
    return spec is not None


def _disk(requires: Requirements, host: Host) -> list[str]:
    needed = _positive(requires["disk_gib"], "disk_gib")
    if host.disk_free_bytes is None:
        return [f"needs {needed:g} GiB of free disk space; that of {host.disk} could not be read"]
    if host.disk_free_bytes >= needed * _GIB:
        return []
    return [f"needs {needed:g} GiB of free disk space; {host.disk} has {_gib(host.disk_free_bytes)} GiB"]


def _vulkan(requires: Requirements, host: Host) -> list[str]:
    wanted = requires["vulkan"]
    if wanted not in ("any", "gpu"):
        return [f"needs the Vulkan adapter {wanted!r}, which is neither 'any' nor 'gpu'"]
    adapters = _vulkan_adapters()
    found = [str(one.details["adapter"]) for one in adapters if one.reason is None]
    if not found:
        return [f"needs a Vulkan adapter; {adapters[0].reason}"]
    if wanted == "any" or any(one.reason is None and one.details.get("type") != "CPU" for one in adapters):
        return []
    only = f"needs the Vulkan adapter of a GPU; there is only software: {', '.join(found)}"
    # CUDA sees a GPU and Vulkan does not: the driver was installed, or mounted into a container, without Vulkan.
    remedy = "; install the GPU driver's Vulkan (libnvidia-gl; of a container NVIDIA_DRIVER_CAPABILITIES=all)"
    return [only + remedy if host.gpus else only]


@lru_cache(maxsize=1)
def _vulkan_adapters() -> tuple[Tool, ...]:
    from harness.machine import toolchain

    return toolchain.vulkan()


@lru_cache(maxsize=1)
def _vulkan_gpu() -> str | None:
    from harness.machine import toolchain

    return toolchain.vulkan_gpu()


def _unknown(name: str) -> Callable[[Requirements, Host], list[str]]:
    known = ", ".join(_CHECKS)
    return lambda requires, host: [f"needs {name!r}, which this version does not know (it knows {known})"]


def _positive(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} is {value!r} instead of a number of at least 0")
    return float(value)


def _capability(text: Any) -> tuple[int, int]:
    """Return a capability as numbers, because as text "12.1" is less than "9.0"."""
    if not (match := re.fullmatch(r"(\d+)\.(\d+)", str(text))):
        raise ValueError(f"compute_capability is {text!r} instead of something like '9.0'")
    return int(match[1]), int(match[2])


def _gib(count: int) -> str:
    # Rounded down, so that 23.99 GiB is not shown as the required 24.0.
    return f"{math.floor(count / _GIB * 10) / 10:.1f}"


_CHECKS: dict[str, Callable[[Requirements, Host], list[str]]] = {
    "device": _device,
    "memory_gib": _about_gpu("memory_gib"),
    "compute_capability": _about_gpu("compute_capability"),
    "gpus": _count,
    "modules": _modules,
    "disk_gib": _disk,
    "vulkan": _vulkan,
}
