"""The threads of a campaign."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.contract.project import Project
from harness.machine.host import probe
from harness.running.interruption import Interruption
from harness.running.request import RunRequest
from harness.tools.planting.campaign import _Campaign
from harness.tools.planting.defects import Subjects


def test_a_defect_of_the_harness_ends_the_campaign(project: Project, tmp_path: Path) -> None:
    """The exception reaches the caller, and no other thread tries defects until the end of the budget."""
    began, host, request = time.monotonic(), probe(project.root), RunRequest(jobs=2)
    with ExitStack() as resources:
        campaign = _Campaign(
            project, Subjects(project.root), host, tmp_path, request, began + 60, False, Interruption(), resources
        )

        def fail() -> None:
            raise ArithmeticError("a defect")

        def work() -> None:
            while not campaign._is_over():
                time.sleep(0.01)

        with pytest.raises(ArithmeticError, match="a defect"):
            campaign._together([fail, work])
    assert time.monotonic() - began < 30
