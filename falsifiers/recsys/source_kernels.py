"""F-HSTU-SOURCE-TRITON-001: the stated number of the source's tests of its Triton operators pass."""

import os
import sys
from collections import Counter

import torch

from falsifiers.recsys.source_cases import Files
from harness import Trial
from harness.tools.suite.ledger import PASSED
from harness.tools.suite.session import Suite

_CONFTEST = """
from pathlib import Path

import torch


def pytest_unconfigure() -> None:
    Path({file!r}).write_text(str(torch.cuda.max_memory_allocated()))
"""
"""Writes the most memory that the process of the tests allocated on the GPU, in bytes."""


def falsify(trial: Trial[Files]) -> None:
    """Run copies of the tests and of the operators in a separate process."""
    names: list[str] = trial.parameters["files"]
    root = trial.workspace / "suite"
    with trial.subject_fault():
        files = trial.subject.files()
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    memory = trial.workspace / "allocated_bytes"
    (root / "conftest.py").write_text(_CONFTEST.format(file=str(memory)), encoding="utf-8")
    given = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    ledger = Suite(root, names, trial.workspace / "sessions", given).run()
    passed = Counter(function.partition("::")[0] for function, _, _ in ledger.cells(PASSED))
    trial.measure(
        passed=[passed[name] for name in names],
        differences=[passed[name] - wanted for name, wanted in zip(names, trial.parameters["cases"], strict=True)],
        failed=sorted(f"{cell.identifier}: {cell.reason}"[:300] for _, _, cell in ledger.cells("failed")),
        broken=sorted(ledger.broken),
    )
    # The tests name the device themselves, and without a GPU none passes.
    allocated = int(memory.read_text(encoding="utf-8")) if memory.exists() else 0
    trial.resolve(device=torch.device(trial.device).type, allocated_bytes=allocated)
