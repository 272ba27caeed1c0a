"""A predicted step: its peaks, and the owners and the place of the memory at the peak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.tools.probe.allocator import AllocatorSettings, CachingAllocator
from harness.tools.probe.device_table import Device, device_named
from harness.tools.probe.errors import ProbeError
from harness.tools.probe.trace import EMPTY_CACHE, Owner, Place, Trace

__all__ = ["Peak", "Prediction", "predict"]


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that one phase allocated and reserved, in bytes."""

    phase: str
    allocated: int
    reserved: int


@dataclass(frozen=True, slots=True)
class Prediction:
    """The memory that a training step needs on a device. Sizes are in bytes.

    Attributes:
        device: the assumed device.
        allocated: the largest `torch.cuda.memory_allocated()`, over the build and two steps.
        reserved: the largest `torch.cuda.memory_reserved()`.
        by_owner: the bytes allocated at the peak, by owner.
        by_module: the same by module (`Block.module`); "" stands for outside modules.
        place: the operator and lines at the peak.
        phases: the peaks of the build and of each step.
        timeline: allocated and reserved after each event that the trace kept, at most 2,000 of them.
        trace: all blocks and events, for another allocator or another limit.
        settings: of the allocator.
    """

    device: Device
    allocated: int
    reserved: int
    by_owner: dict[str, int]
    by_module: dict[str, int]
    place: Place
    phases: tuple[Peak, ...]
    timeline: tuple[tuple[int, int, int], ...]
    trace: Trace
    settings: AllocatorSettings


def predict(
    build: Callable[..., Callable[[], Any]],
    *arguments: Any,
    device: str = "H200",
    ranks: int = 1,
    settings: AllocatorSettings | None = None,
    **keywords: Any,
) -> Prediction:
    """Predict the memory of a training step without a GPU and without allocating its tensors.

        def build(batch: int = 8):
            model = torch.nn.Linear(4096, 4096, device="cuda")
            optimizer = torch.optim.AdamW(model.parameters())
            x = torch.randn(batch, 4096, device="cuda")

            def step() -> None:
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()

            return step

        predict(build, batch=32).allocated

    The real code of `build` and of the step runs, the step twice, on fake tensors. torch must not be at work on a GPU
    in this process meanwhile.

    Args:
        build: makes model, optimizer and inputs from the other arguments, and returns a callable that runs one step.
        device: the device to assume, one of `harness.tools.probe.device_table.DEVICES`.
        ranks: the simulated world size; this process is rank 0. The process group is torch's fake one, in which
            collectives have no effect. It is initialized before `build` is called.
        settings: of the allocator; by default what the environment's PYTORCH_ALLOC_CONF says.

    Raises:
        Unseeable: the step does something that fake tensors cannot show.
        StepFailed: `build` or the step raised an exception.
        ProbeError: the probe cannot run here, or the step allocates nothing on the GPU.
    """
    from harness.tools.probe.failures import named_failures
    from harness.tools.probe.ranks import simulated_ranks
    from harness.tools.probe.tracer import Tracer

    assumed = device_named(device)
    settings = settings or AllocatorSettings.of_environment()
    tracer = Tracer(assumed)
    with tracer.tracing(), named_failures(), simulated_ranks(ranks):
        tracer.begin("build")
        step = build(*arguments, **keywords)
        tracer.claim_build()
        for name in ("step 1", "step 2"):
            tracer.begin(name)
            step()
            tracer.end()
    if all(block.owner is Owner.WORKSPACES for block in tracer.trace.blocks):
        raise ProbeError('the step allocates nothing on the GPU; build the model and its inputs with device="cuda"')
    return examined(tracer.trace, assumed, settings)


def examined(trace: Trace, device: Device, settings: AllocatorSettings) -> Prediction:
    """Replay a trace through the allocator and describe its peak."""
    allocator = CachingAllocator(settings)
    held: dict[int, Any] = {}
    peak, peak_at = -1, 0
    peaks = []
    timeline: list[tuple[int, int, int]] = []
    spacing = max(1, len(trace.events) // 2000)
    ends = [at for _, at in trace.starts[1:]] + [len(trace.events)]
    for (name, start), end in zip(trace.starts, ends, strict=True):
        allocator.peak_allocated, allocator.peak_reserved = allocator.allocated, allocator.reserved
        for at in range(start, end):
            event = trace.events[at]
            if event > 0:
                block = trace.blocks[event - 1]
                held[event] = allocator.allocate(block.bytes, block.stream)
                if allocator.allocated > peak:
                    peak, peak_at = allocator.allocated, at
            elif event < EMPTY_CACHE:
                allocator.free(held.pop(-event))
            else:
                allocator.empty_cache()
            if at % spacing == 0:
                timeline.append((at, allocator.allocated, allocator.reserved))
        peaks.append(Peak(name, allocator.peak_allocated, allocator.peak_reserved))
    owners, modules, place = _composition(trace, settings, peak_at)
    return Prediction(
        device=device,
        allocated=max(each.allocated for each in peaks),
        reserved=max(each.reserved for each in peaks),
        by_owner=owners,
        by_module=modules,
        place=place,
        phases=tuple(peaks),
        timeline=tuple(timeline),
        trace=trace,
        settings=settings,
    )


def _composition(trace: Trace, settings: AllocatorSettings, until: int) -> tuple[dict[str, int], dict[str, int], Place]:
    """The memory that is allocated after an event, by owner and by module, and the place of the event."""
    allocator = CachingAllocator(settings)
    held: dict[int, Any] = {}
    for event in trace.events[: until + 1]:
        if event > 0:
            block = trace.blocks[event - 1]
            held[event] = allocator.allocate(block.bytes, block.stream)
        elif event < EMPTY_CACHE:
            allocator.free(held.pop(-event))
        else:
            allocator.empty_cache()
    owners = {owner.value: 0 for owner in Owner}
    modules: dict[str, int] = {}
    for number, taken in held.items():
        block = trace.blocks[number - 1]
        owners[block.owner.value] += taken.size
        modules[block.module] = modules.get(block.module, 0) + taken.size
    return owners, modules, trace.blocks[trace.events[until] - 1].place
