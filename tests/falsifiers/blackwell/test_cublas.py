"""F-BLACKWELL-CUBLAS-001: the measurements that refute it, and the parts of its falsifier."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from harness.base.device import Device

pytest.importorskip("triton", reason="Triton is not installed: pip install '.[triton]'")

from falsifiers.blackwell.measuring import backward_time
from falsifiers.blackwell.measuring.backward_time import time_backward
from falsifiers.blackwell.measuring.projection_cases import first_cases, question
from falsifiers.blackwell.oracle.projection import projection_gradients
from falsifiers.blackwell.oracle.qwen2 import SHAPES as TRUE_SHAPES
from falsifiers.blackwell.reference.backend import Backend, ProjectionGradients
from falsifiers.blackwell.reference.cublas_path import CublasPath, LibraryBackend, Tf32Rounding
from falsifiers.blackwell.reference.shapes import SHAPES
from falsifiers.blackwell.reference.torch_backend import TorchBackend
from falsifiers.blackwell.reference.triton_backend import TritonBackend
from falsifiers.blackwell.subjects.cublas import Path as Side
from falsifiers.blackwell.watching.compilations import counting_kernels
from harness import NotMeasured, Setting, Trial
from harness.base.vocabulary import Outcome
from harness.contract.project import Project
from harness.execution.worker_trial import WorkerTrial
from harness.judging.judge import Judgment, judge
from harness.judging.observation import Observation

_TINY, _TRUE_TINY = SHAPES["qwen2-tiny"], TRUE_SHAPES["qwen2-tiny"]
_CONTRACT = Project.find(Path(__file__).parent).contract("F-BLACKWELL-CUBLAS-001")
_ERRORS = (
    "sample_against_old", "whole_against_old", "whole_against_float64", "whole_relative", "each_relative",
    "training_difference",
)  # fmt: skip
_GOOD = {
    **{name: [1e-7, 6e-7] for name in _ERRORS},
    "block_float32": [1e-6] * 4, "block_bfloat16": [0.02] * 2, "training_relative": [1e-6],
    "bfloat16_relative": [0.003], "bfloat16_bias": [0.0003], "violations": [],
    "loss_first": 4.1, "loss_last": 3.5,
    "modules_old_per_layer": 171, "modules_new": 3, "bytes_old_per_layer": 30_000_000, "bytes_new": 40_000,
    "kernels_made_new": 3, "modules_old_shared": 27, "modules_new_shared": 19, "modules_new_shared_all_products": 11,
    "bytes_old_shared": 450_848, "bytes_new_shared": 287_584, "bytes_new_shared_all_products": 131_232,
    "cases": 60, "noise": [0.99, 1.01], "slower_low": 0.4, "slower_high": 0.42,
}  # fmt: skip


def judged(profile: str = "full", **changes: Any) -> Judgment:
    """The judgment of good measurements with `changes`; `...` removes a measurement."""
    parameters = _CONTRACT.profiles[profile].parameters
    measured = {**_GOOD, "cases": parameters["cases"], **changes}
    observation = Observation(
        subject=_CONTRACT.subject,
        profile=profile,
        parameters=parameters,
        device=Device("cpu", "a CPU"),
        measurements={name: value for name, value in measured.items() if value is not ...},
        resolved={"device": "cuda" if profile == "full" else "cpu", "backend": parameters["backend"]},
    )
    return judge(_CONTRACT, observation)


def refuted(**changes: Any) -> list[str]:
    """The clauses that good measurements with `changes` fail."""
    return [clause.id for clause in judged(**changes).with_outcome(Outcome.FAIL)]


@pytest.mark.parametrize(
    ("changes", "clause"),
    [
        ({"sample_against_old": [1.1e-5]}, "sample_against_old[].maximum"),
        ({"whole_against_float64": [1e-7, math.nan]}, "whole_against_float64[].maximum"),
        ({"slower_low": 1.06, "slower_high": 1.2}, "no-later"),
        ({"modules_new": 171}, "fewer-modules"),
        ({"bytes_new": 20_000_000}, "fewer-bytes"),
        ({"kernels_made_new": 171}, "tells-of-all-modules"),
        ({"bytes_new": 3}, "tells-of-all-modules"),
        ({"each_relative": [3e-5]}, "each_relative[].maximum"),
        ({"bfloat16_bias": [0.015]}, "bfloat16_bias[].maximum"),
        ({"modules_new_shared": 27}, "fewer-shared-modules"),
        ({"modules_new_shared_all_products": 19}, "fewer-shared-modules"),
        ({"bytes_new_shared": 450_848}, "fewer-shared-bytes"),
        ({"modules_old_per_layer": 170}, "old-path-has-seven-a-layer"),
        ({"loss_last": 4.1}, "training-learns"),
        ({"violations": ["inputs_kept: …"]}, "violations.maxItems"),
    ],
)
def test_what_refutes_the_claim(changes: dict[str, Any], clause: str) -> None:
    """Each change fails its clause. Without the change, the measurements pass."""
    assert clause in refuted(**changes)


def test_time_is_judged_where_it_was_measured_and_nowhere_else() -> None:
    """In the reduced profile the clause on time has no outcome. In the full one without the time it is NOT_MEASURED."""
    assert refuted() == []
    timeless: dict[str, Any] = {"noise": ..., "slower_low": ..., "slower_high": ...}
    reduced = judged("reduced", **timeless)
    assert reduced.outcome is Outcome.PASS
    assert "no-later" not in {clause.id for clause in reduced.clauses}
    assert "no-later" in _CONTRACT.unjudged("reduced")
    missing = {clause.id for clause in judged("full", **timeless).with_outcome(Outcome.NOT_MEASURED)}
    assert {"no-later", "noise.type", "slower_low.type", "slower_high.type"} <= missing


def test_tf32_rounding_keeps_ten_bits() -> None:
    """1 + 2^-10 is a number of TF32, 1 + 2^-11 is half way to it, and 1 + 2^-12 is rounded to 1."""
    factors = torch.tensor([[1 + 2**-10, 1 + 2**-11, 1 + 2**-12, -(1 + 2**-10)]])
    product = Tf32Rounding().matmul(factors.mT, torch.ones(1, 1))
    assert product.flatten().tolist() == [1 + 2**-10, 1 + 2**-10, 1.0, -(1 + 2**-10)]


@pytest.mark.parametrize("scale", [1.0, 0.001])
def test_the_spec_holds_for_tf32_only_at_small_gradients(scale: float) -> None:
    """The bound of 1e-5 is absolute. With TF32, weight gradients of the size of the scale exceed it."""
    case = next(first_case for first_case in first_cases(_TRUE_TINY, 48) if first_case["scale"] == scale)
    drawn = question(case, "cpu")
    _, right, _ = projection_gradients(drawn.x, drawn.weight, drawn.gradients[0])
    found = Tf32Rounding().project_backward("q", drawn.x, drawn.weight, drawn.gradients[0], bias=False)
    assert 0.5 * scale < float(right.std()) < 2 * scale
    assert (float((found.weight - right).abs().max()) <= 1e-5) == (scale == 0.001)


def test_far_rows_lie_beyond_an_index_of_32_bits() -> None:
    """The third row of each matrix begins at element 2^31 or later; no two matrices share an element."""
    case = next(first_case for first_case in first_cases(_TRUE_TINY, 48) if "far" in first_case["layouts"])
    drawn, near = question(case, "cpu"), question({**case, "layouts": ["rows"] * 3}, "cpu")
    for far, plain in zip(
        (drawn.x, drawn.weight, *drawn.gradients), (near.x, near.weight, *near.gradients), strict=True
    ):
        assert 2 * far.stride(0) >= 2**31
        assert torch.equal(far, plain)


def test_kernels_are_counted_whoever_tells_of_them(tmp_path: Path) -> None:
    """A kernel counts even if Triton's cache has it. After the block nothing is counted."""
    pytest.importorskip("cuda.bindings", reason="pip install '.[blackwell]'")
    made, _ = trial(tmp_path)
    with counting_kernels() as seen:
        result = made.subject.prewarm("new", _TINY, 1)
        assert seen.kernels == len(result) == 3
        made.subject.prewarm("old", _TINY, 1)
    assert seen.kernels == 3 + 10
    made.subject.prewarm("new", _TINY, 1)
    assert seen.kernels == 3 + 10


def test_layouts_change_where_elements_lie_and_nothing_else() -> None:
    """The elements between the rows of a wider matrix are NaN, so that a wrong read shows."""
    case = next(first_case for first_case in first_cases(_TRUE_TINY, 48) if first_case["sizes"] == [41, 43])
    plain, *others = (question({**case, "layouts": [layout] * 3}, "cpu") for layout in ("rows", "apart", "transposed"))
    for other, stride in zip(others, [(2 * 41, 1), (1, 37)], strict=True):
        assert other.x.stride() == stride
        assert torch.equal(other.x, plain.x)
        assert torch.equal(other.gradients[1], plain.gradients[1])


def trial(
    tmp_path: Path, subject: type[CublasPath] = CublasPath, **parameters: Any
) -> tuple[Trial[Any], dict[str, Any]]:
    """A trial of the reduced profile with its subject, and the place where its measurements arrive."""
    setting = Setting({**_CONTRACT.profiles["reduced"].parameters, **parameters}, "cpu", 1, tmp_path, tmp_path)
    measured: dict[str, Any] = {}
    run = WorkerTrial(
        setting, tmp_path, frozenset(_GOOD), lambda message: measured.update(getattr(message, "values", {}))
    )
    return run.build(subject), measured


class Costing(CublasPath):
    """Every gradient of a projection advances a clock by the seconds that its path costs."""

    costs: ClassVar[dict[Side, float]] = {"old": 4.0, "new": 1.0}
    now = 0.0

    def backend(self, path: Side, layer: int) -> Backend:
        """See `TwoPaths`."""

        class Spending(TorchBackend):
            def project_backward(self, *operands: Any, bias: bool) -> ProjectionGradients:
                Costing.now += Costing.costs[path]
                return super().project_backward(*operands, bias=bias)

        return Spending()


@pytest.mark.parametrize(("new", "slower"), [(1.0, 0.25), (4.0, 1.0), (4.4, 1.1), (8.0, 2.0)])
def test_backward_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: float, slower: float) -> None:
    """The ratio is the new path's time over the old one's, for all layers and nothing else. Samples are kept."""
    monkeypatch.setattr(backward_time, "time", SimpleNamespace(perf_counter=lambda: Costing.now))
    monkeypatch.setattr(Costing, "costs", {"old": 4.0, "new": new})
    made, measured = trial(tmp_path, Costing, rounds=4, layers=2, largest_tokens=16)
    time_backward(made, _TINY)
    assert measured["noise"] == pytest.approx([1.0, 1.0])
    assert [measured["slower_low"], measured["slower_high"]] == pytest.approx([slower, slower])
    seconds = json.loads((tmp_path / "timing.json").read_text())["seconds"]
    assert seconds["old"] == pytest.approx([2 * 7 * 4.0] * 4)


@pytest.mark.parametrize(
    ("unsteady", "limit", "is_judged"),
    [("old", 0.5, False), ("old", 1.05, False), ("old", 12.0, True), ("new", 0.5, True), ("new", 12.0, True)],
)
def test_an_unsteady_old_path_decides_only_what_is_far_from_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unsteady: Side, limit: float, is_judged: bool
) -> None:
    """One path takes three times as long in every second backward.

    A new path cannot use that to stay within its limit.
    """
    turns = itertools.count()

    class Unsteady(Costing):
        def backend(self, path: Side, layer: int) -> Backend:
            """See `TwoPaths`."""

            class Spending(TorchBackend):
                def project_backward(self, *operands: Any, bias: bool) -> ProjectionGradients:
                    is_slow = path == unsteady and next(turns) // 7 % 2
                    Costing.now += 3.0 if is_slow else 1.0
                    return super().project_backward(*operands, bias=bias)

            return Spending()

    monkeypatch.setattr(backward_time, "time", SimpleNamespace(perf_counter=lambda: Costing.now))
    made, measured = trial(tmp_path, Unsteady, rounds=10, layers=1, largest_tokens=16, ratio_limit=limit)
    with contextlib.nullcontext() if is_judged else pytest.raises(NotMeasured):
        time_backward(made, _TINY)
    assert ("slower_low" in measured) is is_judged


def test_the_backward_that_is_timed_is_the_subjects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both paths of the reference run in real time, one by the library and one by Triton's interpreter."""
    backends: dict[str, Backend] = {}

    class Remembering(CublasPath):
        def backend(self, path: Side, layer: int) -> Backend:
            """See `TwoPaths`."""
            backends[path] = super().backend(path, layer)
            return backends[path]

    made, measured = trial(tmp_path, Remembering, rounds=2, layers=1, largest_tokens=16, ratio_limit=1e-9)
    time_backward(made, _TINY)
    assert (type(backends["new"]), type(backends["old"])) == (LibraryBackend, TritonBackend)
    assert 0 < measured["slower_low"] <= measured["slower_high"]
    assert min(min(times) for times in json.loads((tmp_path / "timing.json").read_text())["seconds"].values()) > 0


def test_a_limit_within_the_noise_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both paths are equal, on a clock that scatters. The noise hides whether the ratio is above a limit of 1."""
    chance = random.Random(1)
    scattered = SimpleNamespace(perf_counter=lambda: Costing.now * math.exp(chance.gauss(0, 1e-6)))
    monkeypatch.setattr(backward_time, "time", scattered)
    monkeypatch.setattr(Costing, "costs", {"old": 4.0, "new": 4.0})
    made, measured = trial(tmp_path, Costing, rounds=20, layers=1, largest_tokens=16, ratio_limit=1.0)
    with pytest.raises(NotMeasured):
        time_backward(made, _TINY)
    assert "slower_low" not in measured


def test_the_gpus_clock_runs_only_for_timed_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulated GPU needs 10 s for the sleep and 2 s for a kernel.

    Work that is queued outside the block costs nothing.
    """
    queue: list[Any] = []

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            self.at = 0.0

        def record(self) -> None:
            queue.append(self)

        def elapsed_time(self, end: Event) -> float:
            return 1000 * (end.at - self.at)

    def synchronize() -> None:
        now = 0.0
        for kernel in queue:
            if isinstance(kernel, Event):
                kernel.at = now
            else:
                now += kernel

    monkeypatch.setattr(
        torch, "cuda", SimpleNamespace(Event=Event, synchronize=synchronize, _sleep=lambda cycles: queue.append(10.0))
    )
    clock = backward_time._GpuClock()
    assert clock() == 0.0
    queue.append(2.0)
    for kernels in (1, 3):
        with clock.running():
            queue.extend([2.0] * kernels)
    assert clock() == pytest.approx(2.0 * 4)
    assert clock() == pytest.approx(2.0 * 4)
    assert queue[1] == 10.0


@pytest.mark.parametrize("model", ["qwen2-tiny", "qwen2-0.5b"])
def test_the_forty_percent_do_not_survive_sharing(model: str) -> None:
    """The contract's notes state this finding: 4 shapes of projections have 2 products each."""
    pytest.importorskip("cuda.bindings", reason="pip install '.[blackwell]'")
    from falsifiers.blackwell.reference.shared_cache import shared_modules

    old, backward, products = (
        shared_modules(SHAPES[model], "nothing", 90),
        shared_modules(SHAPES[model], "backward", 90),
        shared_modules(SHAPES[model], "products", 90),
    )
    assert [len(old), len(backward), len(products)] == [27, 27 - 4 * 2, 11]
    assert sum(backward) > 0.6 * sum(old)
    assert len(backward) > 0.6 * len(old)
    assert sum(products) < 0.6 * sum(old)
