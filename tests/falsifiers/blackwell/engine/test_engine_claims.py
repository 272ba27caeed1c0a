"""The claims on any engine, on a driver without a GPU: a healthy engine holds, its defects and each mutant show."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from falsifiers.blackwell.engine import alloc, cublas, external, prewarm
from falsifiers.blackwell.oracle.product import errors
from harness.base.vocabulary import Outcome
from harness.contract import Mutant
from harness.judging.judge import Judgment
from harness.judging.verdict import Fate, fate_of
from harness.tools.recorder.libraries import compiled
from harness.tools.recorder.records import read
from tests.falsifiers.blackwell import watched
from tests.falsifiers.blackwell.watched import PROJECT, failed, missing
from tests.tools.recorder.fakes import Fakes

HERE = Path(__file__).parent
FALSIFIERS = {"CUBLAS": cublas.falsify, "ALLOC": alloc.falsify, "PREWARM": prewarm.falsify}
pytestmark = pytest.mark.usefixtures("fake_driver")
CONTRACTS = {name: PROJECT.contract(f"F-BLACKWELL-ENGINE-{name}-001") for name in FALSIFIERS}


@pytest.fixture(scope="module")
def libraries(fakes: Fakes) -> dict[str, str]:
    """By kind, a library that launches products: cuBLAS, and one of another name."""
    source = HERE / "fake_cublas.c"
    return {name: str(compiled(source, fakes.folder / name)) for name in ("libcublasLt.so.13", "libother.so")}


def judged(folder: Path, claim: str, libraries: dict[str, str], **given: Any) -> Judgment:
    library = libraries[given.pop("of", "libcublasLt.so.13")]
    own = {"mark": "3", "late": "", "kind": "cuMemAlloc", "kernel": "gemm_cublasLt_splitKreduce", "spoil": ""}
    options = {
        "planted": "",
        "trainer": f"{HERE.relative_to(PROJECT.root)}/engine.toml",
        "library": library,
        **own,
        **given,
    }
    return watched.judged(folder, CONTRACTS[claim], FALSIFIERS[claim], external.Command, options)[0]


@pytest.mark.parametrize("claim", FALSIFIERS)
def test_a_healthy_engine_passes_as_a_whole(tmp_path: Path, claim: str, libraries: dict[str, str]) -> None:
    judgment = judged(tmp_path, claim, libraries)
    assert [clause for clause in judgment.clauses if clause.outcome is not Outcome.PASS] == []


@pytest.mark.parametrize(
    ("claim", "mutant"),
    [(name, mutant) for name, contract in CONTRACTS.items() for mutant in contract.mutants],
    ids=lambda value: value if isinstance(value, str) else value.id,
)
def test_each_mutant_at_the_boundary_dies(
    tmp_path: Path, claim: str, mutant: Mutant, libraries: dict[str, str]
) -> None:
    """The program is the same healthy one, and knows nothing of the defect."""
    judgment = judged(tmp_path, claim, libraries, **mutant.parameters)
    assert fate_of(mutant, judgment).fate is Fate.KILLED, (failed(judgment), missing(judgment))


@pytest.mark.parametrize("kind", ["cuMemAllocManaged", "cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemCreate"])
def test_memory_of_each_kind_is_told_and_swapped(tmp_path: Path, kind: str, libraries: dict[str, str]) -> None:
    """Managed memory refutes on a device of its own memory; each other kind holds there, and its mutant dies."""
    wrong = {"largest_is_right.const", "most-bytes"}
    is_managed = kind == "cuMemAllocManaged"
    assert failed(judged(tmp_path, "ALLOC", libraries, kind=kind)) >= (wrong if is_managed else set())
    (tmp_path / "swapped").mkdir()
    judgment = judged(tmp_path / "swapped", "ALLOC", libraries, kind=kind, planted="allocation-swapped")
    assert failed(judgment) - {"right_bytes.minimum"} == (set() if is_managed else wrong)


def test_a_device_that_shares_the_hosts_memory_wants_managed_memory(
    tmp_path: Path, libraries: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_INTEGRATED", "1")
    judgment = judged(tmp_path, "ALLOC", libraries)
    assert failed(judgment) == {"right_bytes.minimum", "largest_is_right.const", "most-bytes"}
    (tmp_path / "managed").mkdir()
    judgment = judged(tmp_path / "managed", "ALLOC", libraries, kind="cuMemAllocManaged")
    assert (failed(judgment), missing(judgment)) == (set(), set())


def test_products_of_another_library_fail(tmp_path: Path, libraries: dict[str, str]) -> None:
    """They are right, and cuBLAS had no part in them."""
    judgment = judged(tmp_path, "CUBLAS", libraries, of="libother.so", kernel="gemm")
    assert failed(judgment) == {"library_kernels.minimum", "made_elsewhere.maxItems"}


def test_a_static_library_is_told_by_its_kernels_names(tmp_path: Path, libraries: dict[str, str]) -> None:
    """The code that launches kernels of cuBLAS's names may hold it, so nothing is known of who made the products."""
    judgment = judged(tmp_path, "CUBLAS", libraries, of="libother.so")
    assert failed(judgment) == set()
    assert missing(judgment) >= {"library_kernels.minimum", "made_elsewhere.maxItems"}


def test_a_wrong_gradient_fails(tmp_path: Path, libraries: dict[str, str]) -> None:
    """By one part in a hundred thousand, which no tolerance of 1e-4 shows."""
    assert failed(judged(tmp_path, "CUBLAS", libraries, spoil="grad_weight")) == {"errors[].maximum"}


@pytest.mark.parametrize("claim", ["CUBLAS", "PREWARM"])
def test_without_the_mark_nothing_is_known_of_what_it_brackets(
    tmp_path: Path, claim: str, libraries: dict[str, str]
) -> None:
    judgment = judged(tmp_path, claim, libraries, mark="none")
    assert failed(judgment) == set()
    assert missing(judgment) >= {"made_elsewhere.maxItems" if claim == "CUBLAS" else "loads_after.maxItems"}


def test_an_engine_that_loads_a_kernel_in_its_fourth_step_fails(tmp_path: Path, libraries: dict[str, str]) -> None:
    image = tmp_path / "kernels.cubin"
    image.write_bytes(b"\x7fELF" + bytes(200))
    judgment = judged(tmp_path, "PREWARM", libraries, late=str(image))
    assert failed(judgment) == {"loads_after.maxItems"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_the_bound_admits_rounding_and_not_tf32(dtype: torch.dtype) -> None:
    """In each type a product of its own rounding holds; factors of ten bits, as in TF32, do not hold in float32."""
    chance = torch.Generator().manual_seed(0)
    x, weight, gradient = (torch.randn(*size, generator=chance).to(dtype) for size in ((512, 256), (256, 8), (512, 8)))
    product = {"x": x, "weight": weight, "output": x @ weight, "grad_output": gradient}
    product |= {"grad_x": gradient @ weight.T, "grad_weight": x.T @ gradient}
    assert max(errors(product).values()) <= 1
    if dtype is torch.float32:
        cut = [(factor.view(torch.int32) & ~0x1FFF).view(dtype) for factor in (x, gradient)]
        assert errors({**product, "grad_weight": cut[0].T @ cut[1]})["grad_weight"] > 1


def test_records_of_an_h200_are_read_as_they_are(tmp_path: Path) -> None:
    """PyTorch on an H200 with driver 580; and a program of CUDA C++ with PTX planted after its mark."""
    shutil.copy(HERE / "h200" / "torch.jsonl", tmp_path / "1-1.jsonl")
    seen = read(tmp_path)
    assert set(seen.callers.values()) == {"libcublasLt.so.13", "libtorch_cuda.so"}
    assert {kind: (memory.allocations, memory.largest) for kind, memory in seen.allocated.items()} == {
        "plain": (11, 67_108_864)
    }
    assert (seen.late_loads, seen.late_compilations, seen.late_launches, seen.unmarked) == ((), (), 444, 0)
    shutil.copy(HERE / "h200" / "late.jsonl", tmp_path / "1-1.jsonl")
    seen = read(tmp_path)
    assert [text.partition(":")[0] for text in seen.late_loads] == [
        "cuModuleLoadData",
        "a module of 3560 bytes was loaded",
    ]
    assert seen.late_compilations == ("cache_load of ptx",)
