"""Compares the results of claims that run one after another with those of scheduled and isolated ones.

    python -m tests.run.same_verdicts [--profile PROFILE] [ID…]     # by default all claims, reduced; takes hours

The exit status is 1 if a claim or one of its mutants has another result. The noise of a machine can make a claim that
measures time NOT_MEASURED. Such a claim is only named.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.contract.project import Project
from harness.tools.isolate.isolable import obstacles

SERIAL, SCHEDULED, ISOLATED = ("-j", "1"), (), ("--isolate",)
UNREACHED = {"F-GB10-PTXAS-ORDER-001": ["mutant kept-for-good", "verdict"]}
"""Parts of claims that differ in isolation: the defect is in the falsifier's process, out of a subject's reach."""


def outcomes(records: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """The result of each claim: its verdict, the outcome of each clause, and the fate of each mutant."""
    return {
        record["id"]: {
            "verdict": record["verdict"],
            **{f"clause {clause['id']}": clause["outcome"] for clause in record["clauses"]},
            **{f"mutant {mutant['id']}": mutant["fate"] for mutant in record["mutants"]},
        }
        for record in records
    }


def differences(
    first: Mapping[str, Mapping[str, str]], second: Mapping[str, Mapping[str, str]]
) -> dict[str, list[str]]:
    """The parts of each claim that differ, with both outcomes."""
    found = {}
    for claim in sorted({*first, *second}):
        ours, theirs = first.get(claim, {}), second.get(claim, {})
        parts = sorted({*ours, *theirs})
        if ours != theirs:
            found[claim] = [
                f"{part}: {ours.get(part)}, {theirs.get(part)}" for part in parts if ours.get(part) != theirs.get(part)
            ]
    return found


def reached(found: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """The results without the parts that isolation changes."""
    return {
        claim: {part: verdict for part, verdict in parts.items() if part not in UNREACHED.get(claim, ())}
        for claim, parts in found.items()
    }


def isolable(ids: list[str]) -> list[str]:
    """The claims of the project, or those of them that are named, whose subjects can be isolated."""
    project = Project.find()
    contracts = [contract for contract in project.load_all()[0] if contract.id in ids or not ids]
    return [name for name, why in obstacles(project, contracts).items() if not why]


def results(claims: list[str], profile: str, way: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Run claims; the result of each."""
    with tempfile.TemporaryDirectory() as folder:
        place = ["--evidence", folder, "--json", f"{folder}/run.json"]
        command = ["run", *claims, "--profile", profile, *way, *place]
        subprocess.run([sys.executable, "-m", "harness", *command], check=False)  # a FAIL is not an error here
        return outcomes(json.loads(Path(folder, "run.json").read_text())["records"])


def main() -> int:
    """Run the claims three times, and print the differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="reduced")
    parser.add_argument("ids", nargs="*")
    given = parser.parse_args()
    able = isolable(given.ids)
    serial, scheduled = (results(given.ids or ["--all"], given.profile, way) for way in (SERIAL, SCHEDULED))
    isolated = results(able, given.profile, ISOLATED) if able else {}
    contracts = [json.loads(path.read_text()) for path in Path("contracts").glob("*/*/contract.json")]
    timed = {contract["id"] for contract in contracts if contract.get("lease") == "exclusive"}
    scheduling = differences(serial, scheduled)
    found = serial, scheduled
    noisy = {
        claim for claim in timed & scheduling.keys() if "NOT_MEASURED" in {result[claim]["verdict"] for result in found}
    }
    isolation = differences(*(reached(result) for result in ({claim: serial[claim] for claim in able}, isolated)))
    for way, differing in (("scheduled", scheduling), ("isolated", isolation)):
        for claim, parts in differing.items():
            print(f"{way} {claim}{' measures time' if claim in noisy else ''}: {'; '.join(parts)}")
    print(f"{len(serial)} claims, {len(scheduling)} differ where scheduled, {len(noisy)} of them by noise")
    print(f"{len(isolated)} claims isolated, {len(isolation)} differ")
    return 1 if not serial or scheduling.keys() - noisy or isolation else 0


if __name__ == "__main__":
    sys.exit(main())
