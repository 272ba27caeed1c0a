"""A folder of bundles with every verdict, some of them unsound or unreadable."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.contract.project import Project
from harness.contract.reasons import Reason, ReasonCode
from harness.evidence.seal import ClaimResult
from harness.evidence.staleness import ProjectState
from harness.evidence.verification import Against, verify_all
from harness.machine.limited_process import Limits
from harness.tools.html import site
from harness.tools.html.index_page import ListedBundle
from tests.contracts import document, healthy
from tests.evidence.factory import DEFECTIVE, claim_result, contract_in, sealer

__all__ = ["HOSTILE", "bundles", "write"]

HOSTILE = (
    "</title></script><script>alert(1)</script>"
    '<img src="https://example.org/x.png" onerror=alert(1)>\x1b[31m\u202e{{7*7}}'
)
"""A title with markup, a template, terminal colours and reversed text."""


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
    found["LONG"] = seal(_long_names(folder / "long"))
    found["HOSTILE"] = seal(
        claim_result(
            contracts,
            run="run-hostile",
            title=HOSTILE,
            command=HOSTILE,
            reason=Reason(ReasonCode.UNSEALED, text=HOSTILE),
        )
    )
    found["TAMPERED"] = seal(claim_result(contracts, run="run-tampered"))
    (found["TAMPERED"] / "observation.json").write_text("{}")
    found["UNREADABLE"] = seal(claim_result(contracts, run="run-unreadable"))
    (found["UNREADABLE"] / "record.json").write_text('{"id": 1')
    return found


def _long_names(folder: Path) -> ClaimResult:
    """A reduced run that omits clauses, with long names and units of measurements."""
    content = document()
    content["profiles"]["reduced"]["omits"] = ["left_aside"]
    names = ("modules_new_shared_all_products", "modules_old_for_each_layer_all_products")
    for name, unit in ((names[0], "B"), (names[1], "B"), ("left_aside", ""), ("rates_seen", "learning rates")):
        content["observation"]["properties"][name] = {"type": "integer", "minimum": 1, "x-source": "counted"}
        if unit:
            content["observation"]["properties"][name]["x-unit"] = unit
    rule = {"id": "fewer-modules", "rule": f"self.{names[0]} < self.{names[1]}", "message": "it needs more"}
    content["rules"].append(rule)
    measured = dict(zip(names, (131_232, 1 << 40), strict=True)) | {"rates_seen": 123_456_789}
    return claim_result(
        folder,
        run="run-long",
        contract=contract_in(folder, **{key: content[key] for key in ("profiles", "observation", "rules")}),
        measurements=healthy(**measured),
        mutants={name: {**differing, **measured} for name, differing in DEFECTIVE.items()},
    )


def write(
    paths: Sequence[Path], folder: Path, project: Project | None = None, limits: Limits | None = None
) -> list[ListedBundle]:
    """Write a site of these bundles. No key is trusted."""
    against = Against(state=ProjectState(project) if project else None)
    return site.pages(list(verify_all(paths, limits, against)), folder, against, project, limits)
