"""`harness kernel check`: a right function passes and its mutants die, a wrong one fails, and what is refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from harness.authoring.tensor_function import RELATIONS
from harness.base.vocabulary import ExitStatus, Outcome
from harness.contract.project import Project
from harness.judging.judge import Judgment
from harness.tools.kernels.kernel_contract import KernelCheck, contract_of
from tests.cli.harness_command import harness
from tests.contracts import put
from tests.falsifiers.in_process import judged

KERNELS = """
import torch
import torch.nn.functional as F

BLOCK = 24
KEPT = {}

def silu_mul(gate, up):
    return F.silu(gate) * up

def cached(gate, up):
    key = gate.data_ptr(), up.data_ptr(), gate.shape
    if gate.requires_grad or up.requires_grad:
        return silu_mul(gate, up)
    if key not in KEPT:
        KEPT[key] = silu_mul(gate, up)
    return KEPT[key].clone()

def on_cuda(gate, up):
    if gate.dtype == torch.float64:
        raise TypeError("float64 is not supported")
    return silu_mul(gate.to("cuda:0"), up.to("cuda:0"))

def on_triton(gate, up):
    import triton
    triton.jit(silu_mul)[(1,)](gate, up)

torch.library.define("mine::silu_mul", "(Tensor gate, Tensor up) -> Tensor")
torch.library.impl("mine::silu_mul", "cuda", silu_mul)

def on_operator(gate, up):
    return torch.ops.mine.silu_mul(gate, up)

def on_nothing(gate, up):
    raise RuntimeError("0 active drivers: Found no NVIDIA driver for CUDA")
"""
REFERENCE = """
import torch

def silu_mul(gate, up):
    return gate * torch.sigmoid(gate) * up

def example(draw):
    rows, width = draw.size("rows"), draw.size("width")
    return draw.tensor(rows, width), draw.tensor(rows, width)

def rounding(gate, up):
    return silu_mul(gate.float(), up.float())

PLAIN = (torch.ones(4, 6), torch.ones(4, 6))
"""
SMALL = ("--largest", "128", "--dtype", "float32", "--device", "cpu", "--without", "compiled")
RIGHT = ("kernel", "check", "mine.kernels:silu_mul", "--against", "mine.reference:silu_mul", *SMALL)


needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU would run it")


def project_in(folder: Path) -> Path:
    """Write a project with a right kernel and wrong ones. It has no contract."""
    (folder / "pyproject.toml").write_text("[tool.harness]\n")
    put(folder / "mine" / "__init__.py", "")
    put(folder / "mine" / "kernels.py", KERNELS)
    put(folder / "mine" / "reference.py", REFERENCE)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The project."""
    return project_in(tmp_path)


def record(folder: Path) -> dict[str, object]:
    """The record of the only bundle."""
    (found,) = (folder / "evidence").rglob("record.json")
    return dict(json.loads(found.read_text()))


def test_a_right_function_passes_and_every_planted_defect_is_found(folder: Path) -> None:
    """The PASS is proven, the bundle is sound, and the table has a line for each relation."""
    done = harness(folder, *RIGHT)
    assert done.returncode == ExitStatus.PASS, done.stdout + done.stderr
    assert (record(folder)["verdict"], record(folder)["proven"]) == ("PASS", True)
    lines = [line.split() for line in done.stdout.splitlines()]
    outcomes = {line[0]: line[2] for line in lines if len(line) > 2 and line[1].isdigit()}
    assert outcomes["value"] == outcomes["refilled"] == outcomes["inputs_kept"] == "holds"
    assert "compiled" not in outcomes
    assert harness(folder, "verify", "evidence").returncode == ExitStatus.PASS


def test_an_isolated_cheat_fails_on_the_relation_that_it_breaks(folder: Path) -> None:
    """The function runs apart from what judges it; the record and the table show what was violated."""
    names = ["mine.kernels:cached", "--against", "mine.reference:silu_mul", *SMALL, "--no-mutants"]
    done = harness(folder, "kernel", "check", *names, "--isolate")
    assert done.returncode == ExitStatus.FAIL, done.stdout + done.stderr
    assert (record(folder)["isolated"], record(folder)["verdict"]) == (True, "FAIL")
    assert "the same objects" in done.stdout
    (observation,) = (folder / "evidence").rglob("observation.json")
    measured = json.loads(observation.read_text())["measurements"]
    violated = {name for name, found in measured.items() if found and name != "calls"}
    violated.discard("special_values")  # if the allocator uses an address again, they show it, too
    assert violated == {"refilled", "no_growth"}


@pytest.fixture(scope="module")
def judgment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Judgment]]:
    """Judges a check in this process: one trial of the contract that the command would make, without its mutants."""
    folder = project_in(tmp_path_factory.mktemp("kernels"))
    project = Project.find(folder)

    def check(function: str, against: str = "silu_mul", example: str = "example") -> Judgment:
        names = (f"mine.kernels:{function}", f"mine.reference:{against}", f"mine.reference:{example}")
        texts = {name: relation.text for name, relation in RELATIONS.items() if name in ("value", "gradient")}
        checked = KernelCheck(*names, list(texts), ["float32"], largest=128, texts=texts)
        document = contract_of(checked, "F-MINE-001", {"scaled": ("value", "scaled", ["value"])}, on_gpu=False)
        document["profiles"]["reduced"] = document["profiles"]["full"]
        contract = project.load(put(folder / "F-MINE-001" / "contract.json", json.dumps(document)))
        return judged(contract, contract.subject, folder, ends=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield check
    for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
        del sys.modules[name]


def test_arguments_without_a_drawing_function(judgment: Callable[..., Judgment]) -> None:
    """Plain arguments are an example, too."""
    assert judgment("silu_mul", example="PLAIN").outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (["mine.kernels:silu_mul"], "--against"),
        (["mine.kernels:missing", "--against", "mine.reference:silu_mul"], "missing"),
        (["mine.kernels:silu_mul", "--against", "mine.reference:none"], "none"),
        (["mine.kernels:silu_mul", "--against", "mine.kernels:silu_mul", "--isolate"], "example"),
        (["nothing here", "--against", "mine.reference:silu_mul"], "MODULE:NAME"),
        (["mine.kernels:silu_mul", "--against", "mine.reference:silu_mul", "--without", "grace"], "grace"),
    ],
)
def test_what_is_refused(folder: Path, changed: list[str], said: str) -> None:
    """Nothing has run."""
    done = harness(folder, "kernel", "check", *changed, "--device", "cpu")
    assert done.returncode == ExitStatus.REFUSED
    assert said in done.stderr
    assert not (folder / "evidence").exists()


def test_a_reference_that_rounds_measures_nothing(judgment: Callable[..., Judgment]) -> None:
    """The reason names the remedy; nothing failed."""
    found = judgment("silu_mul", against="rounding")
    assert found.outcome is Outcome.NOT_MEASURED
    assert "float32" in str(found.reason)


@pytest.mark.parametrize("name", ["cuda", "triton", "operator"])
@needs_no_gpu
def test_a_kernel_that_lacks_its_gpu_is_not_refuted(judgment: Callable[..., Judgment], name: str) -> None:
    """It is NOT_MEASURED, with the remedy."""
    if name == "triton":
        pytest.importorskip("triton")
    found = judgment(f"on_{name}")
    assert found.outcome is Outcome.NOT_MEASURED
    assert "TRITON_INTERPRET=1" in str(found.reason)


@needs_no_gpu
def test_an_isolated_kernel_that_lacks_its_gpu_is_not_refuted(folder: Path) -> None:
    """The process of the subject tells where its exception came from."""
    pytest.importorskip("triton")
    names = ["mine.kernels:on_triton", "--against", "mine.reference:silu_mul", *SMALL, "--no-mutants"]
    done = harness(folder, "kernel", "check", *names, "--isolate")
    assert done.returncode == ExitStatus.NOT_MEASURED, done.stdout + done.stderr
    assert "TRITON_INTERPRET=1" in done.stdout


@needs_no_gpu
def test_a_function_that_refuses_every_call_fails(judgment: Callable[..., Judgment]) -> None:
    """Its exception is its own, whatever it says."""
    assert judgment("on_nothing").outcome is Outcome.FAIL
