"""F-BLACKWELL-ENGINE-CUBLAS-001: an engine's backward products are made by cuBLAS, and are right.

The engine dumps products with their gradients, and brackets their backward by cuProfilerStart and cuProfilerStop. The
oracle computes them in float64. Another run leaves out each launch by cuBLAS between the brackets: a gradient that is
right all the same was made by other code.
"""

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from falsifiers.blackwell.oracle.product import GRADIENTS, NAMES, errors
from falsifiers.blackwell.subjects.engine import ObservedEngine
from falsifiers.blackwell.watching.driver import all_recorded, work
from harness import NotObserved, Trial, Unobserved, propagates
from harness.authoring.device_watch import DeviceWatch
from harness.tools.recorder.records import Recording
from harness.tools.trainer.command_line import CommandFailed

Products = Mapping[str, Mapping[str, Tensor]]

_LIBRARY = "libcublas"  # libcublas.so, libcublasLt.so
_ITS_NAMES = re.compile(r"cublas|nvjet|_gemm_|sgemm|xmma|gemmk1|gemv2|gemvNSP|cutlass_\d\d_")
"""Names of cuBLAS's kernels, by which a statically linked one is told."""


def falsify(trial: Trial[ObservedEngine]) -> None:
    """Let the engine work, compare its products, and let it work without the library."""
    products: Any = Unobserved("the engine did not come to its end")

    def measure(recording: Recording, watch: DeviceWatch, completed: bool) -> None:
        nonlocal products
        if completed:
            with trial.subject_fault():
                products = propagates(trial.subject.products)()
        ratios = _errors(trial, products)
        trial.measure(
            products=propagates(len)(products),
            errors=propagates(_values)(ratios),
            smallest_tensor=_smallest(products),
            library_kernels=(kernels := _of_library(recording, watch)),
        )
        trial.measure(made_elsewhere=_made_elsewhere(trial, recording, ratios, kernels))

    work(trial, measure)


@propagates
def _errors(trial: Trial[ObservedEngine], products: Products) -> dict[str, float]:
    """By product and tensor, its largest error over the bound."""
    with trial.subject_fault():
        ratios = {
            f"{product} {name}": error for product, own in products.items() for name, error in errors(own).items()
        }
    for name, error in ratios.items():
        print(f"{name}: {error:.3g} of the bound")
    return ratios


def _values(ratios: Mapping[str, float]) -> list[float]:
    return list(ratios.values())


@propagates
def _smallest(products: Products) -> float:
    """The largest absolute element of each tensor, and of these the smallest: 0 if some tensor is all zeros."""
    return min(float(own[name].double().abs().max()) for own in products.values() for name in NAMES)


@propagates
def _of_library(recording: Recording, watch: DeviceWatch) -> int:
    """Kernels that cuBLAS launched first."""
    all_recorded(recording, watch)
    ours = [kernel for kernel, caller in recording.callers.items() if caller.startswith(_LIBRARY)]
    alike = {recording.callers[kernel]: kernel for kernel in recording.callers if _ITS_NAMES.search(kernel)}
    for kernel in ours:
        print(f"{recording.callers[kernel]} launched {kernel[:160]}")
    if not ours and "" in alike:
        raise NotObserved(f"the stack does not show who launched {alike[''][:80]}, a name of cuBLAS")
    if not ours and alike and not recording.has_cublas:
        caller, kernel = next(iter(alike.items()))
        raise NotObserved(f"{caller} launched {kernel[:80]}, a name of cuBLAS: it may be linked statically")
    return len(ours)


@propagates
def _made_elsewhere(
    trial: Trial[ObservedEngine], recording: Recording, healthy: Mapping[str, float], kernels: int
) -> list[str]:
    """Gradients that are right, and are so without the library's launches."""
    if not {"cuProfilerStart", "cuProfilerStop"} <= {mark["call"] for mark in recording.marks}:
        raise NotObserved("it brackets no product by cuProfilerStart and cuProfilerStop")
    if not all(error <= 1 for error in healthy.values()):
        raise NotObserved("a product is wrong already with the library's launches")
    del kernels  # where a static library cannot be told, its launches cannot be left out
    another = trial.subject.without_library()
    another.prepare()
    try:
        another.work(lambda step, **values: None)
    except CommandFailed as error:
        print(f"without the library's launches: {error}")
    products = another.products()
    return [f"{product} {name}" for product, own in products.items() for name in GRADIENTS if errors(own)[name] <= 1]
