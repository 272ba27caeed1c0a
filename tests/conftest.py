"""Fixtures that tests all over the tree share."""

from __future__ import annotations

import signal
from pathlib import Path

import hypothesis
import pytest

from harness.contract import Contract
from harness.contract.project import Project
from tests.contracts import contract_of, document, write_project

# What a job in the background ignores, its children ignore, too, and tests send them these; a handler is not inherited.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda number, frame: None)

# Machines that run these tests are shared; how long one example takes says nothing.
hypothesis.settings.register_profile("harness", deadline=None)
hypothesis.settings.load_profile("harness")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project in a temporary folder, with one valid contract and its falsifier."""
    return Project.find(write_project(tmp_path / "project"))


@pytest.fixture(scope="session")
def contract() -> Contract:
    """The valid contract, loaded."""
    return contract_of(document())
