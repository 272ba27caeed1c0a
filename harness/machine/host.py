"""The hardware of this machine: processors, memory, disk and GPUs.

    for gpu in probe().gpus:
        print(gpu.name, gpu.compute_capability, gpu.memory_bytes, gpu.memory_source)

A value that cannot be read is None with a reason, never 0. Neither torch nor CUDA is loaded into this process.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

from harness.base import regular_file
from harness.base.json_dataclass import JsonDataclass
from harness.machine import nvml, timebox

__all__ = ["Gpu", "Host", "has_gpu_driver", "probe", "promised_gpu"]

_TOTAL_MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
_CGROUPS = Path("/sys/fs/cgroup")
_SECONDS = 20.0
"""Time limit of the driver's answer. After it, the machine counts as having no GPU."""
_GIVEN_BY_SLURM = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE")
_DEVICE_FILES = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-gpu", "/dev/nvgpu")
"""Device files of NVIDIA's drivers: of servers, WSL and Tegra."""
_ATS = 2
"""NVML_DEVICE_ADDRESSING_MODE_ATS: the GPU walks the CPU's page tables, as on Grace Hopper and Grace Blackwell."""


@final
@dataclass(frozen=True)
class Gpu(JsonDataclass):
    """One NVIDIA GPU, as NVML describes it."""

    index: int
    """NVML's index. It can differ from CUDA's: narrow CUDA_VISIBLE_DEVICES by uuid."""
    uuid: str
    """Empty if it could not be read. Then only the index identifies the device."""
    name: str
    compute_capability: str | None
    """Such as "12.1"."""
    memory_bytes: int | None
    memory_source: str
    """The source of `memory_bytes`, such as "NVML", or why it could not be read."""
    unified: bool | None
    """Whether the GPU has unified memory; None if unknown."""
    reasons: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Why fields are None, by field name."""
    parent: str = ""
    """The uuid of the parent GPU of a MIG slice, whose index the slice has; empty for a whole GPU."""

    @property
    def key(self) -> str:
        """The name of the GPU on this machine: its uuid, or else its index."""
        return self.uuid or str(self.index)


@final
@dataclass(frozen=True)
class Host(JsonDataclass):
    """The properties of this machine that a profile can require."""

    hostname: str
    machine: str
    """The processor architecture, such as "x86_64" or "aarch64"."""
    kernel: str
    cpu_count: int
    """CPUs that this process may use. Under taskset, Slurm or a cpuset these are not all."""
    memory_bytes: int | None
    memory_source: str
    disk: Path
    """The folder on whose filesystem `disk_free_bytes` was read."""
    disk_free_bytes: int | None
    gpus: tuple[Gpu, ...]
    gpu_reason: str | None
    """Why `gpus` is empty; else None."""
    driver: str | None
    cuda_driver_version: str | None
    """The newest CUDA version that the driver supports, such as "13.0"."""
    notes: tuple[str, ...] = ()


def probe(disk: Path | None = None) -> Host:
    """Read the properties of this machine.

    Args:
        disk: a folder on the filesystem whose free space is read; by default the current folder.
    """
    folder = disk or Path.cwd()
    memory, source = _system_memory()
    answer = timebox.call(_gpus, _SECONDS)
    gpus = answer.value or _Gpus(reason=f"NVML was asked and did not answer: {answer.reason}")
    free = timebox.call(lambda: shutil.disk_usage(folder).free, _SECONDS)
    notes = list(gpus.notes)
    if free.reason is not None:
        notes.append(f"free disk space of {folder} could not be read: {free.reason}")
    return Host(
        hostname=platform.node(),
        machine=platform.machine(),
        kernel=f"{platform.system()} {platform.release()}",
        cpu_count=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=memory,
        memory_source=source,
        disk=folder,
        disk_free_bytes=free.value,
        gpus=gpus.gpus,
        gpu_reason=gpus.reason,
        driver=gpus.driver,
        cuda_driver_version=gpus.cuda,
        notes=tuple(notes),
    )


def has_gpu_driver() -> bool:
    """Return whether a driver of NVIDIA's runs here. Without one, no process of this machine uses such a GPU."""
    return any(Path(device_file).exists() for device_file in _DEVICE_FILES)


def promised_gpu() -> str:
    """Return the name of the variable by which Slurm assigned a GPU to this process; empty if it assigned none."""
    for name in _GIVEN_BY_SLURM:
        value = os.environ.get(name, "")
        if value and not (name == "SLURM_GPUS_ON_NODE" and value == "0"):
            return f"{name}={value}"
    return ""


@dataclass(frozen=True)
class _Gpus:
    gpus: tuple[Gpu, ...] = ()
    reason: str | None = None
    driver: str | None = None
    cuda: str | None = None
    notes: tuple[str, ...] = ()


def _gpus() -> _Gpus:
    if isinstance(unavailable := nvml.connect(), str):
        return _Gpus(reason=unavailable)
    driver = nvml.ask("nvmlSystemGetDriverVersion")
    cuda = nvml.ask("nvmlSystemGetCudaDriverVersion_v2")
    notes = [
        f"{what}: {answer.reason}" for what, answer in (("driver", driver), ("CUDA", cuda)) if answer.reason is not None
    ]
    count = nvml.ask("nvmlDeviceGetCount")
    gpus: list[Gpu] = []
    for index in range(count.value or 0):
        handle = nvml.ask("nvmlDeviceGetHandleByIndex", index)
        if handle.reason is not None:
            notes.append(f"GPU {index} cannot be used: {handle.reason}")
            continue
        gpu = _gpu(handle.value, index)
        mig = nvml.ask("nvmlDeviceGetMigMode", handle.value)
        if mig.reason is not None or mig.value[0] != 1:
            gpus.append(gpu)
            continue
        slices = list(_slices(handle.value, gpu))
        notes.append(f"GPU {index} is divided by MIG into {len(slices)} slices; a trial gets one")
        gpus += slices
    reason = count.reason or (None if gpus else "the driver lists no GPU")
    visible, hidden = _visible(gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))
    if hidden:
        notes.append(hidden)
        reason = None if visible else hidden
    return _Gpus(tuple(visible), reason, driver.value, nvml.cuda_version(cuda.value), tuple(notes))


def _gpu(handle: Any, index: int) -> Gpu:
    name = nvml.ask("nvmlDeviceGetName", handle)
    uuid = nvml.ask("nvmlDeviceGetUUID", handle)
    capability = nvml.ask("nvmlDeviceGetCudaComputeCapability", handle)
    attributes = {"name": name, "uuid": uuid, "compute_capability": capability}
    gpu = Gpu(
        index=index,
        uuid=uuid.value or "",
        name=name.value or "NVIDIA GPU of unknown name",
        compute_capability=None if capability.value is None else "{}.{}".format(*capability.value),
        memory_bytes=None,
        memory_source="",
        unified=None,
        reasons={field: reading.reason for field, reading in attributes.items() if reading.reason is not None},
    )
    return _with_memory(handle, gpu)


def _slices(handle: Any, gpu: Gpu) -> Iterator[Gpu]:
    """Yield the MIG slices of a GPU. CUDA cannot use a GPU with slices as a whole."""
    for place in range(nvml.ask("nvmlDeviceGetMaxMigDeviceCount", handle).value or 0):
        answer = nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, place)
        if answer.reason is None:
            slice_gpu = _gpu(answer.value, gpu.index)
            reasons = {name: why for name, why in slice_gpu.reasons.items() if name != "compute_capability"}
            yield replace(slice_gpu, compute_capability=gpu.compute_capability, reasons=reasons, parent=gpu.uuid)


def _with_memory(handle: Any, gpu: Gpu) -> Gpu:
    """Return the GPU with its memory. A GPU with unified memory (GB10) reports NOT_SUPPORTED."""
    answer = nvml.ask("nvmlDeviceGetMemoryInfo", handle)
    if answer.code == nvml.NOT_SUPPORTED:
        source = f"system memory, unified; {answer.reason}"
        return replace(gpu, memory_bytes=_TOTAL_MEMORY, memory_source=source, unified=True)
    total = None if answer.reason is not None else int(answer.value.total)
    if not total:
        reason = answer.reason or "NVML answered 0 bytes, which no device has"
        unread = {"memory_bytes": reason, "unified": reason}
        return replace(gpu, memory_source=f"unreadable ({reason})", reasons={**gpu.reasons, **unread})
    if not 0.9 <= total / _TOTAL_MEMORY <= 1.1:
        return replace(gpu, memory_bytes=total, memory_source="NVML", unified=False)
    # The size equals the system's memory, by chance or because it is the same memory. The addressing mode tells which.
    mode = nvml.ask("nvmlDeviceGetAddressingMode", handle)
    if mode.reason is not None:
        reasons = {**gpu.reasons, "unified": f"as large as system memory, and its addressing mode: {mode.reason}"}
        return replace(gpu, memory_bytes=total, memory_source="NVML", unified=None, reasons=reasons)
    source = "NVML (the system's memory, unified)" if mode.value == _ATS else "NVML"
    return replace(gpu, memory_bytes=total, memory_source=source, unified=mode.value == _ATS)


def _visible(gpus: list[Gpu], variable: str | None) -> tuple[list[Gpu], str | None]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES makes visible, in its order, and a sentence if it hides some.

    As in CUDA, the list ends at the first entry that names no device. Numbers are NVML's indices. CUDA uses the same
    numbers if all GPUs are of one model, or under CUDA_DEVICE_ORDER=PCI_BUS_ID. The entry of a GPU with MIG slices
    means its first slice.
    """
    if variable is None:
        return gpus, None
    visible: list[Gpu] = []
    for entry in (part.strip() for part in variable.split(",")):
        whole = {gpu.parent or gpu.key: gpu for gpu in reversed(gpus)}
        by_number = [gpu for gpu in whole.values() if entry == str(gpu.index)]
        by_uuid = [gpu for uuid, gpu in whole.items() if entry.startswith("GPU-") and uuid.startswith(entry)]
        by_slice = [gpu for gpu in gpus if entry.startswith("MIG-") and gpu.uuid.startswith(entry)]
        match = by_number or by_uuid or by_slice
        if len(match) != 1 or match[0] in visible:
            break
        visible += match
    if len(visible) == len(gpus):
        return visible, None
    return visible, f"CUDA_VISIBLE_DEVICES={variable} leaves {len(visible)} of {len(gpus)} GPUs"


def _system_memory() -> tuple[int, str]:
    if (limit := _cgroup_limit()) is not None and limit < _TOTAL_MEMORY:
        return limit, "control group limit"
    return _TOTAL_MEMORY, "MemTotal"


def _cgroup_limit() -> int | None:
    """Return the lowest memory limit in bytes of this process's control groups (version 1 or 2); None without one."""
    try:
        lines = regular_file.read(Path("/proc/self/cgroup")).decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    files: list[Path] = []
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        group = Path(path.lstrip("/"))
        # The limits of all groups above apply too.
        if not controllers:
            files += [_CGROUPS / cgroup / "memory.max" for cgroup in (group, *group.parents)]
        elif "memory" in controllers.split(","):
            files += [_CGROUPS / "memory" / cgroup / "memory.limit_in_bytes" for cgroup in (group, *group.parents)]
    limits = []
    for file in files:
        try:
            limits.append(int(regular_file.read(file)))
        except (OSError, ValueError):  # version 2 writes "max" for no limit
            continue
    return min(limits, default=None)
