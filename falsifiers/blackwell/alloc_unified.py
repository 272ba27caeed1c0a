"""F-ALLOC-UNIFIED-001: managed memory is chosen for devices that share the host's memory, and on request."""

import ctypes
import itertools
from contextlib import suppress

import psutil
import torch
from torch import Tensor

from falsifiers.blackwell.subjects.alloc_unified import Allocator, AllocatorChoice, Device
from harness import NotMeasured, Trial

_CAPABILITIES = (
    (5, 3), (7, 2), (7, 5), (8, 6), (8, 7), (8, 9),
    (9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1), (13, 0), (20, 0),
)  # fmt: skip
"""sm_53 to sm_200, which does not exist. There are integrated GPUs of 5.3, 7.2, 8.7, 11.0 (Tegra) and 12.1 (GB10)."""
_MEANT = (None, "auto", "0", "1")
_MISSPELT = (
    "", " ", "yes", "no", "true", "on", "off", "false", "AUTO", "Auto", "managed", "2", "-1", "01", " 1", "1 ", "0 ",
)  # fmt: skip
_OVERRIDES = (*_MEANT, *_MISSPELT)
_REFUSED = "refused"
_IS_MANAGED = 8  # CU_POINTER_ATTRIBUTE_IS_MANAGED
_STRIDE = 16 * 2**20 + 4099  # bytes between two places that are written; each place has another offset in its page
_GIB = 2**30
_SIZES = (0, 1, 2, 3, 255, 511, 512, 513, 4095, 4096, 4097, 65535, 65537, 2**20 - 1, 2**20 + 1, 2**21 - 1, 2**21 + 1)
"""Bytes: none, odd sizes, and sizes around the units of torch's allocator, of pages, and of the driver."""
_TOO_LARGE = (2**50, 2**62)
"""Bytes that no address space has room for."""
_LAST = 252


def falsify(trial: Trial[AllocatorChoice]) -> None:
    """Check every row of the truth table, then write to an allocation and ask the driver which kind of memory it is."""
    wrong: list[str] = []
    moved_by_capability = 0
    rows = 0
    for unified, integrated, override in itertools.product((True, False), (True, False), _OVERRIDES):
        answers = []
        for capability in _CAPABILITIES:
            device = Device(unified, integrated, capability)
            answers.append(_answer(trial, device, override))
            rows += 1
            if answers[-1] != _right(device, override):
                wrong.append(f"{device} MANAGED_MEMORY={override}: {answers[-1]}, not {_right(device, override)}")
        moved_by_capability += len(set(answers)) - 1
    trial.measure(rows=rows, wrong=wrong[:20], wrong_rows=len(wrong), moved_by_capability=moved_by_capability)
    _allocate(trial)
    _allocate_sizes(trial)


def _answer(trial: Trial[AllocatorChoice], device: Device, override: str | None) -> str:
    """The subject's choice, or "refused" if it raises ValueError. Any other exception is the subject's fault."""
    with trial.subject_fault():
        try:
            return trial.subject.choose(device, override).value
        except ValueError:
            return _REFUSED


def _right(device: Device, override: str | None) -> str:
    """The expected answer, by the truth table of the claim."""
    if override not in _MEANT:
        return _REFUSED
    if override == "1":
        return Allocator.MANAGED.value if device.unified_addressing else _REFUSED
    shared = device.unified_addressing and device.integrated
    return (Allocator.MANAGED if shared and override != "0" else Allocator.PLAIN).value


def _allocate(trial: Trial[AllocatorChoice]) -> None:
    """Allocate the size that cuMemAlloc refused on GB10 (PMAT-701), write to it and read it back."""
    size = int(trial.parameters["allocation_bytes"])
    on_gpu = trial.device != "cpu"
    if on_gpu:
        free, total = _free_and_total()
        if free < size + _GIB:
            raise NotMeasured(
                f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB are free; the claim allocates {size / _GIB:.1f} GiB"
            )
    with trial.subject_fault():
        described = trial.subject.device()
    trial.measure(allocator_right=_right(described, None))
    expected = _from_driver() if on_gpu else Device(False, False, (0, 0))
    trial.measure(described_as_driver=int(described == expected))  # before the allocation, which may fail
    with trial.subject_fault():
        memory = trial.subject.allocate(size)
        places = memory[:-1:_STRIDE]
        values = (torch.arange(len(places), device=memory.device) % 251).to(torch.uint8)
        places.copy_(values)
        memory[-1] = _LAST
        survived = int((places == values).sum()) + int(memory[-1] == _LAST)
    trial.measure(
        allocated_bytes=memory.numel() * memory.element_size(),
        places_lost=len(values) + 1 - survived,
    )
    if on_gpu:
        used = Allocator.MANAGED if _is_managed(memory) else Allocator.PLAIN
        trial.measure(allocator_used=used.value)
    trial.resolve(device=memory.device.type)


def _allocate_sizes(trial: Trial[AllocatorChoice]) -> None:
    """Allocate too much and be refused; then allocate many sizes, write to all of them, and read all of them."""
    wrong: list[str] = []
    held: list[tuple[Tensor, Tensor]] = []
    with trial.subject_fault():
        right = _right(trial.subject.device(), None)
        for size in _TOO_LARGE:
            with suppress(MemoryError, RuntimeError):  # torch has no class of its own for the host's lack of memory
                wrong.append(f"{size} bytes: not refused, but {trial.subject.allocate(size).numel()} handed out")
        for number, size in enumerate(_SIZES):
            memory = trial.subject.allocate(size)
            if (
                memory.shape != (size,)
                or memory.dtype != torch.uint8
                or memory.device.type != trial.device.partition(":")[0]
            ):
                wrong.append(f"{size} bytes: {tuple(memory.shape)} of {memory.dtype} on {memory.device}")
                continue
            if size and trial.device != "cpu" and _is_managed(memory) != (right == Allocator.MANAGED.value):
                wrong.append(f"{size} bytes: not {right} memory")
            held.append((memory, (torch.arange(size, device=memory.device) + number).remainder(251).to(torch.uint8)))
            memory.copy_(held[-1][1])
        wrong += [
            f"{memory.numel()} bytes: not what was written" for memory, was in held if not torch.equal(memory, was)
        ]
    trial.measure(sizes=len(_TOO_LARGE) + len(_SIZES), wrong_sizes=wrong)


def _free_and_total() -> tuple[int, int]:
    """Free and total bytes of the current device.

    On an integrated GPU, free bytes include the host's page cache, which the driver does not count.
    """
    free, total = torch.cuda.mem_get_info()
    if torch.cuda.get_device_properties(torch.cuda.current_device()).is_integrated:
        free = max(free, psutil.virtual_memory().available)
    return free, total


def _is_managed(memory: torch.Tensor) -> bool:
    """Whether the driver reports these addresses as managed memory."""
    managed = ctypes.c_uint(0)
    status = ctypes.CDLL("libcuda.so.1").cuPointerGetAttribute(
        ctypes.byref(managed), _IS_MANAGED, ctypes.c_uint64(memory.data_ptr())
    )
    if status != 0:
        raise NotMeasured(f"the driver does not report the kind of memory: cuPointerGetAttribute returned {status}")
    return bool(managed.value)


def _from_driver() -> Device:
    """The current device as torch reports it, independent of the subject."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return Device(True, bool(properties.is_integrated), (properties.major, properties.minor))
