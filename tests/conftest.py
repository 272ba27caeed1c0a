"""Shared fixtures."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import hypothesis
import pytest

from harness.contract import Contract
from harness.contract.project import Project
from tests.contracts import contract_of, document, write_project

pytest_plugins = ["pytester"]

# What a job in the background ignores, its children ignore, too, and tests send them these; a handler is not inherited.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda number, frame: None)

# Tensors of tests are small: a second thread for one operation costs more than it saves.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Machines that run these tests are shared; how long one example takes says nothing.
hypothesis.settings.register_profile("harness", deadline=None)
# `make fuzz`: each round takes minutes, and begins with what earlier rounds found.
hypothesis.settings.register_profile(
    "nightly", deadline=None, max_examples=5000, suppress_health_check=list(hypothesis.HealthCheck), print_blob=True
)
hypothesis.settings.load_profile("harness")


HERE = Path(__file__).parent
SLOWEST = (
    "falsifiers/distill/test_external.py",
    "falsifiers/distill/test_falsifiers.py",
    "falsifiers/blackwell/test_kernel_claims.py",
    "falsifiers/blackwell/test_root_cause.py",
    "falsifiers/blackwell/test_wgpu_fallback.py",
    "falsifiers/blackwell/test_triton.py",
    "falsifiers/blackwell/test_cublas.py",
    "falsifiers/blackwell/test_kernels.py",
    "report/html/test_in_a_browser.py",
    "run/slurm/test_run.py",
    "falsifiers/distill/test_seen_from_outside.py",
    "cli/test_replay.py",
)
"""The files that take longest. They run first, so that no worker is left with one of them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the slowest files first; the others keep their order."""
    order = {HERE / name: place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project in a temporary folder, with one valid contract and its falsifier."""
    return Project.find(write_project(tmp_path / "project"))


@pytest.fixture(scope="session")
def contract() -> Contract:
    """The valid contract, loaded."""
    return contract_of(document())
