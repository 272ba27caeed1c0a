"""A folder of bundles with every verdict, and some that nobody should trust or could read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.evidence.isolation import Limits
from harness.evidence.staleness import ProjectState
from harness.evidence.verify import Against, verify_all
from harness.project import Project
from harness.report.html import site
from harness.report.html.index_page import Entry
from tests.contracts import healthy
from tests.evidence.factory import DEFECTIVE, claim_result, sealer

__all__ = ["HOSTILE", "bundles", "write"]

HOSTILE = (
    "</title></script><script>alert(1)</script>"
    '<img src="https://example.org/x.png" onerror=alert(1)>\x1b[31m\u202e{{7*7}}'
)
"""A title that would be markup, a template, terminal colours and reversed text."""


def bundles(folder: Path) -> dict[str, Path]:
    """One bundle of each kind below folder/evidence, by name."""
    contracts = folder / "contracts"
    seal = sealer(folder).seal
    log = "\x1b[1mstep 1\x1b[0m\rstep 2\nMemoryError: <b>no</b>\n" + "a line that says little\n" * 60
    found = {
        "PASS": seal(claim_result(contracts, run="run-pass", rows=60)),
        "FAIL": seal(
            claim_result(
                contracts, run="run-fail", rows=60, output=log,
                measurements=healthy(returned=2, smallest=float("nan")),
            )
        ),
        "VOID": seal(claim_result(contracts, run="run-void", mutants={**DEFECTIVE, "forgets-one": {}})),
        "UNPROVEN": seal(claim_result(contracts, run="run-unproven", skipped=True, overrides={"steps": 3})),
    }  # fmt: skip
    idle = claim_result(contracts, run="run-idle", measurements={}, mutants={}, rows=0, output="")
    found["NOT_MEASURED"] = seal(idle)
    found["HOSTILE"] = seal(claim_result(contracts, run="run-hostile", title=HOSTILE, command=HOSTILE, reason=HOSTILE))
    found["TAMPERED"] = seal(claim_result(contracts, run="run-tampered"))
    (found["TAMPERED"] / "observation.json").write_text("{}")
    found["UNREADABLE"] = seal(claim_result(contracts, run="run-unreadable"))
    (found["UNREADABLE"] / "record.json").write_text('{"id": 1')
    return found


def write(
    paths: Sequence[Path], folder: Path, project: Project | None = None, limits: Limits | None = None
) -> list[Entry]:
    """A site of these bundles, trusting no key."""
    against = Against(state=ProjectState(project) if project else None)
    return site.write(list(verify_all(paths, limits, against)), folder, against, project, limits)
