"""F-GB10-BIGGPU-001: Inductor tunes no products below 68 multiprocessors, and a patch makes it."""

import contextlib
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch._inductor.utils as inductor
from torch._inductor import config

from falsifiers.nanochat.device_subjects import SmallGpuPatch
from falsifiers.nanochat.fresh_process import printed
from harness import NotMeasured, Trial

_WARNING = "Not enough SMs to use max_autotune_gemm mode"
_WIDTH = 512
_SECONDS = 120.0
"""Two processes end within the time of a trial."""


class _Ended(Exception):
    """Raised while compiling, for example because a kernel is too large."""


def falsify(trial: Trial[SmallGpuPatch]) -> None:
    """Test Inductor on GPUs of stated sizes before, within and after the subject's patch."""
    original = inductor.is_big_gpu
    small, counts = trial.parameters["multiprocessors"], trial.parameters["counts"]
    answers, warnings = [], 0
    try:
        for count in counts:
            with gpu_of(count) as warned:
                answers.append(bool(inductor.is_big_gpu(torch.device("cuda", 0))))
                warnings += len(warned)
        with gpu_of(small), _importer() as importer:
            before = [bool(inductor.is_big_gpu(0)), bool(importer.is_big_gpu(0))]  # cached from now on
            within, after, came_out = [], [], False
            for raises in (False, True):
                with trial.subject_fault():
                    try:
                        with trial.subject.applied():
                            within += [bool(inductor.is_big_gpu(0)), bool(importer.is_big_gpu(0))]
                            if raises:
                                raise _Ended
                    except _Ended:
                        came_out = True
                after += [bool(inductor.is_big_gpu(0)), bool(importer.is_big_gpu(0))]
        trial.measure(
            refused=[count for count, answer in zip(counts, answers, strict=True) if not answer],
            warnings=warnings,
            before=before,
            within=within,
            after=after,
            exception_came_out=came_out,
        )
        _measure_processes(trial)
        if not trial.parameters["tuned"]:
            trial.resolve(device=torch.device(trial.device).type)  # Inductor was asked; nothing ran
            return
        with gpu_of(small):
            plain = _tuned(trial)
        with gpu_of(small), trial.subject_fault(), trial.subject.applied():
            patched = _tuned(trial)
        trial.measure(choices_without=plain[0], choices_with=patched[0], result_errors=[plain[1], patched[1]])
        trial.resolve(device=patched[2])
    finally:
        inductor.is_big_gpu = original
        original.cache_clear()


def _measure_processes(trial: Trial[SmallGpuPatch]) -> None:
    """Ask a process with the subject's variables, and one without. With rows, both compile a block."""
    given = {name: trial.parameters[name] for name in ("multiprocessors", "rows", "sequence", "width", "heads")}

    def process(environment: Mapping[str, str]) -> dict[str, Any]:
        argument = json.dumps({**given, "seed": trial.seed})
        result: dict[str, Any] = printed(
            "falsifiers.nanochat.tuned_block",
            argument,
            environment=environment,
            unset=("TORCHINDUCTOR_",),
            seconds=_SECONDS,
        )
        return result

    without = process({})
    with trial.subject_fault():
        variable = process(dict(trial.subject.environment()))
    trial.measure(set_without=without["is_set"], set_by_variable=variable["is_set"])
    if given["rows"]:
        trial.measure(
            tuned_without=without["choices"],
            tuned_by_variable=variable["choices"],
            gradient_errors=[without["gradient_error"], variable["gradient_error"]],
        )


@contextlib.contextmanager
def gpu_of(count: int) -> Iterator[list[str]]:
    """Make Inductor read this number of multiprocessors; yield the warnings."""
    warned: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: warned.append(record.getMessage()) if record.getMessage() == _WARNING else None  # type: ignore[method-assign]
    create = inductor.DeviceProperties.create

    def pretended(device: torch.device) -> Any:
        if not torch.cuda.is_available():
            return SimpleNamespace(multi_processor_count=count, major=12, minor=1)
        return create(device)._replace(multi_processor_count=count)  # Inductor writes the rest into its code

    log = logging.getLogger("torch._inductor.utils")
    try:
        where = patch.object(inductor.DeviceProperties, "create", pretended)
    except AttributeError as error:
        raise NotMeasured(f"this torch asks for multiprocessors in another way: {error}") from error
    log.addHandler(handler)
    inductor.is_big_gpu.cache_clear()
    try:
        with where:
            yield warned
    finally:
        log.removeHandler(handler)
        getattr(inductor.is_big_gpu, "cache_clear", lambda: None)()


@contextlib.contextmanager
def _importer() -> Iterator[Any]:
    """A module of Inductor that has imported the function by name."""
    module = ModuleType("torch._inductor.imported_by_name")
    module.is_big_gpu = inductor.is_big_gpu  # type: ignore[attr-defined]
    with patch.dict(sys.modules, {module.__name__: module}):
        yield module


def _tuned(trial: Trial[SmallGpuPatch]) -> tuple[int, float, str]:
    """Compile and run a product with max-autotune: the number of timed Triton choices, the error, and the device."""
    from torch._inductor import select_algorithm

    timed: list[int] = []
    select_algorithm.add_feedback_saver(lambda timings, *_: timed.append(of_triton(timings)))
    torch._dynamo.reset()
    generator = torch.Generator(trial.device).manual_seed(trial.seed)
    left, right = (
        torch.randn(_WIDTH, _WIDTH, device=trial.device, dtype=torch.bfloat16, generator=generator) for _ in range(2)
    )
    try:
        with config.patch(
            max_autotune=True, force_disable_caches=True, max_autotune_gemm_backends="ATEN,TRITON", compile_threads=1
        ):
            actual = torch.compile(lambda a, b: a @ b)(left, right)
    finally:
        select_algorithm.clear_feedback_savers()
    exact = left.double() @ right.double()
    return sum(timed), float((actual.double() - exact).norm() / exact.norm()), actual.device.type


def of_triton(timings: Any) -> int:
    """Return how many of the choices that were timed are Triton's."""
    return sum("Triton" in type(choice).__name__ for choice in timings)
