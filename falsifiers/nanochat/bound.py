"""F-GB10-BOUND-001: memory bandwidth limits a step of d20."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch._inductor import config as inductor

from falsifiers.nanochat.reference.model import Gpt, Shape, plain_loss
from falsifiers.nanochat.subject import BoundAnalysis
from harness import Trial

_SIZES: Final = ("layers", "width", "heads", "vocabulary", "sequence")
_NUMBERS, _SIDE = 1 << 28, 8192
_CONTROLS: Final = {
    "elementwise": (float(_NUMBERS), 4.0 * _NUMBERS),
    "product": (2.0 * _SIDE**3, 6.0 * _SIDE**2),
}
"""Operations and bytes in bfloat16 of two controls: adding to each number, and a product of square matrices."""
_BYTES_A_PARAMETER: Final = 8
"""By analyze_bandwidth.py: two bytes each to read forward, read backward, write and read as gradient."""
_WARMUP, _TIMED = 3, 7


def falsify(trial: Trial[BoundAnalysis]) -> None:
    """Ask the subject about a step, by the published figures, and about two controls; on a GPU, measure all three."""
    settings = trial.parameters
    peaks = settings["peak_operations"], settings["peak_bytes"]
    with torch.device("meta"):
        parameters = sum(parameter.numel() for parameter in Gpt(_shape(settings)).parameters())
    step = settings["flops_per_token"] * settings["rows"] * settings["sequence"], float(_BYTES_A_PARAMETER * parameters)
    with trial.subject_fault():
        limits = {
            name: str(trial.subject.bound(*work, *peaks)) for name, work in {**_CONTROLS, "account": step}.items()
        }
    trial.measure(**{f"{name}_bound": limit for name, limit in limits.items()})
    trial.measure(account_over_ridge=step[0] / step[1] / (peaks[0] / peaks[1]))
    if settings["timed"]:
        _measure(trial, step[0])
    trial.resolve(device=torch.device(trial.device).type)


def _shape(parameters: Mapping[str, Any]) -> Shape:
    return Shape(**{name: parameters[name] for name in _SIZES})


def _measure(trial: Trial[BoundAnalysis], operations: float) -> None:
    """Measure the share of the measured peak rates that the controls and a compiled step reach.

    The step's traffic is the size of every kernel's inputs and outputs, once per launch.
    """
    from harness.tools.roofline.roofs import measured
    from harness.tools.roofline.step import profiled

    roofs = measured("cuda")
    peak, bandwidth = roofs.roofs["product bfloat16"].peak, roofs.memory
    trial.measure(measured_operations=peak, measured_bytes=bandwidth)
    trial.measure(
        elementwise_memory_fraction=_CONTROLS["elementwise"][1] / _seconds(_elementwise()) / bandwidth,
        product_compute_fraction=_CONTROLS["product"][0] / _seconds(_product()) / peak,
    )
    seconds, kernels = profiled(_step(trial.parameters), "cuda")
    moved = sum(kernel.work.bytes for kernel in kernels if kernel.work is not None)
    unknown = sum(kernel.seconds for kernel in kernels if kernel.work is None)
    trial.measure(
        step_seconds=seconds,
        step_bytes=moved,
        step_memory_fraction=moved / seconds / bandwidth,
        step_compute_fraction=operations / seconds / peak,
        unknown_share=unknown / sum(kernel.seconds for kernel in kernels),
    )


def _elementwise() -> Callable[[], object]:
    values = torch.randn(_NUMBERS, device="cuda", dtype=torch.bfloat16)
    return lambda: values + 1.0


def _product() -> Callable[[], object]:
    left, right = (torch.randn(_SIDE, _SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return lambda: left @ right


def _step(parameters: Mapping[str, Any]) -> Callable[[], object]:
    """Return a step with compiled loss and blocks. All blocks share the code compiled for the first."""
    inductor.compile_threads = 1  # few kernels need no pool of compiler processes
    with torch.device("cuda"):
        model = Gpt(_shape(parameters), torch.compile(plain_loss, dynamic=False)).to(torch.bfloat16)
        tokens = torch.randint(parameters["vocabulary"], (parameters["rows"], parameters["sequence"]))
    for block in model.blocks:
        block.compile(dynamic=False)

    def step() -> None:
        model.zero_grad()
        model(tokens, tokens).backward()

    return step


def _seconds(work: Callable[[], object]) -> float:
    """Return the median time of `work`."""
    samples = []
    for number in range(_WARMUP + _TIMED):
        torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        torch.cuda.synchronize()
        if number >= _WARMUP:
            samples.append(time.perf_counter() - started)
    return statistics.median(samples)
