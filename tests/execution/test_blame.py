"""Whether an exception is the machine's fault: a tool that does not work on its own refutes nobody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from harness.execution import frameworks
from harness.execution.blame import machine_fault
from harness.machine import triton_interpreter


def raised(place: Path) -> Exception:
    """An exception that passed through code in this file, as the cause of another one."""
    code = compile("def launch(kernel):\n    kernel()\n", str(place), "exec")
    names: dict[str, Callable[[Callable[[], object]], None]] = {}
    exec(code, names)
    try:
        try:
            names["launch"](lambda: int("no scalar"))
        except ValueError as error:
            raise RuntimeError("the kernel failed") from error
    except RuntimeError as error:
        return error


@pytest.mark.parametrize(
    ("place", "why", "expected"),
    [
        ("triton/runtime/interpreter.py", "it does not fit", "it does not fit"),
        ("triton/runtime/interpreter.py", "", ""),
        ("kernels/attention.py", "it does not fit", ""),
    ],
)
def test_only_an_interpreter_that_fails_on_its_own_is_to_blame(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str, why: str, expected: str
) -> None:
    """The subject is to blame if the interpreter works, or if the exception did not come from it."""
    monkeypatch.setattr(triton_interpreter, "misfit", lambda: why)
    assert machine_fault(raised(tmp_path / place), 0.0) == expected


def test_the_interpreter_that_is_installed_works() -> None:
    pytest.importorskip("triton")
    assert triton_interpreter.misfit.__wrapped__() == ""


def test_a_triton_that_does_not_work_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The process of the probe imports what this one would import."""
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("raise TypeError('only 0-dimensional arrays')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "TypeError: only 0-dimensional arrays" in triton_interpreter.misfit.__wrapped__()


def test_the_peak_is_that_of_the_whole_trial_although_code_resets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peak covers the whole trial, although the code resets it: a claim on memory measures several steps."""
    peaks = [300]
    for module in (torch.cuda, torch.cuda.memory):
        monkeypatch.setattr(module, "reset_peak_memory_stats", lambda device=None: peaks.__setitem__(0, 7))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda index: peaks[0])
    monkeypatch.setattr(frameworks, "_peaks", [0])
    seed = torch.initial_seed()
    frameworks.prepare(seed, torch.get_num_threads())
    torch.cuda.reset_peak_memory_stats()
    assert (peaks, frameworks.allocator_peak_bytes()) == ([7], 300)
