"""Wall time of a run with its mutants relative to the sum of its trials: the overhead of the harness.

The fork server imports torch and transformers once per claim; the ratio shows whether that works. The target is a wall
time of at most 1.3 times the sum, also with one trial at a time.

    python -m benchmarks.trials [CLAIM...] [--profile reduced]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time

import pandas as pd


def run(claim: str, profile: str, jobs: int | None) -> dict[str, object]:
    """One run of a claim: its wall time, and that of its trials."""
    with tempfile.TemporaryDirectory() as evidence:
        side = [] if jobs is None else ["-j", str(jobs)]
        command = [
            sys.executable,
            "-m",
            "harness",
            "run",
            claim,
            "--profile",
            profile,
            "--evidence",
            evidence,
            *side,
        ]
        before = time.perf_counter()
        done = subprocess.run([*command, "--json", "-"], capture_output=True, text=True)
        wall = time.perf_counter() - before
    (record,) = json.loads(done.stdout)["records"]
    trials = [record["trial_seconds"], *(mutant["seconds"] for mutant in record["mutants"] if mutant["seconds"])]
    return {
        "claim": claim,
        "at a time": "default" if jobs is None else jobs,
        "trials": len(trials),
        "sum of trials (s)": round(sum(trials), 2),
        "wall (s)": round(wall, 2),
        "wall / sum": round(wall / sum(trials), 3),
        "verdict": record["verdict"],
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("claims", nargs="*", default=["F-DISTILL-SMOKE-001", "F-DISTILL-CKPT-EXPORT-001"])
    parser.add_argument("--profile", default="reduced")
    arguments = parser.parse_args()
    run(arguments.claims[0], arguments.profile, None)  # fills the caches
    rows = [run(claim, arguments.profile, jobs) for claim in arguments.claims for jobs in (None, 1)]
    print(pd.DataFrame(rows).to_string(index=False))


if __name__ == "__main__":
    main()
