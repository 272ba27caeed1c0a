"""`harness kernel check`: a right function passes and its mutants die, a wrong one fails, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from harness.base.vocabulary import ExitStatus
from tests.cli.harness_command import harness

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

PLAIN = (torch.ones(4, 6), torch.ones(4, 6))
"""
SMALL = ("--largest", "128", "--dtype", "float32", "--device", "cpu", "--without", "compiled")
RIGHT = ("kernel", "check", "mine.kernels:silu_mul", "--against", "mine.reference:silu_mul", *SMALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a right kernel and a wrong one. It has no contract."""
    (tmp_path / "pyproject.toml").write_text("[tool.harness]\n")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").touch()
    (tmp_path / "mine" / "kernels.py").write_text(KERNELS)
    (tmp_path / "mine" / "reference.py").write_text(REFERENCE)
    return tmp_path


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
    names = ["mine.kernels:cached", "--against", "mine.reference:silu_mul", *SMALL]
    done = harness(folder, "kernel", "check", *names, "--isolate")
    assert done.returncode == ExitStatus.FAIL, done.stdout + done.stderr
    assert (record(folder)["isolated"], record(folder)["verdict"]) == (True, "FAIL")
    assert "the same objects" in done.stdout
    (observation,) = (folder / "evidence").rglob("observation.json")
    measured = json.loads(observation.read_text())["measurements"]
    assert {name for name, found in measured.items() if found and name != "calls"} == {"refilled", "no_growth"}


def test_arguments_without_a_drawing_function(folder: Path) -> None:
    """Plain arguments are an example, too."""
    done = harness(folder, *RIGHT, "--example", "mine.reference:PLAIN", "--no-mutants")
    assert done.returncode == ExitStatus.PASS, done.stdout + done.stderr


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


def test_a_reference_that_rounds_measures_nothing(folder: Path) -> None:
    """The reason names the remedy; nothing failed."""
    with (folder / "mine" / "reference.py").open("a") as file:
        file.write("\ndef rounding(gate, up):\n    return silu_mul(gate.float(), up.float())\n")
    done = harness(folder, "kernel", "check", "mine.kernels:silu_mul", "--against", "mine.reference:rounding", *SMALL)
    assert done.returncode == ExitStatus.NOT_MEASURED
    assert "float32" in done.stdout


@pytest.mark.parametrize(
    ("name", "verdict", "isolated"),
    [
        ("cuda", "NOT_MEASURED", []),
        ("triton", "NOT_MEASURED", ["--isolate"]),
        ("operator", "NOT_MEASURED", []),
        ("nothing", "FAIL", []),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU would run it")
def test_a_kernel_that_lacks_its_gpu_is_not_refuted(folder: Path, name: str, verdict: str, isolated: list[str]) -> None:
    """It is NOT_MEASURED. A function that refuses every call by an exception of its own is FAIL, whatever its text."""
    if name == "triton":
        pytest.importorskip("triton")
    small = ("--largest", "128", "--device", "cpu", "--no-mutants")
    names = [f"mine.kernels:on_{name}", "--against", "mine.reference:silu_mul", *small]
    done = harness(folder, "kernel", "check", *names, *isolated)
    assert done.returncode == ExitStatus[verdict], done.stdout + done.stderr
    assert ("TRITON_INTERPRET=1" in done.stdout) == (verdict == "NOT_MEASURED")
