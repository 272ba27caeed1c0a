"""Compares the results of claims that share the machine with those of claims that run one after another.

    python -m tests.run.same_verdicts [--profile PROFILE] [ID…]     # by default all claims, reduced; takes an hour

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

SERIAL, SCHEDULED = ("-j", "1"), ()


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
        one, other = first.get(claim, {}), second.get(claim, {})
        parts = sorted({*one, *other})
        if one != other:
            found[claim] = [
                f"{part}: {one.get(part)}, {other.get(part)}" for part in parts if one.get(part) != other.get(part)
            ]
    return found


def main() -> int:
    """Run the claims twice, and print the differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="reduced")
    parser.add_argument("ids", nargs="*")
    given = parser.parse_args()
    found = []
    for way in (SERIAL, SCHEDULED):
        with tempfile.TemporaryDirectory() as folder:
            place = ["--evidence", folder, "--json", f"{folder}/run.json"]
            command = ["run", *(given.ids or ["--all"]), "--profile", given.profile, *way, *place]
            subprocess.run([sys.executable, "-m", "harness", *command], check=False)  # a FAIL is not an error here
            found.append(outcomes(json.loads(Path(folder, "run.json").read_text())["records"]))
    contracts = [json.loads(path.read_text()) for path in Path("contracts").glob("*/F-*[0-9].json")]
    timed = {one["id"] for one in contracts if one.get("lease") == "exclusive"}
    differing = differences(*found)
    noisy = {claim for claim in timed & differing.keys() if "NOT_MEASURED" in {one[claim]["verdict"] for one in found}}
    for claim, parts in differing.items():
        print(f"{claim}{' measures time' if claim in noisy else ''}: {'; '.join(parts)}")
    print(f"{len(found[0])} claims, {len(differing)} differ, {len(noisy)} of them by noise")
    return 1 if not found[0] or differing.keys() - noisy else 0


if __name__ == "__main__":
    sys.exit(main())
