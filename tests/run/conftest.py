"""The bench of the tests of the engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.contract.project import Project
from harness.evidence.seal import ClaimResult
from harness.machine.host import probe
from harness.running import events
from harness.running.engine import Engine
from tests.run.pretending import Behaviour, Bench, Pretender, Pretenders


@pytest.fixture
def bench(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bench]:
    """Return a function that makes a bench of a behaviour."""
    monkeypatch.setenv("HARNESS_LEASE_DIR", str(tmp_path / "leases"))

    def make(behave: Behaviour, sealing: Callable[[], None] = lambda: None, **executor: Any) -> Bench:
        pretender, heard, sealed = Pretender(behave, **executor), list[events.Event](), list[ClaimResult]()

        def seal(result: ClaimResult) -> Path:
            sealing()
            sealed.append(result)
            return tmp_path / "bundle"

        engine = Engine(
            project, probe(project.root), lambda: Pretenders(lambda: pretender), seal, heard.append, "harness run"
        )
        return Bench(engine, project.contract("F-DEMO-SORT-001"), pretender, heard, sealed)

    return make
