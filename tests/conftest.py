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

# Children of a job in the background inherit that it ignores signals, but not a handler; tests send these signals.
# Tests send SIGINT to this process, too.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tensors of tests are small: a second thread for one operation costs more than it saves.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What is drawn on a terminal depends on its kind.
os.environ["TERM"] = "xterm-256color"

# Machines that run these tests are shared, so the time of one example says nothing.
hypothesis.settings.register_profile("harness", deadline=None)
# `make fuzz`: each round takes minutes, and begins with what earlier rounds found.
hypothesis.settings.register_profile(
    "nightly", deadline=None, max_examples=5000, suppress_health_check=list(hypothesis.HealthCheck), print_blob=True
)
hypothesis.settings.load_profile("harness")


HERE = Path(__file__).parent
SLOWEST = (
    "falsifiers/distill/test_external.py",
    "tools/slurm/test_forged.py",
    "falsifiers/distill/test_falsifiers.py",
    "falsifiers/blackwell/test_kernel_claims.py",
    "falsifiers/nanochat/test_claims.py",
    "falsifiers/blackwell/archived/test_command_line.py",
    "tools/replay/test_command.py",
    "ci/test_run_script.py",
    "ci/test_wheels_script.py",
    "falsifiers/param_decomp/test_claims.py",
    "execution/test_hostile.py",
    "falsifiers/apr/test_claims.py",
    "evidence/test_attestation.py",
    "falsifiers/distill/test_seen_from_outside.py",
    "evidence/test_verification.py",
    "falsifiers/distill/test_kd.py",
    "cli/test_signing.py",
    "lint/test_lint.py",
    "cli/test_status.py",
    "falsifiers/blackwell/test_kernels.py",
    "cli/test_run_ended.py",
    "falsifiers/blackwell/test_wgpu_fallback.py",
    "tools/inspect/checkpoint/test_bounded.py",
    "falsifiers/blackwell/test_triton.py",
    "tools/html/test_in_a_browser.py",
    "tools/trainer/test_guide.py",
    "falsifiers/blackwell/test_root_cause.py",
    "falsifiers/blackwell/test_cublas.py",
    "falsifiers/recsys/test_claims.py",
    "contract/test_cost.py",
)
"""The files that take longest. They run first, so that no worker is left with one of them at the end. Files that wait
stand between files that compute."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--families all`: see tests/falsifiers/families.py."""
    parser.addoption("--families", choices=("changed", "all"), default="changed", help="the families to test")


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
